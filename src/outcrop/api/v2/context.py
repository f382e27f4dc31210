"""The context of a request to `/api/v2`: its caller, and how to get a database connection.

The request holds no connection, so that a route may read a body of any length first.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from starlette.requests import Request

from outcrop.domain.account import Caller
from outcrop.notes import NoteCleaner
from outcrop.services.shares import AccountShares, Deadline, connect_in_time
from outcrop.store.db import Connection, Pool
from outcrop.store.keyring import Keyring

SCOPE_KEY = "outcrop.api_v2_context"


@dataclass(frozen=True, slots=True)
class ApiV2Context:
    """Everything that a route needs besides its parameters and body."""

    caller: Caller
    now: datetime  # of the admission, by the database's clock
    pool: Pool
    shares: AccountShares
    deadline: Deadline  # of the response; a route that takes longer stops it and sets its own
    keys: Keyring
    notes: NoteCleaner

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        """Yield a connection, in the share of the account. Raise AccountBusyError if it takes too long."""
        async with connect_in_time(self.pool, self.shares, self.deadline, self.caller.account_id) as db:
            yield db


def api_v2_context(request: Request) -> ApiV2Context:
    """Return the context that the middleware stored in the request's ASGI scope."""
    context = request.scope[SCOPE_KEY]
    assert isinstance(context, ApiV2Context)  # noqa: S101 - the middleware admits no request without one
    return context
