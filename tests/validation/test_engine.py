"""The limits of a Validator: one request per credential, rate limits, deadlines and issuers that are down."""

import asyncio
import time
from collections.abc import Iterator
from typing import TypeVar

import pytest

from outcrop.domain.finding import Validation
from outcrop.net.guard import Egress
from outcrop.scanner.rules.model import Rule
from outcrop.validation.batch import Credential, check_all
from outcrop.validation.engine import ValidationMode
from outcrop.validation.verdict import Verdict
from tests.support.checks import run_with_validator, write_rule
from tests.support.fake_https import FakeResponse, FakeServer, serve_https

T = TypeVar("T")
OK = FakeResponse(200, {"Content-Type": "application/json"}, b'{"id": 1}')
HANGS = FakeResponse(delay=600)
# Deadlines are tried in this order until the first requests were answered in time, however busy the machine is.
DEADLINES = (0.5, 5, 60)


@pytest.fixture(scope="module")
def fake_issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with serve_https(
        tmp_path_factory.mktemp("issuer"), ("api.acme.example", "api.slow.example"), lambda _: OK
    ) as server:
        yield server


@pytest.fixture(autouse=True)
def _clear_requests(fake_issuer: FakeServer) -> None:
    fake_issuer.requests.clear()
    fake_issuer.respond = lambda _: OK


def test_concurrent_checks_of_the_same_credential_send_one_request(fake_issuer, tmp_path):
    acme = write_rule(tmp_path)

    async def work(validator):
        return await asyncio.gather(*(validator.check(acme, "acme_1", {}) for _ in range(20)))

    verdicts = run_with_validator(fake_issuer.egress, work)
    assert {verdict.status for verdict in verdicts} == {Validation.VALID}
    assert len(fake_issuer.requests) == 1


def test_the_rate_limit_of_an_issuer_is_kept(fake_issuer, tmp_path):
    acme = write_rule(tmp_path)

    async def work(validator):
        start_time = time.monotonic()
        await asyncio.gather(*(validator.check(acme, f"acme_{n}", {}) for n in range(11)))
        return time.monotonic() - start_time

    assert run_with_validator(fake_issuer.egress, work, requests_per_second=20) >= 0.5
    assert len(fake_issuer.requests) == 11


def test_an_issuer_that_hangs_does_not_slow_down_others(fake_issuer, tmp_path):
    acme, slow = write_rule(tmp_path), write_rule(tmp_path, "slow", "https://api.slow.example/me")
    fake_issuer.respond = lambda request: HANGS if request.host == "api.slow.example" else OK

    async def work(validator):
        hanging_checks = [asyncio.create_task(validator.check(slow, f"slow_{n}", {})) for n in range(30)]
        verdicts = await asyncio.gather(*(validator.check(acme, f"acme_{n}", {}) for n in range(10)))
        is_any_done = any(check.done() for check in hanging_checks)
        await validator.close()
        await asyncio.gather(*hanging_checks, return_exceptions=True)
        return is_any_done, {verdict.status for verdict in verdicts}

    assert run_with_validator(fake_issuer.egress, work, requests_per_second=1000, deadline=600) == (
        False,
        {Validation.VALID},
    )


def test_a_check_of_an_issuer_that_hangs_ends_at_the_deadline(fake_issuer, tmp_path):
    acme = write_rule(tmp_path)
    fake_issuer.respond = lambda _: HANGS
    verdict = run_with_validator(
        fake_issuer.egress, lambda validator: validator.check(acme, "acme_1", {}), deadline=0.5
    )
    assert verdict.status is Validation.ERROR


def test_the_check_is_repeated_after_retry_after(fake_issuer, tmp_path):
    acme = write_rule(tmp_path)
    responses = iter([FakeResponse(429, {"Retry-After": "1"}), OK])
    fake_issuer.respond = lambda _: next(responses)

    async def work(validator):
        start_time = time.monotonic()
        verdict = await validator.check(acme, "acme_1", {})
        return verdict.status, time.monotonic() - start_time

    status, seconds = run_with_validator(fake_issuer.egress, work)
    assert status is Validation.VALID
    assert seconds >= 1


SLOW_CAPABILITY = """
[[rule.check.capability]]
labels = ["acme"]
[[rule.check.capability]]
url = "https://api.slow.example/lists"
labels = ["acme_lists"]
"""


def check_until_valid(fake_issuer: FakeServer, rule: Rule) -> Verdict:
    """Check a credential with longer and longer deadlines; return the first valid verdict, or the last one."""
    for deadline in DEADLINES:
        verdict = run_with_validator(
            fake_issuer.egress, lambda validator: validator.check(rule, "acme_1", {}), deadline=deadline
        )
        if verdict.status is Validation.VALID:
            break
    return verdict


def test_a_timeout_during_capabilities_keeps_the_proven_verdict(fake_issuer, tmp_path):
    acme = write_rule(tmp_path, after=SLOW_CAPABILITY)
    fake_issuer.respond = lambda request: HANGS if request.host == "api.slow.example" else OK
    verdict = check_until_valid(fake_issuer, acme)
    assert (verdict.status, verdict.reason, verdict.services, verdict.services_checked) == (
        "valid",
        "accepted",
        ("acme",),
        True,
    )


