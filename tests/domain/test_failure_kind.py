"""The kind of a failure follows from its message, so that a failed run says what to do."""

import pytest

from outcrop.domain.scan import FailureKind, kind_of_failure
from outcrop.net.guard import Egress, EgressError, resolve
from outcrop.portal.labels import FAILURE_ADVICE
from outcrop.services.pipeline.plan import TOO_MANY_ATTEMPTS
from outcrop.sources.code_host.errors import ERROR_KINDS


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (TOO_MANY_ATTEMPTS, FailureKind.WORKER),
        ("the scanning process ended before its work was done", FailureKind.WORKER),
        ("scanning failed (KeyError)", FailureKind.WORKER),
        (
            "the rate limit of api.github.com is used up: 900 seconds are longer than we wait",
            FailureKind.LIMITED,
        ),
        ("gitlab.com asks for a pause: 900 seconds are longer than we wait", FailureKind.LIMITED),
        ("gitlab.com: there is no group or user acme", FailureKind.NOT_FOUND),
        ("https://a/b: cannot be cloned: Authentication failed for 'https://a/b/'", FailureKind.UNAUTHORISED),
        ("https://a/b: cannot be cloned: repository 'https://a/b/' not found", FailureKind.NOT_FOUND),
        ("https://a/b: cannot be cloned: the answer is not that of a git host", FailureKind.MALFORMED),
        ("https://a/b: cannot be cloned: its host sends too many refs or messages", FailureKind.TOO_LARGE),
        ("https://a/b: cloning took longer than an hour", FailureKind.TOO_LARGE),
        ("is not public: the target needs a credential of its own", FailureKind.UNAUTHORISED),
        ("answered with a bot challenge page", FailureKind.ROBOTS),
        ("disallowed by robots.txt", FailureKind.ROBOTS),
        ("no complete response within 30 seconds", FailureKind.UNAVAILABLE),
        ("api.github.com answered 502", FailureKind.UNAVAILABLE),
        ("redirects to another site, login.example.com", FailureKind.MALFORMED),
        ("something that nobody has foreseen", FailureKind.OTHER),
    ],
)
def test_messages_of_failures_have_a_kind(message: str, kind: FailureKind) -> None:
    assert kind_of_failure(message) is kind


def test_a_status_of_a_code_host_has_the_kind_of_its_error() -> None:
    for status in (401, 403, 404, 410, 451):
        message = f"https://api.example.com/repos/acme: answered {status}: no reason given"
        assert kind_of_failure(message) == ERROR_KINDS[status]


def test_a_host_that_may_not_be_connected_to_has_a_kind() -> None:
    with pytest.raises(EgressError) as refused:
        resolve("127.0.0.1", 443, Egress())
    assert kind_of_failure(refused.value.message) is FailureKind.NOT_ALLOWED
    with pytest.raises(EgressError) as unknown:
        resolve("nowhere.example", 443, Egress(), lambda _host, _port: (_ for _ in ()).throw(OSError()))
    assert kind_of_failure(unknown.value.message) is FailureKind.NO_ADDRESS


def test_every_kind_of_failure_has_advice() -> None:
    assert FAILURE_ADVICE.keys() == set(FailureKind)
