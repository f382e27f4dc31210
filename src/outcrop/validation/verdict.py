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
    """Return a `valid` verdict: the credential gives access to `services`, given by their labels.

    The labels are sorted, without duplicates, and `services_checked` is set to True: an empty tuple means no
    access. `reason` is shown to people.
    """
    return with_services(Verdict(Validation.VALID, confidence, reason), services)


def invalid(reason: str, confidence: Confidence = Confidence.HIGH) -> Verdict:
    """Return an `invalid` verdict: the issuer refuses the credential, or it cannot be one.

    `reason` is shown to people.
    """
    return Verdict(Validation.INVALID, confidence, reason)


def unvalidated(reason: str, *, test_mode: bool = False, canary: bool = False) -> Verdict:
    """Return an `unvalidated` verdict of low confidence: the issuer was not asked, or nothing can be proven.

    `reason` is shown to people. `test_mode` and `canary` set the fields of these names.
    """
    return Verdict(Validation.UNVALIDATED, Confidence.LOW, reason, test_mode=test_mode, canary=canary)


def error(reason: str, retry_after: float | None = None) -> Verdict:
    """Return an `error` verdict of low confidence: the response says nothing about the credential.

    `reason` is shown to people. `retry_after` is the number of seconds for which the issuer wants no
    requests.
    """
    return Verdict(Validation.ERROR, Confidence.LOW, reason, retry_after=retry_after)


def unreachable(reason: str) -> Verdict:
    """Return an `unreachable` verdict of low confidence: there was no response.

    `reason` is shown to people.
    """
    return Verdict(Validation.UNREACHABLE, Confidence.LOW, reason)


def with_services(verdict: Verdict, services: Iterable[str], *, checked: bool = True) -> Verdict:
    """Return a copy of the verdict whose services are `services`, sorted and without duplicates.

    The services of `verdict` are replaced. `checked` sets `services_checked`.
    """
    return replace(verdict, services=tuple(sorted(set(services))), services_checked=checked)
