"""Make every kind of request of a code host's client to its stand-in, and record the answers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from aiohttp import web

from outcrop.domain.errors import OutcropError
from outcrop.domain.secret import Secret
from outcrop.net.http import open_http
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.host import CodeHost, HostAccess
from outcrop.sources.code_host.options import ApiOptions
from outcrop.sources.code_host.registry import open_host
from tests.sources.hosts.test_discussions import TEXTS
from tests.sources.hosts.test_discussions import paths as text_paths
from tests.sources.hosts.test_every_host import KINDS
from tests.sources.hosts.test_reviews import CASES, HEAD, add_pull_requests, mark
from tests.support.code_hosts.published import Exchange
from tests.support.code_hosts.stand_in import run_stand_in
from tests.support.fake_https import FakeResponse, ReceivedRequest
from tests.support.github_host import Fault, github_host

SHA = "a" * 40
T = TypeVar("T")


def record_tour(name: str, folder: Path) -> list[Exchange]:
    """Return the exchanges of all requests, to the stand-in of the kind of host with this name.

    Answers with a failure status are left out.
    """
    if name.partition(" ")[0] == "github":
        return _record_github(folder, "" if name == "github" else "/api/v3")
    return _record_other(name, folder)


def _record_github(folder: Path, prefix: str) -> list[Exchange]:
    """Return the exchanges with the stand-in of GitHub, which has a form of its own."""
    found: list[Exchange] = []
    with github_host(folder, prefix=prefix) as host:
        host.add_user("acme", organisation=True, members=("jo",))
        host.add_user("jo")
        host.tokens["made-up-token"] = "jo"
        host.add_repo("acme/shop", commits=(SHA,))
        for listing in ("issues", "issues/comments", "pulls/comments"):
            host.add_text("acme/shop", listing, 1, "text")
        host.pulls["acme/shop"] = [{"number": 7, "state": "open", "head": {"sha": HEAD}, "commits": [HEAD]}]
        host.add_event("users/jo/events/orgs/acme", "acme/shop", SHA)
        host.add_gist("jo")
        respond = host.respond

        def record(request: web.BaseRequest) -> Fault:
            response = respond(request)
            if response.status < 400:
                path, _, query = request.raw_path.partition("?")
                sent = host.requests[-1].body
                found.append(Exchange(request.method, path, query, response.status, response.body, sent))
            return response

        host.respond = record  # type: ignore[method-assign]

        async def take() -> None:
            async with open_http(host.egress) as http:
                options = ApiOptions(retry_delays=())
                secret = Secret("made-up-token", mask_all=True)
                access = HostAccess(http=http, token=secret, api_url=host.base_url, options=options)
                github = open_host("github", access)
                await _take_tour(github, "acme")
                await _try(mark(github, "acme"))
                await _all(github.gists("jo"))
                await _try(github.gist(next(iter(host.gists))))

        asyncio.run(take())
    return found


def _record_other(name: str, folder: Path) -> list[Exchange]:
    """Return the exchanges with the stand-in of another host."""
    kind = next(kind for kind in KINDS if str(kind) == name)
    found: list[Exchange] = []
    with run_stand_in(kind.make(), folder / "tls") as stand_in:
        stand_in.add(f"{kind.project}/shop", wiki=True)
        assert stand_in.server is not None

        def respond(request: ReceivedRequest) -> FakeResponse:
            response = stand_in.respond(request)
            if response.status < 400:
                path = (request.raw_path or request.path).removeprefix(urlsplit(kind.url or "").path)
                exchange = (request.method, path, request.query, response.status, response.body, request.body)
                found.append(Exchange(*exchange))
            return response

        stand_in.server.respond = respond
        egress = stand_in.server.egress

        async def take() -> None:
            async with open_http(egress) as http:
                secret = Secret(kind.token, mask_all=True)
                options = ApiOptions(retry_delays=())
                access = HostAccess(http=http, token=secret, url=kind.url, options=options)
                host = open_host(kind.name, access)
                await _take_tour(host, kind.owner)
                (repository, *_) = await _all(host.repositories(kind.owner))
                stand_in.texts = TEXTS[kind.name](repository.html_url, stand_in)
                await _all(host.discussions(repository.key or repository.full_name))
                for path in text_paths(stand_in):
                    await _try(host.discussion_text(repository.key or repository.full_name, path))
                if kind in CASES:
                    add_pull_requests(stand_in, kind)
                    await _try(mark(host, kind.owner))

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
        feed = await host.event_feed(owner, is_owner=True, is_own_token=True)
        if feed is not None:
            await _try(feed.poll(None, None))
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
