"""The demo's example: every planted credential is found, and the stand-ins answer as planned."""

import asyncio
import json
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from outcrop.demo import repositories, site
from outcrop.demo.issuers import IssuerRequest, Issuers
from outcrop.demo.planted import Fate, fill_template, planted_in
from outcrop.demo.receiver import Receiver
from outcrop.demo.report import earlier_report
from outcrop.demo.stand_ins import open_stand_ins
from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.net.guard import Egress
from outcrop.net.http import HttpError, open_http
from outcrop.scanner.engine.scan import scan_content
from outcrop.settings import Settings
from outcrop.validation.engine import ValidationMode, Validator
from outcrop.webhooks import sign
from tests.support.rulesets import ruleset

TEMPLATES = [*repositories.templates(), *site.templates()]
NOW = datetime.now(UTC)
WANTED = {
    Fate.ALIVE: "valid",
    Fate.NARROW: "valid",
    Fate.DEAD: "invalid",
    Fate.FAULT: "error",
    Fate.DOWN: "unreachable",
    Fate.UNASKED: "unvalidated",
}


@pytest.fixture(scope="module")
def hits():
    """Every credential that the rules find in the example, by its value."""
    found = {}
    for template in TEMPLATES:
        for _, hit in scan_content(ruleset(), fill_template(template).encode(), Confidence.MEDIUM).hits:
            found[reveal(hit.secret)] = hit
    return found


def test_every_planted_credential_is_found_by_its_rule(hits):
    planted = planted_in(TEMPLATES)
    assert len(planted) >= 40
    companions = {reveal(part) for hit in hits.values() for part in hit.companions.values()}
    for value, item in planted.items():
        assert value in companions or any(
            value in found and hit.rule.id == item.rule for found, hit in hits.items()
        ), item


def test_no_whole_credential_is_in_the_source():
    for module in (repositories, site):
        source = Path(module.__file__).read_bytes()
        assert [hit.rule.id for _, hit in scan_content(ruleset(), source, Confidence.HIGH).hits] == []


def test_the_stand_ins_say_what_was_decided_over_real_tls_and_nobody_else_is_reached(hits, tmp_path):
    planted = planted_in(TEMPLATES)

    async def main():
        async with open_stand_ins(tmp_path / "example", NOW, lambda _: None) as stand_ins:
            given = {
                name.removeprefix("OUTCROP_").lower(): value for name, value in stand_ins.environment.items()
            }
            egress = Egress.from_settings(
                Settings(
                    **{name: value for name, value in given.items() if name.startswith("egress") and value}
                )
            )
            async with open_http(egress) as http:
                validator = Validator(http, ValidationMode.SAFE, requests_per_second=1000)
                parts = {
                    value: {name: reveal(part) for name, part in hit.companions.items()}
                    for value, hit in hits.items()
                }
                asked = [(value, hit) for value, hit in hits.items() if value in planted]
                reported = await asyncio.gather(
                    *(validator.check(hit.rule, value, parts[value]) for value, hit in asked)
                )
                with pytest.raises(HttpError, match="OUTCROP_EGRESS_CONNECT_TO"):
                    await http.get("https://elsewhere.example/")
                served = await http.get("https://www.acme.example/")
        return {value: verdict for (value, _), verdict in zip(asked, reported, strict=True)}, served

    reported, served = asyncio.run(main())
    assert served.headers["Server"] == "stand-in of the Outcrop demo"
    for value, verdict in reported.items():
        assert str(verdict.status) == WANTED[planted[value].fate], (planted[value], verdict)
    assert len(reported) > 35
    key = tmp_path / "example/key.pem"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700


def test_a_stand_in_knows_nothing_but_what_was_planted():
    issuers = Issuers(planted_in(TEMPLATES))
    said = issuers.answer(
        IssuerRequest("api.github.com", "/user", "", {"Authorization": "Bearer somebody's own"}, b"")
    )
    assert (said.status, b"made-up" in said.body) == (401, True)


def test_the_receiver_believes_only_what_is_signed_with_its_secret():
    shown: list[str] = []
    receiver = Receiver(shown.append)
    receiver.secret = "ab" * 32
    event = {
        "event": "finding.new",
        "delivered_at": datetime.now(UTC).isoformat(),
        "finding": {"pattern": {"name": "A key"}},
    }
    body = json.dumps(event).encode()
    headers = sign(body, receiver.secret, id_="1", timestamp=int(datetime.now(UTC).timestamp()))
    assert receiver.receive(body, headers) == 204
    assert receiver.receive(body + b" ", headers) == 401
    assert receiver.verified == {"finding.new": 1}
    assert "A key" in shown[0]
    assert "rejected" in shown[1]


def test_the_report_holds_no_raw_credential():
    lines = earlier_report(NOW).read()
    assert lines.count(b"********") == lines.count(b"\n") == 22
    assert b'"secret"' not in lines
