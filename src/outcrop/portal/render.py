"""Templates and what they can call: times, numbers, links that are safe to be links."""

import gzip
import hashlib
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from outcrop.domain.account import Permission
from outcrop.portal import charts, labels

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


class Renderer:
    """Draws pages. Files that a page loads are known by a hash of what is in them, so that a browser may keep them for ever."""

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
            "notice": notice,
        }
        self._environment.filters |= {
            "time": time_tag,
            "day": lambda moment: moment.strftime("%-d %b %Y"),
            "number": lambda value: f"{value:,}",
            "size": labels.size,
            "href": web_address,
            "level": labels.level,
            "coded": coded,
        }

    def text(self, template: str, **values: Any) -> str:
        return self._environment.get_template(template).render(values)

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        return HTMLResponse(self.text(template, **values), status)

    def static(self, request: Request) -> Response:
        found = self._files.get(request.path_params["address"])
        if found is None:
            return Response("not found", 404, media_type="text/plain")
        body, packed, media_type = found
        headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(packed, media_type=media_type, headers=headers | {"Content-Encoding": "gzip"})
        return Response(body, media_type=media_type, headers=headers)


def time_tag(moment: datetime | None, *, empty: str = "never") -> Markup:
    """Write a time in UTC; the page's script puts it into the reader's own zone and leaves UTC to be seen on hover."""
    if moment is None:
        return Markup('<span class="quiet">{}</span>').format(empty)
    moment = moment.astimezone(UTC)
    iso = moment.isoformat(" ", "seconds")[:19]
    # Digits and our own words: there is nothing to escape, and fifty of these stand in a list.
    return Markup(  # noqa: S704
        f'<time datetime="{iso.replace(" ", "T")}+00:00" title="{iso} UTC">{moment:%-d %b %Y, %H:%M} UTC</time>'
    )


def web_address(url: str | None) -> str | None:
    """Give an address that may become a link: of the web, and nothing that a browser would run."""
    if url is None or not url.isprintable():
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return url if parts.scheme in {"http", "https"} and parts.netloc else None


def coded(text: str) -> Markup:
    """Write what stands between back quotes as code."""
    pieces = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if at % 2 else escape(piece)
        for at, piece in enumerate(pieces)
    )


def query_string(values: dict[str, Any], **changed: Any) -> str:
    """Write a view's address with something changed; what is empty is left out."""
    kept = {name: value for name, value in (values | changed).items() if value not in {None, ""}}
    return f"?{urlencode(kept)}" if kept else "?"
