"""The result of checking a credential."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from outcrop.domain.finding import Confidence, Validation


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a credential is valid, and what it gives access to.

    `reason` is shown to people and contains nothing of the credential.
    """

    status: Validation
    confidence: Confidence
    reason: str
    services: tuple[str, ...] = ()  # labels of the services and permissions, sorted
    services_checked: bool = False  # `services` was determined, so that an empty tuple means no access
    test_mode: bool = False  # the credential works with test data only
    canary: bool = False  # a known canary: its owner is alerted when it is used
    retry_after: float | None = None  # seconds that the issuer wants no requests for


def valid(reason: str, services: Iterable[str], confidence: Confidence = Confidence.HIGH) -> Verdict:
    """Return a `valid` verdict for a credential that gives access to these services, marked as checked."""
    return with_services(Verdict(Validation.VALID, confidence, reason), services)


def invalid(reason: str, confidence: Confidence = Confidence.HIGH) -> Verdict:
    """Return an `invalid` verdict: the issuer refuses the credential, or it cannot be one."""
    return Verdict(Validation.INVALID, confidence, reason)


def unvalidated(reason: str, *, test_mode: bool = False, canary: bool = False) -> Verdict:
    """Return an `unvalidated` verdict: the issuer was not asked, or the check cannot prove anything.

    `test_mode` and `canary` set the fields of these names.
    """
    return Verdict(Validation.UNVALIDATED, Confidence.LOW, reason, test_mode=test_mode, canary=canary)


def error(reason: str, retry_after: float | None = None) -> Verdict:
    """Return an `error` verdict: the issuer responded, and the response says nothing about the credential.

    `retry_after` is the number of seconds for which the issuer wants no requests.
    """
    return Verdict(Validation.ERROR, Confidence.LOW, reason, retry_after=retry_after)


def unreachable(reason: str) -> Verdict:
    """Return an `unreachable` verdict: there was no response."""
    return Verdict(Validation.UNREACHABLE, Confidence.LOW, reason)


def with_services(verdict: Verdict, services: Iterable[str], *, checked: bool = True) -> Verdict:
    """Return a copy of the verdict whose services are `services`, sorted and without duplicates.

    The services of `verdict` are replaced. `checked` sets `services_checked`.
    """
    return replace(verdict, services=tuple(sorted(set(services))), services_checked=checked)
