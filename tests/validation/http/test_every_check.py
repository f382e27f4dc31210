"""Send every recorded reply of every rule file over TLS and compare the verdicts.

A new check needs no other test.
"""

import asyncio
import re
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from outcrop.net.guard import Egress
from outcrop.net.http import HttpResponse, open_http
from outcrop.scanner.rules.check_spec import CheckSpec, RecordedReply, RequestSpec, choose_check, load_checks
from outcrop.scanner.rules.example_templates import expand_template, split_marked_values
from outcrop.scanner.rules.model import Rule
from outcrop.validation.engine import ValidationMode, Validator
from outcrop.validation.http.request import fill_request
from outcrop.validation.http.response import judge
from outcrop.validation.verdict import Verdict
from tests.support.fake_https import FakeResponse, FakeServer, ReceivedRequest, serve_https
from tests.support.rulesets import ruleset

RunCheck = Callable[[Rule, CheckSpec], Verdict]
CHECKS: dict[str, tuple[Rule, CheckSpec]] = {
    f"{rule.id}-{check.only}" if check.only else rule.id: (rule, check)
    for rule in ruleset().rules
    for check in load_checks(rule.id, rule.origin)
    if check.url
}
REPLIES = [
    pytest.param(rule, check, reply, id=f"{name}-{reply.name}")
    for name, (rule, check) in CHECKS.items()
    for reply in check.reply
]


def secret_of(rule: Rule, check: CheckSpec) -> str:
    """Return the first credential in the rule's examples that has the form of this check."""
    checks = load_checks(rule.id, rule.origin)
    marks = (
        secret
        for example in rule.examples
        for secret in split_marked_values(expand_template(example, rule.id))[1]
    )
    return next(secret for secret in marks if choose_check(checks, secret) is check)


def companions_of(check: CheckSpec) -> dict[str, str]:
    """Return made-up companions of a check; one that is the host of the URL is a host name."""
    names = set(re.findall(r"\{part\.([a-z0-9_]+)", check.model_dump_json()))
    host = re.match(r"https://\{part\.([a-z0-9_]+)\}(?:[/:]|$)", check.url) if check.hosts else None
    companions = {name: f"{name.replace('_', '-')}-1" for name in names | set(check.needs)}
    return companions | ({host[1]: f"acme.{check.hosts[0]}"} if host else {})


def all_hosts() -> tuple[str, ...]:
    """Return all hosts that the requests of the checks go to."""
    found = set()
    for rule, check in CHECKS.values():
        values = {"secret": secret_of(rule, check)} | {
            f"part.{name}": value for name, value in companions_of(check).items()
        }
        for url in (check.url, *(capability.url for capability in check.capability)):
            found.add(urlsplit(fill_request(RequestSpec(url=url), values).url).hostname if url else None)
    return tuple(sorted(host for host in found if host))


@pytest.fixture(scope="module")
def fake_issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with serve_https(tmp_path_factory.mktemp("issuer"), all_hosts(), lambda _: FakeResponse()) as server:
        yield server


@pytest.fixture(scope="module")
def run_check(fake_issuer: FakeServer) -> Iterator[RunCheck]:
    """Yield a function that runs a check. All share one client to save TLS handshakes."""
    with asyncio.Runner() as runner:
        client = open_http(fake_issuer.egress)
        http = runner.run(client.__aenter__())

        def run(rule: Rule, check: CheckSpec) -> Verdict:
            validator = Validator(http, ValidationMode.FULL, requests_per_second=10_000, deadline=3)
            return runner.run(validator.check(rule, secret_of(rule, check), companions_of(check)))

        yield run
        runner.run(client.__aexit__(None, None, None))


def respond_with(check: CheckSpec, reply: RecordedReply) -> object:
    """Return a function that sends a recorded reply to the check, and `reply.further` to other paths."""
    check_path = urlsplit(check.url).path or "/"

    def respond(request: ReceivedRequest) -> FakeResponse:
        if request.path in reply.further:
            status, body = reply.further[request.path]
            return FakeResponse(status, {"Content-Type": "application/json"}, body.encode())
        if "{" not in check_path and request.path != check_path:
            return FakeResponse(403, {"Content-Type": "application/json"}, b"{}")
        return FakeResponse(reply.status, reply.headers, reply.body.encode())

    return respond


