"""URLs and links: normalise and compare URLs, and redact them for messages."""

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qsl, urljoin, urlsplit

from yarl import URL

from outcrop.lazy_regex import regex
from outcrop.limits import URL_LENGTH

_MAX_PARAMETER_NAME = 40  # a longer name of a query parameter may be a token
_HOST = regex(r"[\w.:-]+")
_IGNORED = regex(r"[\t\n\r]")  # browsers remove these anywhere in a URL
_DEFAULT_PORTS = {"http": 80, "https": 443}

_SCRIPT_NAME = regex(r"\.[cm]?js$", re.IGNORECASE)
_SKIPPED_NAME = regex(
    r"\.(?:css|png|jpe?g|gif|webp|avif|svgz?|ico|bmp|tiff?|heic|woff2?|ttf|otf|eot"
    r"|mp[34]|m4[av]|webm|og[gav]|wav|flac|mov|avi|mkv|aac)$",
    re.IGNORECASE,
)


class WebLinkKind(StrEnum):
    """The kind of a link. It decides the limit that the target counts for and which failures are gaps."""

    PAGE = "page"  # a link that a user follows: one step deeper
    EMBEDDED = "embedded"  # loaded together with a page: a frame, a manifest, data
    SCRIPT = "script"
    SOURCE_MAP = "source_map"
    SITEMAP = "sitemap"
    LEAK_PATH = "leak_path"  # not linked: a path that is tried because files are often left there


@dataclass(frozen=True, slots=True)
class WebLink:
    """A link from one resource to another."""

    url: str  # absolute and normalised
    kind: WebLinkKind
    expected: bool = True  # the target should exist, so a failure to get it is a gap


def normalise_url(reference: str, base: str = "") -> str | None:
    """Return a reference resolved against the URL `base`, without fragment, user name and password.

    Return None if the result is not an http or https URL, or longer than URL_LENGTH.
    """
    cleaned = _IGNORED.sub("", reference.strip("\x00\x0b\x0c\x1f ")).replace("\\", "/")
    try:
        url = URL(urljoin(base, cleaned)).with_fragment(None)
        if url.scheme not in _DEFAULT_PORTS or not url.host or not _HOST.fullmatch(url.host):
            return None
        normalised = str(url.with_user(None))
    except ValueError:
        return None
    if normalised.count("/") == 2:
        normalised += "/"
    return normalised if len(normalised) <= URL_LENGTH else None


def url_origin(url: str) -> str:
    """Return scheme, host and port of a normalised URL, as in `https://example.com`."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def url_path(url: str) -> str:
    """Return the path of a URL without its query; "/" if it is empty."""
    return urlsplit(url).path or "/"


def is_same_site(url: str, start: str) -> bool:
    """Whether a URL belongs to the site of the URL `start`; both are http or https URLs.

    Ports must be the same, hosts too except for `www.`. Schemes must be the same, except that `url` may have
    https where `start` has http.
    """
    parts, start_parts = urlsplit(url), urlsplit(start)
    if parts.scheme != start_parts.scheme and (start_parts.scheme, parts.scheme) != ("http", "https"):
        return False
    ports = [_explicit_port(each.scheme, each.port) for each in (parts, start_parts)]
    hosts = [(each.hostname or "").removeprefix("www.") for each in (parts, start_parts)]
    return ports[0] == ports[1] and hosts[0] == hosts[1]


def _explicit_port(scheme: str, port: int | None) -> int | None:
    """Return the port; None if it is not given or is the default port of the scheme, http or https."""
    return None if port == _DEFAULT_PORTS[scheme] else port


def redact_url(url: str) -> str:
    """Return a URL for messages: without user name, password, fragment and the values of its query.

    Names of query parameters that have no value or are long are dropped too. For a malformed URL return a
    text that says so.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a malformed URL"
    names = [
        name
        for name, value in parse_qsl(parts.query, max_num_fields=None)
        if value and len(name) <= _MAX_PARAMETER_NAME
    ]
    query = f"?{'&'.join(names)}" if names else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{query}"


def is_script_url(url: str) -> bool:
    """Whether the path of a URL has the extension of a JavaScript file."""
    return bool(_SCRIPT_NAME.search(url_path(url)))


def is_skipped_url(url: str) -> bool:
    """Whether the path of a URL has the extension of an image, font, video, audio file or style sheet."""
    return bool(_SKIPPED_NAME.search(url_path(url)))