def test_services_count_as_unchecked_if_no_capability_got_a_response(fake_issuer, tmp_path):
    """Otherwise the score would treat the credential as one without access to anything."""
    acme = write_rule(
        tmp_path, after=SLOW_CAPABILITY.replace('labels = ["acme"]', 'status = [418]\nlabels = ["acme"]')
    )
    for slow in (HANGS, FakeResponse(drop=True)):
        fake_issuer.respond = lambda request, slow=slow: slow if request.host == "api.slow.example" else OK
        verdict = check_until_valid(fake_issuer, acme)
        assert (verdict.status, verdict.services, verdict.services_checked) == ("valid", (), False)


def test_a_retry_after_beyond_the_deadline_is_an_error_at_once(fake_issuer, tmp_path):
    acme = write_rule(tmp_path)
    fake_issuer.respond = lambda _: FakeResponse(429, {"Retry-After": "3000"})
    verdict = run_with_validator(fake_issuer.egress, lambda validator: validator.check(acme, "acme_1", {}))
    assert verdict.status is Validation.ERROR
    assert len(fake_issuer.requests) == 1


@pytest.mark.parametrize(
    ("mode", "settings", "sends_request"),
    [
        (ValidationMode.OFF, "", False),
        (ValidationMode.SAFE, "", True),
        (ValidationMode.SAFE, "billed = true", False),
        (ValidationMode.SAFE, "given_host = true", False),
        (ValidationMode.FULL, "billed = true", True),
        (ValidationMode.FULL, "given_host = true", True),
        (ValidationMode.FULL, 'needs = ["client_id"]', False),
    ],
)
def test_the_mode_decides_whether_a_request_is_sent(fake_issuer, tmp_path, mode, settings, sends_request):
    acme = write_rule(tmp_path, settings=settings)
    verdict = run_with_validator(
        fake_issuer.egress, lambda validator: validator.check(acme, "acme_1", {}), mode
    )
    assert bool(fake_issuer.requests) is sends_request
    assert (verdict.status is Validation.VALID) is sends_request


def test_a_private_address_is_never_connected_to(fake_issuer, tmp_path):
    acme = write_rule(tmp_path, url="https://127.0.0.1/me")
    verdict = run_with_validator(
        Egress(ca_file=fake_issuer.ca), lambda validator: validator.check(acme, "acme_1", {})
    )
    assert verdict.status is Validation.UNREACHABLE
    assert fake_issuer.requests == []


def test_an_untrusted_certificate_means_unreachable(fake_issuer, tmp_path):
    acme = write_rule(tmp_path)
    egress = Egress(fake_issuer.egress.allow, fake_issuer.egress.connect_to)
    assert (
        run_with_validator(egress, lambda validator: validator.check(acme, "acme_1", {})).status
        is Validation.UNREACHABLE
    )


def test_a_body_that_is_too_long_is_truncated(fake_issuer, tmp_path):
    acme = write_rule(tmp_path)
    fake_issuer.respond = lambda _: FakeResponse(
        200, {"Content-Type": "application/json"}, b'{"id": "' + b"x" * (4 << 20)
    )
    assert (
        run_with_validator(fake_issuer.egress, lambda validator: validator.check(acme, "acme_1", {})).status
        is Validation.ERROR
    )


@pytest.mark.parametrize("value", ["acme\r\nX-Evil: 1", "acme\n", "acme\0", "schlüssel", " acme", ""])
def test_a_value_cannot_add_a_header(fake_issuer, tmp_path, value):
    acme = write_rule(tmp_path)
    verdict = run_with_validator(fake_issuer.egress, lambda validator: validator.check(acme, value, {}))
    assert verdict.status is Validation.UNVALIDATED
    assert fake_issuer.requests == []


def test_reason_and_logs_do_not_contain_the_credential(fake_issuer, tmp_path, caplog):
    acme = write_rule(tmp_path, url="https://api.acme.example/{secret}")
    fake_issuer.respond = lambda _: FakeResponse(drop=True)
    verdict = run_with_validator(
        fake_issuer.egress, lambda validator: validator.check(acme, "acme_0123456789abcdef", {})
    )
    assert "0123456789abcdef" not in verdict.reason + caplog.text


def test_retry_after_delays_requests_that_already_wait(fake_issuer, tmp_path):
    acme = write_rule(tmp_path)
    times: list[float] = []

    def respond(_: object) -> FakeResponse:
        times.append(time.monotonic())
        return FakeResponse(429, {"Retry-After": "1"}) if len(times) == 1 else OK

    fake_issuer.respond = respond
    statuses = run_with_validator(
        fake_issuer.egress,
        lambda validator: asyncio.gather(*(validator.check(acme, f"acme_{n}", {}) for n in range(4))),
        requests_per_second=4,  # slow enough that the first response arrives before the second request
    )
    assert {verdict.status for verdict in statuses} == {Validation.VALID}
    assert times[1] - times[0] >= 1


