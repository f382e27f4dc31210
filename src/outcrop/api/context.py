"""The context of an API request: its caller, and the database connection that admitted it."""

from dataclasses import dataclass
from datetime import datetime

from starlette.requests import Request

from outcrop.domain.account import Caller
from outcrop.notes import NoteCleaner
from outcrop.store.db import Connection
from outcrop.store.keyring import Keyring

SCOPE_KEY = "outcrop.api_context"


@dataclass(frozen=True, slots=True)
class ApiContext:
    """Everything that a route needs besides its parameters."""

    caller: Caller
    now: datetime  # of the admission, by the database's clock
    db: Connection
    keys: Keyring
    notes: NoteCleaner


def api_context(request: Request) -> ApiContext:
    """Return the context that the middleware stored in the request's ASGI scope."""
    context = request.scope[SCOPE_KEY]
    assert isinstance(context, ApiContext)  # noqa: S101 - the middleware admits no request without one
    return context
