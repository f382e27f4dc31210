"""What a check has told."""

from dataclasses import dataclass

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


def valid(reason: str, confidence: Confidence = Confidence.HIGH, services: tuple[str, ...] = (), *, asked: bool = False) -> Verdict:
    return Verdict(Validation.VALID, confidence, reason, tuple(sorted(set(services))), asked)


def invalid(reason: str, confidence: Confidence = Confidence.HIGH) -> Verdict:
    return Verdict(Validation.INVALID, confidence, reason)