def test_a_delayed_request_is_not_followed_by_a_burst(fake_issuer, tmp_path):
    """The limit holds for any second, as the issuer counts it, even after this process was blocked."""
    acme = write_rule(tmp_path)
    times: list[float] = []

    def respond(_: object) -> FakeResponse:
        times.append(time.monotonic())
        return OK

    fake_issuer.respond = respond

    async def work(validator):
        checks = asyncio.gather(*(validator.check(acme, f"acme_{n}", {}) for n in range(30)))
        await asyncio.sleep(0.3)
        time.sleep(0.5)  # noqa: ASYNC251 - blocks the whole process
        await checks

    run_with_validator(fake_issuer.egress, work, requests_per_second=20)
    assert len(times) == 30
    assert max(sum(1 for time_ in times if start <= time_ < start + 1) for start in times) <= 20


def test_an_issuer_that_does_not_respond_gets_no_more_requests(fake_issuer, tmp_path):
    acme, other = write_rule(tmp_path), write_rule(tmp_path, "slow", "https://api.slow.example/me")
    fake_issuer.respond = lambda request: (
        FakeResponse(drop=True) if request.host == "api.acme.example" else OK
    )

    async def work(validator):
        unreachable = [await validator.check(acme, f"acme_{n}", {}) for n in range(20)]
        return unreachable, await validator.check(other, "slow_1", {})

    unreachable, answered = run_with_validator(fake_issuer.egress, work, requests_per_second=1000)
    assert {verdict.status for verdict in unreachable} == {Validation.UNREACHABLE}
    assert "the last requests all failed" in unreachable[-1].reason
    assert answered.status is Validation.VALID
    assert len([request for request in fake_issuer.requests if request.host == "api.acme.example"]) <= 10, (
        "aiohttp retries once on a closed connection"
    )


def test_an_error_response_does_not_stop_requests(fake_issuer, tmp_path):
    acme = write_rule(tmp_path)
    fake_issuer.respond = lambda _: FakeResponse(500)

    async def work(validator):
        return [await validator.check(acme, f"acme_{n}", {}) for n in range(8)]

    assert {
        verdict.status for verdict in run_with_validator(fake_issuer.egress, work, requests_per_second=1000)
    } == {Validation.ERROR}
    assert len(fake_issuer.requests) == 8


def test_a_failing_host_from_the_text_does_not_block_other_hosts(fake_issuer, tmp_path):
    acme = write_rule(tmp_path, url="https://{part.host}/me", settings='given_host = true\nneeds = ["host"]')
    fake_issuer.respond = lambda request: (
        FakeResponse(drop=True) if request.host == "api.acme.example" else OK
    )

    async def work(validator):
        for n in range(8):
            await validator.check(acme, f"acme_{n}", {"host": "api.acme.example"})
        return await validator.check(acme, "acme_x", {"host": "api.slow.example"})

    assert (
        run_with_validator(fake_issuer.egress, work, ValidationMode.FULL, requests_per_second=1000).status
        is Validation.VALID
    )


def test_a_later_check_asks_the_issuer_again(fake_issuer, tmp_path):
    acme = write_rule(tmp_path)

    async def work(validator):
        first = await validator.check(acme, "acme_1", {})
        fake_issuer.respond = lambda _: FakeResponse(401)
        return first.status, (await validator.check(acme, "acme_1", {})).status

    assert run_with_validator(fake_issuer.egress, work) == (Validation.VALID, Validation.INVALID)


def test_many_credentials_of_one_issuer_do_not_time_out_waiting_for_each_other(fake_issuer, tmp_path):
    acme = write_rule(tmp_path)
    expected = dict.fromkeys(range(60), Validation.VALID)
    for deadline in DEADLINES:
        verdicts: dict[int, Validation] = {}

        async def work(validator, verdicts=verdicts):
            credentials = [Credential(acme, f"acme_{n}", {}) for n in range(60)]
            await check_all(
                validator, credentials, lambda index, verdict: verdicts.setdefault(index, verdict.status)
            )

        # All of them together take more than twice the deadline.
        run_with_validator(fake_issuer.egress, work, requests_per_second=25 / deadline, deadline=deadline)
        if verdicts == expected:
            break
    assert verdicts == expected


def test_close_cancels_checks_whose_callers_are_gone(fake_issuer, tmp_path):
    """A worker that is stopping must not leave checks that fail on a closed client."""
    acme = write_rule(tmp_path)
    fake_issuer.respond = lambda _: FakeResponse(delay=2)
    errors = []

    async def work(validator):
        asyncio.get_running_loop().set_exception_handler(lambda _, about: errors.append(about["message"]))
        waiting_check = asyncio.create_task(validator.check(acme, "acme_1", {}))
        while not fake_issuer.requests:  # noqa: ASYNC110 - the server runs in another thread
            await asyncio.sleep(0.01)
        waiting_check.cancel()
        await asyncio.gather(waiting_check, return_exceptions=True)
        (request,) = validator._running.values()
        await validator.close()
        assert validator._running == {}
        return request.cancelled()

    assert run_with_validator(fake_issuer.egress, work)
    assert errors == []
