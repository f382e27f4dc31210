"""Render templates, and provide their filters: times, numbers, safe links."""

import asyncio
import gzip
import hashlib
import unicodedata
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime, tzinfo
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Receive, Scope, Send

from outcrop.domain.account import Permission
from outcrop.domain.scan import kind_of_failure
from outcrop.portal import charts, labels

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

_zone: ContextVar[tzinfo] = ContextVar("zone", default=UTC)  # of the page that is rendered in this context


class _Page(HTMLResponse):
    """A page that is rendered in a thread when it is sent: by then the request holds no connection."""

    def __init__(self, render: Callable[[], str], status: int) -> None:
        super().__init__(status_code=status)
        self._render_page = render

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.body = (await asyncio.to_thread(self._render_page)).encode()
        self.headers["content-length"] = str(len(self.body))
        await super().__call__(scope, receive, send)


class Renderer:
    """Render pages and serve static files.

    The address of a static file contains a hash of its content, so browsers may cache it forever.
    """

    def __init__(self, notice: str | None = None) -> None:
        self._files: dict[str, tuple[bytes, bytes, str]] = {}
        self._addresses: dict[str, str] = {}
        for file in files("outcrop.portal").joinpath("static").iterdir():
            body = file.read_bytes()
            address = f"{hashlib.sha256(body).hexdigest()[:12]}/{file.name}"
            self._files[address] = (
                body,
                gzip.compress(body, mtime=0),
                _TYPES[f".{file.name.rpartition('.')[2]}"],
            )
            self._addresses[file.name] = f"/static/{address}"
        self._environment = Environment(
            loader=PackageLoader("outcrop.portal"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.globals |= {
            "static": self._addresses.__getitem__,
            "may": Permission,
            "labels": labels,
            "charts": charts,
            "query": query_string,
            "failure_kind": kind_of_failure,
            "notice": notice,
        }
        self._environment.filters |= {
            "time": time_tag,
            "day": lambda moment: moment.strftime("%-d %b %Y"),
            "shown": shown,
            "plain": plain,
            "score": labels.score,
            "number": lambda value: f"{value:,}",
            "size": labels.size,
            "href": web_address,
            "level": labels.level,
            "coded": coded,
        }

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Return a page, which is rendered when it is sent."""

        def render() -> str:
            request = values.get("request")
            _zone.set(UTC if request is None else request.zone)  # the thread has its own context
            return self._environment.get_template(template).render(values)

        return _Page(render, status)

    def static(self, request: Request) -> Response:
        """Return a static file, compressed if the browser accepts gzip."""
        file = self._files.get(request.path_params["address"])
        if file is None:
            return Response("not found", 404, media_type="text/plain")
        body, compressed, media_type = file
        headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(compressed, media_type=media_type, headers=headers | {"Content-Encoding": "gzip"})
        return Response(body, media_type=media_type, headers=headers)


def time_tag(moment: datetime | None, *, empty: str = "never") -> Markup:
    """Return a time in the browser's zone as HTML, with UTC on hover; the script localises it."""
    if moment is None:
        return Markup('<span class="quiet">{}</span>').format(empty)
    moment, zone = moment.astimezone(UTC), _zone.get()
    iso = moment.isoformat(" ", "seconds")[:19]
    local = moment.astimezone(zone)
    # Nothing here needs escaping, and a list has fifty of these, so the text is not escaped.
    return Markup(  # noqa: S704
        f'<time datetime="{iso.replace(" ", "T")}+00:00" title="{iso} UTC">'
        f"{local:%-d %b %Y, %H:%M}{' UTC' if zone is UTC else ''}</time>"
    )


def plain(text: str) -> str:
    """Return foreign text with every character that prints nothing, or turns the text, as its number."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else f"\u27e8U+{ord(char):04X}\u27e9" for char in text)


def shown(text: object, keep: str = "") -> Markup:
    """Return foreign text as HTML that cannot change the direction of the text around it.

    Characters that print nothing are shown by their numbers, except those in `keep`.
    """
    text = str(text)
    if text.isprintable():
        return Markup("<bdi>{}</bdi>").format(text)
    pieces = [
        escape(char)
        if char.isprintable() or char in keep
        else Markup('<span class="control" title="{}">{}</span>').format(
            unicodedata.name(char, "control character").lower(), plain(char)
        )
        for char in text
    ]
    return Markup("<bdi>{}</bdi>").format(Markup("").join(pieces))


def web_address(url: str | None) -> str | None:
    """Return the address if it is an http or https URL, else None: a `javascript:` link would run code."""
    if url is None or not url.isprintable():
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return url if parts.scheme in {"http", "https"} and parts.netloc else None


def coded(text: str) -> Markup:
    """Return text as HTML, with parts in back quotes as code."""
    pieces = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if at % 2 else escape(piece)
        for at, piece in enumerate(pieces)
    )


def query_string(values: dict[str, Any], **changed: Any) -> str:
    """Return the query string of a view with some parameters changed; empty parameters are dropped."""
    parameters = {name: value for name, value in (values | changed).items() if value not in {None, ""}}
    return f"?{urlencode(parameters)}" if parameters else "?"