@pytest.mark.parametrize(("rule", "check", "reply"), REPLIES)
def test_a_recorded_reply_has_the_verdict_that_the_rule_records(fake_issuer, run_check, rule, check, reply):
    fake_issuer.respond = respond_with(check, reply)
    verdict = run_check(rule, check)
    assert (str(verdict.status), sorted(verdict.services)) == (reply.result, sorted(reply.labels)), (
        verdict.reason
    )
    assert verdict.test_mode or not reply.test_mode
    assert reply.confidence is None or str(verdict.confidence) == reply.confidence
    assert secret_of(rule, check) not in verdict.reason


def test_every_check_has_recorded_replies_for_valid_and_invalid_credentials():
    assert [
        name
        for name, (_, check) in CHECKS.items()
        if not {"valid", "invalid"} <= {reply.result for reply in check.reply}
    ] == []


MEANINGLESS = {
    "rate limit": FakeResponse(429, {"Retry-After": "99999"}, b"slow down"),
    "server error": FakeResponse(500, {}, b"oops"),
    "unavailable": FakeResponse(503, {"Content-Type": "text/html"}, b"<html>"),
    "redirect": FakeResponse(302, {"Location": "https://elsewhere.example/"}, b""),
    "captive portal": FakeResponse(
        200, {"Content-Type": "text/html"}, b"<html><title>Welcome to the hotel</title></html>"
    ),
    "garbage": FakeResponse(418, {"Content-Type": "application/json"}, b'{"a": [1, 2'),
    "dropped": FakeResponse(drop=True),
}


def test_no_check_takes_a_meaningless_response_for_a_verdict():
    statuses = {
        (name, kind): str(
            judge(
                HttpResponse(check.url, response.status, response.headers, response.body), check.answer
            ).status
        )
        for name, (_, check) in CHECKS.items()
        for kind, response in MEANINGLESS.items()
        if not response.drop
    }
    assert len(statuses) == len(CHECKS) * (len(MEANINGLESS) - 1)
    assert {key: status for key, status in statuses.items() if status != "error"} == {}


# The rule makes no difference here, so a few checks are enough over the network.
@pytest.mark.parametrize(("rule", "check"), list(CHECKS.values())[::40])
def test_a_meaningless_response_over_the_network_is_an_error(fake_issuer, run_check, rule, check):
    statuses = {}
    for name, response in MEANINGLESS.items():
        fake_issuer.respond = lambda _, response=response: response
        statuses[name] = str(run_check(rule, check).status)
    assert statuses == dict.fromkeys(MEANINGLESS, "error") | {"dropped": "unreachable"}


# Few enough that a busy machine completes the TLS handshakes in time.
SAMPLE = dict(list(CHECKS.items())[::24])


def run_all_at_once(egress: Egress, deadline: float) -> dict[str, str]:
    """Run many checks at once and return their statuses by name."""

    async def main() -> list[Verdict]:
        async with open_http(egress, connections=500) as http:
            validator = Validator(http, ValidationMode.FULL, requests_per_second=10_000, deadline=deadline)
            checks = SAMPLE.values()
            return await asyncio.gather(
                *(
                    validator.check(rule, secret_of(rule, check), companions_of(check))
                    for rule, check in checks
                )
            )

    return {name: str(verdict.status) for name, verdict in zip(SAMPLE, asyncio.run(main()), strict=True)}


def test_an_issuer_that_hangs_is_an_error(fake_issuer):
    fake_issuer.respond = lambda _: FakeResponse(delay=5)
    assert run_all_at_once(fake_issuer.egress, deadline=3) == dict.fromkeys(SAMPLE, "error")


def test_an_untrusted_certificate_means_unreachable_for_all_checks(fake_issuer):
    fake_issuer.respond = lambda _: FakeResponse()
    fake_issuer.requests.clear()
    untrusting = Egress(fake_issuer.egress.allow, fake_issuer.egress.connect_to)
    assert run_all_at_once(untrusting, deadline=60) == dict.fromkeys(SAMPLE, "unreachable")
    assert fake_issuer.requests == [], "no request was sent"


def test_every_rule_has_a_check_or_a_reason_why_not():
    without_check = [rule.id for rule in ruleset().rules if not load_checks(rule.id, rule.origin)]
    assert without_check == []
