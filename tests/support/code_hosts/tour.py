"""Make every kind of request of a code host's client to its stand-in, and record the answers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from outcrop.domain.errors import OutcropError
from outcrop.domain.secret import Secret
from outcrop.net.http import open_http
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.host import CodeHost, HostAccess
from outcrop.sources.code_host.options import ApiOptions
from outcrop.sources.code_host.registry import open_host
from tests.sources.hosts.test_every_host import KINDS
from tests.support.code_hosts.published import Exchange
from tests.support.code_hosts.stand_in import run_stand_in
from tests.support.fake_https import FakeResponse, ReceivedRequest

SHA = "a" * 40
T = TypeVar("T")


def record_tour(name: str, folder: Path) -> list[Exchange]:
    """Return the exchanges of all requests, to the stand-in of the kind of host with this name.

    Answers with a failure status are left out: stand-ins have no discussions and events of their own.
    """
    kind = next(kind for kind in KINDS if str(kind) == name)
    found: list[Exchange] = []
    with run_stand_in(kind.make(), folder / "tls") as stand_in:
        stand_in.add(f"{kind.project}/shop", wiki=True)
        assert stand_in.server is not None

        def respond(request: ReceivedRequest) -> FakeResponse:
            response = stand_in.respond(request)
            if response.status < 400:
                path = request.raw_path or request.path
                found.append(Exchange(request.method, path, request.query, response.status, response.body))
            return response

        stand_in.server.respond = respond
        egress = stand_in.server.egress

        async def take() -> None:
            async with open_http(egress) as http:
                secret = Secret(kind.token, mask_all=True)
                options = ApiOptions(retry_delays=())
                access = HostAccess(http=http, token=secret, url=kind.url, options=options)
                await _take_tour(open_host(kind.name, access), kind.owner)

        asyncio.run(take())
    return found


async def _take_tour(host: CodeHost, owner: str) -> None:
    """Make the requests."""
    for repository in await _all(host.repositories(owner)):
        key = repository.key or repository.full_name
        await _try(host.repository(repository.full_name))
        await _try(host.commit(repository.full_name, SHA))
        await _try(host.commit_is_gone(key, "b" * 40))
        await _all(host.discussions(key))
        await _try(host.event_feed(owner, is_owner=True, is_own_token=True))
        if (reviews := await host.reviews(key)) is not None:
            await _try(reviews.find_open(SHA))
    await _all(host.gists(owner))
    await _try(host.token_owner())


async def _try(request: Awaitable[object]) -> None:
    """Make a request that the stand-in may refuse."""
    with suppress(HostError, OutcropError):
        await request


async def _all(items: AsyncIterator[T]) -> list[T]:
    """Return the items up to a failure."""
    found: list[T] = []
    with suppress(HostError, OutcropError):
        found += [item async for item in items]
    return found
