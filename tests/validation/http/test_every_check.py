"""Every recorded reply of every rule file, played by a stand-in over real TLS: the one test that a new check needs."""

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

Ask = Callable[[Rule, CheckSpec], Verdict]
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
    """Give a credential of a rule, of the form that the check is for: the first such that its examples mark."""
    checks = load_checks(rule.id, rule.origin)
    marks = (
        secret
        for example in rule.examples
        for secret in split_marked_values(expand_template(example, rule.id))[1]
    )
    return next(secret for secret in marks if choose_check(checks, secret) is check)


def parts_of(check: CheckSpec) -> dict[str, str]:
    """Make up companions; one that stands in the host is a host's name."""
    named = set(re.findall(r"\{part\.([a-z0-9_]+)", check.model_dump_json()))
    host = re.match(r"https://\{part\.([a-z0-9_]+)\}(?:[/:]|$)", check.url) if check.hosts else None
    made = {name: f"{name.replace('_', '-')}-1" for name in named | set(check.needs)}
    return made | ({host[1]: f"acme.{check.hosts[0]}"} if host else {})


def hosts() -> tuple[str, ...]:
    """Give every host that the checks ask, as their requests name them."""
    found = set()
    for rule, check in CHECKS.values():
        values = {"secret": secret_of(rule, check)} | {
            f"part.{name}": value for name, value in parts_of(check).items()
        }
        for url in (check.url, *(one.url for one in check.capability)):
            found.add(urlsplit(fill_request(RequestSpec(url=url), values).url).hostname if url else None)
    return tuple(sorted(host for host in found if host))


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with serve_https(tmp_path_factory.mktemp("issuer"), hosts(), lambda _: FakeResponse()) as running:
        yield running


@pytest.fixture(scope="module")
def ask(stand_in: FakeServer) -> Iterator[Ask]:
    """One client for all: a new one for each check would spend its time on TLS."""
    with asyncio.Runner() as runner:
        opened = open_http(stand_in.egress)
        http = runner.run(opened.__aenter__())

        def checked(rule: Rule, check: CheckSpec) -> Verdict:
            validator = Validator(http, ValidationMode.FULL, requests_per_second=10_000, deadline=3)
            return runner.run(validator.check(rule, secret_of(rule, check), parts_of(check)))

        yield checked
        runner.run(opened.__aexit__(None, None, None))


def play(check: CheckSpec, reply: RecordedReply) -> object:
    first = urlsplit(check.url).path or "/"

    def respond(asked: ReceivedRequest) -> FakeResponse:
        if asked.path in reply.further:
            status, body = reply.further[asked.path]
            return FakeResponse(status, {"Content-Type": "application/json"}, body.encode())
        if "{" not in first and asked.path != first:
            return FakeResponse(403, {"Content-Type": "application/json"}, b"{}")
        return FakeResponse(reply.status, reply.headers, reply.body.encode())

    return respond


@pytest.mark.parametrize(("rule", "check", "reply"), REPLIES)
def test_reply_means_what_the_rule_says(stand_in, ask, rule, check, reply):
    stand_in.respond = play(check, reply)
    verdict = ask(rule, check)
    assert (str(verdict.status), sorted(verdict.services)) == (reply.result, sorted(reply.labels)), (
        verdict.reason
    )
    assert verdict.test_mode or not reply.test_mode
    assert reply.confidence is None or str(verdict.confidence) == reply.confidence
    assert secret_of(rule, check) not in verdict.reason


def test_every_check_has_recorded_an_answer_to_a_live_credential_and_one_to_a_dead_one():
    assert [
        name
        for name, (_, check) in CHECKS.items()
        if not {"valid", "invalid"} <= {reply.result for reply in check.reply}
    ] == []


NOTHING_SAID = {
    "limited": FakeResponse(429, {"Retry-After": "99999"}, b"slow down"),
    "fault": FakeResponse(500, {}, b"oops"),
    "unavailable": FakeResponse(503, {"Content-Type": "text/html"}, b"<html>"),
    "redirect": FakeResponse(302, {"Location": "https://elsewhere.example/"}, b""),
    "portal": FakeResponse(
        200, {"Content-Type": "text/html"}, b"<html><title>Welcome to the hotel</title></html>"
    ),
    "garbage": FakeResponse(418, {"Content-Type": "application/json"}, b'{"a": [1, 2'),
    "cut off": FakeResponse(drop=True),
}


def test_an_answer_that_says_nothing_is_no_verdict_of_any_check():
    said = {
        (name, what): str(
            judge(HttpResponse(check.url, told.status, told.headers, told.body), check.answer).status
        )
        for name, (_, check) in CHECKS.items()
        for what, told in NOTHING_SAID.items()
        if not told.drop
    }
    assert len(said) == len(CHECKS) * (len(NOTHING_SAID) - 1)
    assert {one: status for one, status in said.items() if status != "error"} == {}


# What no rule can change is tried over the network with a few.
@pytest.mark.parametrize(("rule", "check"), list(CHECKS.values())[::40])
def test_no_verdict_comes_over_the_network_either(stand_in, ask, rule, check):
    told = {}
    for name, answer in NOTHING_SAID.items():
        stand_in.respond = lambda _, answer=answer: answer
        told[name] = str(ask(rule, check).status)
    assert told == dict.fromkeys(NOTHING_SAID, "error") | {"cut off": "unreachable"}


SOME = dict(
    list(CHECKS.items())[::24]
)  # more handshakes than a busy machine does in time would say nothing of an issuer that hangs


def all_at_once(egress: Egress, deadline: float) -> dict[str, str]:
    """Ask about credentials of many checks at the same time."""

    async def main() -> list[Verdict]:
        async with open_http(egress, connections=500) as http:
            validator = Validator(http, ValidationMode.FULL, requests_per_second=10_000, deadline=deadline)
            checks = SOME.values()
            return await asyncio.gather(
                *(validator.check(rule, secret_of(rule, check), parts_of(check)) for rule, check in checks)
            )

    return {name: str(verdict.status) for name, verdict in zip(SOME, asyncio.run(main()), strict=True)}


def test_an_issuer_that_hangs_is_no_verdict(stand_in):
    stand_in.respond = lambda _: FakeResponse(delay=5)
    assert all_at_once(stand_in.egress, deadline=3) == dict.fromkeys(SOME, "error")


def test_a_certificate_that_nobody_vouches_for_is_unreachable(stand_in):
    stand_in.respond = lambda _: FakeResponse()
    stand_in.requests.clear()
    untrusting = Egress(stand_in.egress.allow, stand_in.egress.connect_to)
    assert all_at_once(untrusting, deadline=60) == dict.fromkeys(SOME, "unreachable")
    assert stand_in.requests == [], "nothing was said to it"


def test_every_rule_asks_or_says_why_not():
    silent = [rule.id for rule in ruleset().rules if not load_checks(rule.id, rule.origin)]
    assert silent == []
