"""Fetch the URL of an earlier finding again, to see whether the secret is still served."""

import asyncio
from dataclasses import dataclass

from outcrop.net.http import HttpClient, HttpError
from outcrop.sources.web.crawl import CrawlOptions
from outcrop.sources.web.json_process import ParserDiedError
from outcrop.sources.web.polite_client import PoliteClient
from outcrop.sources.web.response_reader import full_text


@dataclass(frozen=True, slots=True)
class RefetchResult:
    """The response for a finding's URL. With an `error` it does not prove that the secret is gone."""

    status: int | None = None
    media_type: str = ""
    body: bytes = b""  # with the original files of a source map appended
    error: str | None = None


def refetch_client(http: HttpClient, options: CrawlOptions, *, authenticated: bool) -> PoliteClient:
    """Return a client with the limits of a crawl; it sends headers and login only if `authenticated`.

    Its deadline is `options.seconds` from now.
    """
    deadline = asyncio.get_running_loop().time() + options.seconds
    return options.open_client(http, deadline=deadline, authenticated=authenticated)


async def refetch(client: PoliteClient, url: str) -> RefetchResult:
    """Request a URL once and return the response, with any status.

    A failed request, or a response that is cut off, is the `error` of the result; nothing is raised.
    Redirects are not followed: another URL says nothing about this one.
    """
    try:
        response = await client.get_once(url)
    except HttpError as error:
        return RefetchResult(error=str(error))
    problem = "the response is larger than the limit" if response.truncated else None
    try:
        body = await asyncio.to_thread(full_text, response)
    except ParserDiedError as error:
        return RefetchResult(response.status, response.media_type, error=str(error))
    return RefetchResult(response.status, response.media_type, body, problem)
