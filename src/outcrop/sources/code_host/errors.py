"""The error of a request to a code host."""

import base64
import binascii
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Literal

from outcrop.domain.secret import Secret

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


def mask_sent(message: str, headers: Mapping[str, str]) -> str:
    """Return a message with the credentials in the headers of a request masked: a host may repeat them."""
    for value in headers.values():
        for secret in _secrets_in(value):
            message = Secret(secret, mask_all=True).masked_within(message)
    return message


def _secrets_in(value: str) -> Iterator[str]:
    """Yield the credential in the value of a header, and the password of basic authentication."""
    scheme, _, credential = value.rpartition(" ")
    yield credential
    if scheme == "Basic":
        try:
            yield base64.b64decode(credential).decode().partition(":")[2]
        except (binascii.Error, ValueError):
            return
