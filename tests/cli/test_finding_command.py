"""`outcrop finding` and `outcrop validate --finding`, on a database of their own."""

import json
from uuid import uuid4

import pytest

from tests.support.factories import make_line
from tests.support.fake_https import FakeResponse, serve_https
from tests.support.rulesets import cached_in, github_token


@pytest.fixture
def finding(outcrop, tmp_path) -> str:
    """Import a finding with its credential; no rule is known for it."""
    outcrop("account", "create", "acme", "--plan", "growth", "--email", "a@acme.example")
    line = make_line(secret="ghp_" + "x" * 36, composite_score=64)
    (tmp_path / "lines.jsonl").write_text(json.dumps(line))
    assert outcrop("import", "--account", "acme", "lines.jsonl").code == 0
    return str(line["id"])


def test_a_finding_is_shown_with_the_reasons_of_its_score(outcrop, finding):
    shown = outcrop("finding", "--account", "acme", finding, "--json").json
    assert (shown["id"], shown["composite_score"], shown["validation_status"]) == (finding, 64, "valid")
    assert shown["first_seen_at"] == "2026-01-02T03:04:05+00:00"
    (reason,) = shown["score"]
    assert reason == {
        "name": "imported",
        "points": 64,
        "most": 100,
        "sentence": "the score was imported, and no scan has computed another",
    }
    table = outcrop("finding", "--account", "acme", finding).out
    assert "composite_score" in table
    assert table.splitlines()[-1].split() == ["64", "100", "imported", *reason["sentence"].split()]


def test_a_finding_that_is_not_there(outcrop, finding):
    for arguments, message in (
        (("finding", "--account", "acme", str(uuid4())), "outcrop: no such finding\n"),
        (("finding", "--account", "acme", "7"), "outcrop: '7' is not the id of a finding\n"),
        (("finding", "--account", "none", finding), "outcrop: there is no account 'none'\n"),
        (("validate", "--account", "acme", "--finding", str(uuid4())), "outcrop: no such finding\n"),
        (("validate", "--account", "acme", "--finding", "7"), "outcrop: '7' is not the id of a finding\n"),
        (
            ("validate", "--account", "acme", "--finding", finding),
            "outcrop: no rule says how to validate its credential\n",
        ),
    ):
        ran = outcrop(*arguments, OUTCROP_VALIDATE="safe")
        assert (ran.code, ran.out, ran.err) == (2, "", message)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--finding", "x"),
        ("--account", "acme"),
        ("--type", "a", "--finding", "b", "--account", "c"),
        ("--type", "a", "--account", "c"),
    ],
)
def test_either_a_type_or_a_finding_is_given(outcrop, arguments):
    ran = outcrop("validate", *arguments)
    assert (ran.code, "give --type" in ran.err) == (2, True)


def test_switched_off_nothing_is_asked_and_that_is_reported(outcrop, finding):
    ran = outcrop("validate", "--account", "acme", "--finding", finding, OUTCROP_VALIDATE="off")
    assert (ran.code, ran.err) == (2, "outcrop: validation is switched off: OUTCROP_VALIDATE=off\n")


def test_from_a_run_to_another_verdict(outcrop, tmp_path):
    """A run validates a credential, and the command explains the score.

    Then the credential is revoked, and the next validation reports that.
    """
    alive = FakeResponse(
        200, {"Content-Type": "application/json", "X-OAuth-Scopes": "admin:org"}, b'{"login": "octo"}'
    )
    (folder := tmp_path / "shop").mkdir()
    (folder / "a.py").write_text(f"x = '{github_token('command')}'\n")
    (certificates := tmp_path / "issuer").mkdir()
    with serve_https(certificates, ("api.github.com",), lambda _: alive) as stand_in:
        settings = {
            "OUTCROP_VALIDATE": "safe",
            "OUTCROP_EGRESS_CONNECT_TO": f"api.github.com:443=127.0.0.1:{stand_in.port}",
            "OUTCROP_EGRESS_CA_FILE": str(stand_in.ca),
            "XDG_CACHE_HOME": str(cached_in(tmp_path / "cache")),
        }
        outcrop("account", "create", "acme", "--plan", "growth", "--email", "a@acme.example")
        assert (
            outcrop("scan", "--account", "acme", "--jobs", "1", str(folder), "--json", **settings).json[
                "findings_new"
            ]
            == 1
        )
        (new,) = [
            line
            for line in outcrop("audit", "--account", "acme", "--json").json
            if line["action"] == "finding.new"
        ]
        shown = outcrop("finding", "--account", "acme", new["target"], "--json").json
        assert sum(reason["points"] for reason in shown["score"]) == shown["composite_score"]
        assert shown["score"][0] == {
            "name": "liveness",
            "points": 40,
            "most": 40,
            "sentence": "valid: GitHub accepts the token",
        }
        assert shown["score"][2]["sentence"] == "it opens github_admin_org"
        stand_in.respond = lambda _: FakeResponse(
            401, {"Content-Type": "application/json"}, b'{"message": "Bad credentials"}'
        )
        second = outcrop(
            "validate", "--account", "acme", "--finding", new["target"], "--json", **settings
        ).json
    assert (
        second["validation_status"],
        second["validation_confidence"],
        second["composite_score"] <= 15,
    ) == (
        "invalid",
        "high",
        True,
    )
    actions = [
        (line["actor"], line["action"]) for line in outcrop("audit", "--account", "acme", "--json").json
    ]
    assert actions[-2:] == [("operator", "finding.revalidate"), ("operator", "finding.validate")]
