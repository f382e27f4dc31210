"""The error of a request to a code host."""

from http import HTTPStatus
from typing import Literal

HostErrorKind = Literal["unauthorised", "not_found", "forbidden", "limited", "unavailable", "malformed"]

ERROR_KINDS: dict[int, HostErrorKind] = {
    HTTPStatus.UNAUTHORIZED: "unauthorised",
    HTTPStatus.FORBIDDEN: "forbidden",
    HTTPStatus.UNAVAILABLE_FOR_LEGAL_REASONS: "forbidden",
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.GONE: "not_found",
    HTTPStatus.CONFLICT: "not_found",  # GitHub: a commit was requested from an empty repository
    HTTPStatus.UNPROCESSABLE_ENTITY: "not_found",  # GitHub: the repository does not have the commit
}


class HostError(Exception):
    """A request failed. `message` is one line for users and never contains the token.

    `kind` is the reason in a form that callers can compare, `status` that of the response, 0 without one.
    """

    def __init__(self, kind: HostErrorKind, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = status
