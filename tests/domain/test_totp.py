"""Codes of an authenticator app: against the standard's own values, and once each."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from outcrop.domain import totp

SECRET = totp.secret_text(b"12345678901234567890")  # of RFC 6238, appendix B
STEP = timedelta(seconds=30)


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@pytest.mark.parametrize(
    ("seconds", "code"),
    [(59, "287082"), (1111111109, "081804"), (1234567890, "005924"), (20000000000, "353130")],
)
def test_codes_are_those_of_the_standard(seconds: int, code: str) -> None:
    assert totp.used_step(SECRET, code, after=0, now=at(seconds)) == seconds // 30


def test_a_clock_may_be_one_step_off_and_no_more() -> None:
    now, step = at(1234567890), 1234567890 // 30
    for late, found in [(-2, None), (-1, step), (0, step), (1, step), (2, None)]:
        assert totp.used_step(SECRET, "005924", after=0, now=now + late * STEP) == found


def test_a_code_works_once_and_no_earlier_one_after_it() -> None:
    now, step = at(1234567890), 1234567890 // 30
    assert totp.used_step(SECRET, " 005 924 ", after=step - 1, now=now) == step
    assert totp.used_step(SECRET, "005924", after=step, now=now) is None
    assert totp.used_step(SECRET, "005924", after=step + 1, now=now + STEP) is None


@pytest.mark.parametrize("code", ["", "00592", "0059240", "x05924", "٠٠٥٩٢٤", "\0", "\udc80" * 6])
def test_what_is_no_code_is_wrong(code: str) -> None:
    assert totp.used_step(SECRET, code, after=0, now=at(1234567890)) is None


def test_the_address_is_what_apps_read() -> None:
    assert (
        totp.address(SECRET, "jo+x@acme.example")
        == f"otpauth://totp/Outcrop:jo%2Bx%40acme.example?secret={SECRET}&issuer=Outcrop"
    )


def test_a_recovery_code_is_read_however_it_is_typed() -> None:
    code = totp.recovery_code(bytes(range(10)))
    assert re.fullmatch(r"[a-z2-7]{4}(-[a-z2-7]{4}){3}", code)
    assert totp.recovery_digest(code) == totp.recovery_digest(f" {code.upper().replace('-', ' ')}\n")
    assert totp.recovery_digest(code) != totp.recovery_digest(totp.recovery_code(bytes(10)))
