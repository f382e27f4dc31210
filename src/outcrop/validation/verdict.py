"""What a check has told."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from outcrop.domain.finding import Confidence, Validation


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` is for a person, and holds nothing of the credential."""

    status: Validation
    confidence: Confidence
    reason: str
    services: tuple[str, ...] = ()
    asked: bool = False  # capability requests were made
    test_mode: bool = False
    canary: bool = False
    retry_after: float | None = None  # seconds that the issuer wants to be left alone for


def unvalidated(reason: str, *, test_mode: bool = False, canary: bool = False) -> Verdict:
    return Verdict(Validation.UNVALIDATED, Confidence.LOW, reason, test_mode=test_mode, canary=canary)


def error(reason: str, retry_after: float | None = None) -> Verdict:
    return Verdict(Validation.ERROR, Confidence.LOW, reason, retry_after=retry_after)


def unreachable(reason: str) -> Verdict:
    return Verdict(Validation.UNREACHABLE, Confidence.LOW, reason)


def valid(
    reason: str,
    confidence: Confidence = Confidence.HIGH,
    services: tuple[str, ...] = (),
    *,
    asked: bool = False,
) -> Verdict:
    return Verdict(Validation.VALID, confidence, reason, tuple(sorted(set(services))), asked)


def with_services(verdict: Verdict, services: Iterable[str], *, asked: bool = True) -> Verdict:
    """Give a verdict with what the credential was seen to open."""
    return replace(verdict, services=tuple(sorted(set(services))), asked=asked)


def invalid(reason: str, confidence: Confidence = Confidence.HIGH) -> Verdict:
    return Verdict(Validation.INVALID, confidence, reason)
