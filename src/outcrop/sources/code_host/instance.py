"""What hosts share whose web pages, API and clones are below one address."""

import base64
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from outcrop.domain.errors import BadInputError
from outcrop.domain.line import one_line
from outcrop.domain.secret import Secret, reveal
from outcrop.sources.code_host.api import ApiStyle, HostApi, origin, parse_json
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.fields import is_plain_https
from outcrop.sources.code_host.host import CodeHost, HostAccess, Login
from outcrop.sources.code_host.hosted import HostedRepository, repository_source, site_of

AuthHeaders = Callable[[Secret], Mapping[str, str]]  # returns the headers that send a token


class InstanceHost(CodeHost):
    """A code host at `url`, with its API at `api_url`. `auth` sends the token."""

    def __init__(
        self, access: HostAccess, url: str, api_url: str, auth: AuthHeaders, style: ApiStyle
    ) -> None:
        headers = {} if access.token is None else dict(auth(access.token))

        async def send_token() -> Mapping[str, str]:
            """Return the headers that send the token."""
            return headers

        self.url = url.rstrip("/")
        self.token = access.token
        self.on_gap = access.on_gap
        self.api = HostApi(access.http, api_url, access.token, send_token, style, options=access.options)

    def is_own_host(self, clone_url: str) -> bool:
        """Whether a URL is https and at this instance."""
        return origin(clone_url) == origin(self.url) and clone_url.startswith("https://")

    async def login(self) -> Login | None:
        """Return user name and password for clones; None without a token."""
        return None if self.token is None else self.clone_login(self.token)

    def path_of(self, url: str) -> str:
        """Return the path of a repository below the address of this instance."""
        path = url.partition(":")[2]
        if "://" in url:
            path = urlsplit(url).path.removeprefix(urlsplit(self.url).path)
        return unquote(path).strip("/").removesuffix(".git")

    def source_of(self, repository: HostedRepository) -> str:
        """Return the name of the source of a repository."""
        return repository_source(site_of(self.url), repository.id)

    def clone_url(self, given: object, path: str) -> str:
        """Return the address to clone from: the `given` one, or else the one that follows from the path.

        A token is sent to this instance only. So another address than its own counts only without a token:
        an instance that is reached by a second name gives its first one.
        """
        if (
            isinstance(given, str)
            and is_plain_https(given)
            and (self.token is None or self.is_own_host(given))
        ):
            return given
        return f"{self.url}/{quote(path)}"

    async def is_gone(self, commit: str, content: str, items: str | None = None) -> bool | None:
        """Whether the host answers 404 for the API path `commit` and serves what is at the path `content`.

        `content` lists branches, and at least one must be there: without access to the code a host may answer
        404 for every commit. `items` is the field of that list; None if the response is the list.
        """
        with suppress(HostError):
            status = await self.api.status(commit)
            if status == HTTPStatus.OK:
                return False
            if status == HTTPStatus.NOT_FOUND:
                served = await self.api.response(content)
                value = parse_json(served) if served.ok else None
                found = value.get(items) if items is not None and isinstance(value, dict) else value
                if isinstance(found, list) and found:
                    return True
        return None


def basic_auth(user: str, password: str) -> dict[str, str]:
    """Return the header of HTTP basic authentication."""
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {encoded}"}


def split_login(token: Secret) -> tuple[str | None, str]:
    """Return user name and password of a credential `USER:PASSWORD`; the name is None for a token alone."""
    name, colon, password = reveal(token).partition(":")
    return (name, password) if colon else (None, name)


def invalid_name(text: str, what: str) -> BadInputError:
    """Return the error for a name that cannot be one of the host."""
    return BadInputError(f"{one_line(text[:200])}: is not {what}")


def text_of(raw: Any, *names: str) -> str:
    """Return the texts in these fields of decoded JSON, one below the other, without missing ones."""
    fields = (raw.get(name) for name in names) if isinstance(raw, dict) else ()
    return "\n".join(text for text in fields if isinstance(text, str) and text)


def inner(raw: Any, *names: str) -> Any:
    """Return the value in nested objects of decoded JSON; None if there is none."""
    for name in names:
        raw = raw.get(name) if isinstance(raw, dict) else None
    return raw
