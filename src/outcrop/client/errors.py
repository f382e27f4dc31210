"""The errors of the client.

OutcropApiError             `status` and `request_id` are None if no answer of the service arrived
├── AuthError               401: the key is missing, unknown, expired or revoked
├── PlanError               403: the plan has no API access; `minimum` is the lowest one with it
├── RateLimited             429, and waiting would take too long; `retry_after` is in seconds
├── NotFound                404: the account has no record with this id
├── InvalidTransition       400: the finding's status does not allow the action
├── InvalidRequest          another 4xx: `code` and `detail` say why
├── ServerError             5xx: the service failed; `retry_after` may say when to try again
└── TransportError          no usable answer: nothing listens, too slow, a redirect, not JSON, cut short

No message contains the API key.
"""

from collections.abc import Mapping
from typing import Any


class OutcropApiError(Exception):
    """A call of the API that did not succeed."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.request_id = request_id


class AuthError(OutcropApiError):
    """The service does not accept the API key."""


class PlanError(OutcropApiError):
    """The account's plan has no API access."""

    minimum = "growth"


class RateLimited(OutcropApiError):  # noqa: N818 - its public name
    """The key has used up its requests, and waiting would take longer than the caller allows."""

    retry_after = 60.0


class NotFound(OutcropApiError):  # noqa: N818 - its public name
    """The account has no record with this id, or the address has no such route."""


class InvalidTransition(OutcropApiError):  # noqa: N818 - its public name
    """The finding's status does not allow the action."""


class InvalidRequest(OutcropApiError):  # noqa: N818 - its public name
    """The service refuses the request as it is."""

    detail: tuple[Mapping[str, Any], ...] = ()  # of a 422: which parameter or field, and why


class ServerError(OutcropApiError):
    """The service failed."""

    retry_after: float | None = None


class TransportError(OutcropApiError):
    """The service could not be reached, or what answered is not Outcrop."""
