"""Many checks at once: each credential once, no issuer oftener than it may be, one that is down slows nobody else."""

import asyncio
import time
from collections.abc import Iterator
from typing import TypeVar

import pytest

from outcrop.domain.finding import Validation
from outcrop.net.guard import Egress
from outcrop.validation.batch import Credential, check_all
from outcrop.validation.engine import ValidationMode
from tests.support.checks import run_with_validator, write_rule
from tests.support.fake_https import FakeResponse, FakeServer, serve_https

T = TypeVar("T")
OK = FakeResponse(200, {"Content-Type": "application/json"}, b'{"id": 1}')


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with serve_https(
        tmp_path_factory.mktemp("issuer"), ("api.acme.example", "api.slow.example"), lambda _: OK
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def _fresh(stand_in: FakeServer) -> None:
    stand_in.requests.clear()
    stand_in.respond = lambda _: OK


def test_the_same_credential_is_asked_about_once(stand_in, tmp_path):
    acme = write_rule(tmp_path)

    async def work(validator):
        return await asyncio.gather(*(validator.check(acme, "acme_1", {}) for _ in range(20)))

    verdicts = run_with_validator(stand_in.egress, work)
    assert {verdict.status for verdict in verdicts} == {Validation.VALID}
    assert len(stand_in.requests) == 1


def test_an_issuer_is_not_asked_oftener_than_it_may_be(stand_in, tmp_path):
    acme = write_rule(tmp_path)

    async def work(validator):
        began = time.monotonic()
        await asyncio.gather(*(validator.check(acme, f"acme_{n}", {}) for n in range(11)))
        return time.monotonic() - began

    assert run_with_validator(stand_in.egress, work, requests_per_second=20) >= 0.5
    assert len(stand_in.requests) == 11


def test_an_issuer_that_hangs_slows_no_other(stand_in, tmp_path):
    acme, slow = write_rule(tmp_path), write_rule(tmp_path, "slow", "https://api.slow.example/me")
    stand_in.respond = lambda asked: FakeResponse(delay=5) if asked.host == "api.slow.example" else OK

    async def work(validator):
        hanging = [asyncio.create_task(validator.check(slow, f"slow_{n}", {})) for n in range(30)]
        began = time.monotonic()
        await asyncio.gather(*(validator.check(acme, f"acme_{n}", {}) for n in range(10)))
        took = time.monotonic() - began
        return took, [str(verdict.status) for verdict in await asyncio.gather(*hanging)]

    took, statuses = run_with_validator(stand_in.egress, work, requests_per_second=1000, deadline=1.5)
    assert took < 1
    assert set(statuses) == {"error"}


def test_retry_after_is_waited_for_and_then_asked_once_more(stand_in, tmp_path):
    acme = write_rule(tmp_path)
    answers = iter([FakeResponse(429, {"Retry-After": "1"}), OK])
    stand_in.respond = lambda _: next(answers)

    async def work(validator):
        began = time.monotonic()
        verdict = await validator.check(acme, "acme_1", {})
        return verdict.status, time.monotonic() - began

    status, took = run_with_validator(stand_in.egress, work)
    assert status is Validation.VALID
    assert took >= 1


SLOW_CAPABILITY = """
[[rule.check.capability]]
labels = ["acme"]
[[rule.check.capability]]
url = "https://api.slow.example/lists"
labels = ["acme_lists"]
"""


def test_time_that_runs_out_over_capabilities_takes_nothing_from_what_was_proven(stand_in, tmp_path):
    acme = write_rule(tmp_path, after=SLOW_CAPABILITY)
    stand_in.respond = lambda asked: FakeResponse(delay=5) if asked.host == "api.slow.example" else OK
    verdict = run_with_validator(
        stand_in.egress, lambda validator: validator.check(acme, "acme_1", {}), deadline=0.5
    )
    assert (verdict.status, verdict.reason, verdict.services, verdict.services_checked) == (
        "valid",
        "accepted",
        ("acme",),
        True,
    )


def test_capabilities_that_nobody_answered_count_as_not_asked(stand_in, tmp_path):
    """Else the score would take a credential for one that opens nothing."""
    acme = write_rule(
        tmp_path, after=SLOW_CAPABILITY.replace('labels = ["acme"]', 'status = [418]\nlabels = ["acme"]')
    )
    for slow in (FakeResponse(delay=5), FakeResponse(drop=True)):
        stand_in.respond = lambda asked, slow=slow: slow if asked.host == "api.slow.example" else OK
        verdict = run_with_validator(
            stand_in.egress, lambda validator: validator.check(acme, "acme_1", {}), deadline=0.5
        )
        assert (verdict.status, verdict.services, verdict.services_checked) == ("valid", (), False)


def test_a_pause_that_is_too_long_is_told_and_not_waited_for(stand_in, tmp_path):
    acme = write_rule(tmp_path)
    stand_in.respond = lambda _: FakeResponse(429, {"Retry-After": "3000"})
    verdict = run_with_validator(stand_in.egress, lambda validator: validator.check(acme, "acme_1", {}))
    assert verdict.status is Validation.ERROR
    assert len(stand_in.requests) == 1


@pytest.mark.parametrize(
    ("mode", "more", "asked"),
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
def test_what_is_asked_depends_on_the_mode(stand_in, tmp_path, mode, more, asked):
    acme = write_rule(tmp_path, settings=more)
    verdict = run_with_validator(stand_in.egress, lambda validator: validator.check(acme, "acme_1", {}), mode)
    assert bool(stand_in.requests) is asked
    assert (verdict.status is Validation.VALID) is asked


def test_a_private_address_is_never_connected_to(stand_in, tmp_path):
    acme = write_rule(tmp_path, url="https://127.0.0.1/me")
    verdict = run_with_validator(
        Egress(ca_file=stand_in.ca), lambda validator: validator.check(acme, "acme_1", {})
    )
    assert verdict.status is Validation.UNREACHABLE
    assert stand_in.requests == []


def test_a_certificate_that_does_not_fit_is_unreachable(stand_in, tmp_path):
    acme = write_rule(tmp_path)
    egress = Egress(stand_in.egress.allow, stand_in.egress.connect_to)
    assert (
        run_with_validator(egress, lambda validator: validator.check(acme, "acme_1", {})).status
        is Validation.UNREACHABLE
    )


def test_an_endless_body_is_cut(stand_in, tmp_path):
    acme = write_rule(tmp_path)
    stand_in.respond = lambda _: FakeResponse(
        200, {"Content-Type": "application/json"}, b'{"id": "' + b"x" * (4 << 20)
    )
    assert (
        run_with_validator(stand_in.egress, lambda validator: validator.check(acme, "acme_1", {})).status
        is Validation.ERROR
    )


@pytest.mark.parametrize("value", ["acme\r\nX-Evil: 1", "acme\n", "acme\0", "schlüssel", " acme", ""])
def test_a_value_never_splits_a_header(stand_in, tmp_path, value):
    acme = write_rule(tmp_path)
    verdict = run_with_validator(stand_in.egress, lambda validator: validator.check(acme, value, {}))
    assert verdict.status is Validation.UNVALIDATED
    assert stand_in.requests == []


def test_the_credential_is_in_no_reason_and_no_error(stand_in, tmp_path, caplog):
    acme = write_rule(tmp_path, url="https://api.acme.example/{secret}")
    stand_in.respond = lambda _: FakeResponse(drop=True)
    verdict = run_with_validator(
        stand_in.egress, lambda validator: validator.check(acme, "acme_0123456789abcdef", {})
    )
    assert "0123456789abcdef" not in verdict.reason + caplog.text


def test_a_pause_holds_for_those_who_wait_already(stand_in, tmp_path):
    acme = write_rule(tmp_path)
    times: list[float] = []

    def respond(_: object) -> FakeResponse:
        times.append(time.monotonic())
        return FakeResponse(429, {"Retry-After": "1"}) if len(times) == 1 else OK

    stand_in.respond = respond
    statuses = run_with_validator(
        stand_in.egress,
        lambda validator: asyncio.gather(*(validator.check(acme, f"acme_{n}", {}) for n in range(4))),
        requests_per_second=4,  # slow enough for the first answer to come before the second request
    )
    assert {verdict.status for verdict in statuses} == {Validation.VALID}
    assert times[1] - times[0] >= 1


def test_a_late_request_is_not_made_up_for(stand_in, tmp_path):
    """The most requests in any second, as the issuer counts them, even where this process was busy for a while."""
    acme = write_rule(tmp_path)
    times: list[float] = []

    def respond(_: object) -> FakeResponse:
        times.append(time.monotonic())
        return OK

    stand_in.respond = respond

    async def work(validator):
        checks = asyncio.gather(*(validator.check(acme, f"acme_{n}", {}) for n in range(30)))
        await asyncio.sleep(0.3)
        time.sleep(0.5)  # noqa: ASYNC251 - the whole process is busy
        await checks

    run_with_validator(stand_in.egress, work, requests_per_second=20)
    assert len(times) == 30
    assert max(sum(1 for one in times if at <= one < at + 1) for at in times) <= 20


def test_a_silent_issuer_is_left_alone(stand_in, tmp_path):
    acme, other = write_rule(tmp_path), write_rule(tmp_path, "slow", "https://api.slow.example/me")
    stand_in.respond = lambda asked: FakeResponse(drop=True) if asked.host == "api.acme.example" else OK

    async def work(validator):
        silent = [await validator.check(acme, f"acme_{n}", {}) for n in range(20)]
        return silent, await validator.check(other, "slow_1", {})

    silent, answered = run_with_validator(stand_in.egress, work, requests_per_second=1000)
    assert {verdict.status for verdict in silent} == {Validation.UNREACHABLE}
    assert "the last requests all failed" in silent[-1].reason
    assert answered.status is Validation.VALID
    assert len([asked for asked in stand_in.requests if asked.host == "api.acme.example"]) <= 10, (
        "aiohttp tries a closed connection twice"
    )


def test_an_answer_of_any_kind_is_no_silence(stand_in, tmp_path):
    acme = write_rule(tmp_path)
    stand_in.respond = lambda _: FakeResponse(500)

    async def work(validator):
        return [await validator.check(acme, f"acme_{n}", {}) for n in range(8)]

    assert {
        verdict.status for verdict in run_with_validator(stand_in.egress, work, requests_per_second=1000)
    } == {Validation.ERROR}
    assert len(stand_in.requests) == 8


def test_the_silence_of_a_given_host_is_not_that_of_another(stand_in, tmp_path):
    acme = write_rule(tmp_path, url="https://{part.host}/me", settings='given_host = true\nneeds = ["host"]')
    stand_in.respond = lambda asked: FakeResponse(drop=True) if asked.host == "api.acme.example" else OK

    async def work(validator):
        for n in range(8):
            await validator.check(acme, f"acme_{n}", {"host": "api.acme.example"})
        return await validator.check(acme, "acme_x", {"host": "api.slow.example"})

    assert (
        run_with_validator(stand_in.egress, work, ValidationMode.FULL, requests_per_second=1000).status
        is Validation.VALID
    )


def test_whoever_asks_later_is_not_told_what_was_said_before(stand_in, tmp_path):
    acme = write_rule(tmp_path)

    async def work(validator):
        first = await validator.check(acme, "acme_1", {})
        stand_in.respond = lambda _: FakeResponse(401)
        return first.status, (await validator.check(acme, "acme_1", {})).status

    assert run_with_validator(stand_in.egress, work) == (Validation.VALID, Validation.INVALID)


def test_many_of_one_issuer_do_not_run_out_of_time_by_waiting_for_each_other(stand_in, tmp_path):
    acme = write_rule(tmp_path)
    verdicts: dict[int, Validation] = {}

    async def work(validator):
        wanted = [Credential(acme, f"acme_{n}", {}) for n in range(60)]
        await check_all(
            validator, wanted, lambda number, verdict: verdicts.setdefault(number, verdict.status)
        )

    run_with_validator(
        stand_in.egress, work, requests_per_second=50, deadline=0.6
    )  # a minute would be twenty times as many
    assert verdicts == dict.fromkeys(range(60), Validation.VALID)


def test_what_nobody_waits_for_any_more_ends_before_the_client_is_closed(stand_in, tmp_path):
    """A worker that is told to stop gives its jobs back; what they had asked must not fail on a closed client."""
    acme = write_rule(tmp_path)
    stand_in.respond = lambda _: FakeResponse(delay=2)
    complaints = []

    async def work(validator):
        asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about["message"]))
        waiting = asyncio.create_task(validator.check(acme, "acme_1", {}))
        while not stand_in.requests:  # noqa: ASYNC110 - the stand-in runs in another thread
            await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await validator.close()
        return dict(validator._running)

    began = time.monotonic()
    assert run_with_validator(stand_in.egress, work) == {}
    assert time.monotonic() - began < 2
    assert complaints == []
