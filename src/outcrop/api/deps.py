"""What a route is handed: who calls, and the connection the request was let in on."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from outcrop.domain.account import Caller
from outcrop.store.db import Connection
from outcrop.store.keyring import Keys

SCOPE = "outcrop.visit"


@dataclass(frozen=True, slots=True)
class Visit:
    caller: Caller
    db: Connection
    keys: Keys


async def _visit(request: Request) -> Visit:
    visit = request.scope[SCOPE]
    assert isinstance(visit, Visit)  # noqa: S101 - the gate lets no request through without one
    return visit


Here = Annotated[Visit, Depends(_visit)]
