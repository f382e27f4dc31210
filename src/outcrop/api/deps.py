"""What a route is handed: who calls, and the connection the request was let in on."""

from dataclasses import dataclass

from starlette.requests import Request

from outcrop.domain.account import Caller
from outcrop.notes import NoteCleaner
from outcrop.store.db import Connection
from outcrop.store.keyring import Keyring

SCOPE = "outcrop.visit"


@dataclass(frozen=True, slots=True)
class Visit:
    caller: Caller
    db: Connection
    keys: Keyring
    notes: NoteCleaner


def visit(request: Request) -> Visit:
    found = request.scope[SCOPE]
    assert isinstance(found, Visit)  # noqa: S101 - the gate lets no request through without one
    return found
