"""One answer of a site into what is scanned, what it leads to, and where its source map is."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from outcrop.domain.finding import SourceType
from outcrop.net.http import HttpResponse
from outcrop.sources.web import content_types as web_text
from outcrop.sources.web import source_map
from outcrop.sources.web.link import LinkKind, WebLink
from outcrop.sources.web.links import MOST_LINKS, html_links, json_links, xml_links
from outcrop.sources.web.scripts import script_links
from outcrop.sources.web.urls import is_script_url, normalise_url, stable_path, url_origin, url_path


@dataclass(frozen=True, slots=True)
class Resource:
    """One text of a site. Where its letters were named, it is UTF-8."""

    url: str  # as fetched, after redirects; the source map's, or its script's, for a file of one
    path: str  # what identifies it from one build to the next
    source_type: SourceType
    file_path: str
    origin: str
    media_type: str
    body: bytes


@dataclass(slots=True)
class ParsedResponse:
    resources: list[Resource] = field(default_factory=list)
    links: list[WebLink] = field(default_factory=list)
    is_script: bool = False
    map_url: str | None = None
    problem: str | None = None


def read(answer: HttpResponse, kind: LinkKind, page: str) -> ParsedResponse:
    """Read an answer as what it is, which need not be what it was asked for as; `page` is where a script was loaded."""
    if kind is LinkKind.MAP:
        return _read_map(answer, answer.body) if _looks_like_json(answer.body) else ParsedResponse()
    if web_text.is_unreadable(answer.media_type):
        return ParsedResponse()
    body, url = web_text.to_utf8(answer.body, answer.headers), answer.url
    is_page = web_text.is_html(answer.media_type, body)
    if kind is LinkKind.SCRIPT and is_page and body.lstrip().startswith(b"<"):
        return ParsedResponse(problem="a page was served instead of a script")
    if (
        kind is LinkKind.SCRIPT
        or web_text.is_script(answer.media_type)
        or (is_script_url(url) and not is_page)
    ):
        return _read_script(answer, body, page)
    reading = ParsedResponse([_resource(answer, body, SourceType.ENDPOINT)])
    if is_page:
        reading.links = html_links(body, url)
    elif web_text.is_json(answer.media_type) or url_path(url).endswith((".json", ".webmanifest")):
        reading.links = json_links(body, url)
    elif web_text.is_xml(answer.media_type):
        reading.links = xml_links(body, url)
    if len(reading.links) >= MOST_LINKS:
        reading.problem = f"more than {MOST_LINKS} links: the rest was not followed"
    return reading


def everything(answer: HttpResponse) -> bytes:
    """Give all text that an answer holds: itself, and the original files that are packed in it."""
    texts = [web_text.to_utf8(answer.body, answer.headers)]
    for packed in (texts[0], _inline_map(texts[0])):
        if _looks_like_json(packed):
            texts += [original.body for original in _read_map(answer, packed).resources]
    return b"\n".join(texts)


def _resource(answer: HttpResponse, body: bytes, source_type: SourceType) -> Resource:
    path = url_path(answer.url)
    return Resource(
        answer.url, stable_path(path), source_type, path, url_origin(answer.url), answer.media_type, body
    )


def _read_script(answer: HttpResponse, body: bytes, page: str) -> ParsedResponse:
    url = answer.url
    reading = ParsedResponse(
        [_resource(answer, body, SourceType.JS_BUNDLE)], script_links(body, url, page or url), is_script=True
    )
    named = source_map.reference(body, answer.headers)
    if named and not source_map.is_inline(named):
        reading.map_url = normalise_url(named.decode("utf-8", "replace"), url)
    elif named:
        inline = _inline_map(body)
        packed = (
            _read_map(answer, inline)
            if inline
            else ParsedResponse(problem="the inline source map cannot be read")
        )
        if packed.resources:  # what it holds is looked at by its own names, and once
            reading.resources = [_resource(answer, body.replace(named, b""), SourceType.JS_BUNDLE)]
        reading.resources += packed.resources
        reading.problem = packed.problem
    return reading


def _inline_map(script: bytes) -> bytes:
    named = source_map.reference(script, {})
    try:
        return source_map.inline_map(named) if named and source_map.is_inline(named) else b""
    except source_map.SourceMapError:
        return b""


def _read_map(answer: HttpResponse, raw: bytes) -> ParsedResponse:
    try:
        return ParsedResponse(list(_originals(answer, raw)))
    except source_map.SourceMapError as error:
        return ParsedResponse(problem=str(error))


def _originals(answer: HttpResponse, raw: bytes) -> Iterator[Resource]:
    for one in source_map.originals(raw):
        yield Resource(
            answer.url,
            one.name,
            SourceType.JS_BUNDLE,
            one.name,
            url_origin(answer.url),
            answer.media_type,
            one.content,
        )


def _looks_like_json(body: bytes) -> bool:
    """Tell a map from the page that many sites serve for everything that is not there."""
    return body[:64].removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b")]}"))
