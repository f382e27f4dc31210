"""Parse a response of a site: the texts to scan, the links to follow, and the URL of a source map."""

from contextlib import suppress
from dataclasses import dataclass, field

from outcrop.domain.finding import SourceType
from outcrop.limits import PAGE_LINKS
from outcrop.net.http import HttpResponse
from outcrop.sources.web import content_types, source_map
from outcrop.sources.web.asset_names import stable_path
from outcrop.sources.web.json_process import ParserDiedError, read_json_links, read_source_map
from outcrop.sources.web.links import html_links, xml_links
from outcrop.sources.web.scripts import script_links
from outcrop.sources.web.urls import WebLink, WebLinkKind, is_script_url, normalise_url, url_origin, url_path


@dataclass(frozen=True, slots=True)
class Resource:
    """One text of a site: a response, or an original file of a source map. UTF-8 if the charset is known."""

    url: str  # after redirects; for an original file that of the source map, or of the script with the map
    path: str  # identifies the file from one build to the next
    source_type: SourceType
    file_path: str
    origin: str
    media_type: str
    body: bytes


@dataclass(slots=True)
class ParsedResponse:
    """The texts of a response, its links, and a problem that is a gap."""

    resources: list[Resource] = field(default_factory=list)
    links: list[WebLink] = field(default_factory=list)
    is_script: bool = False
    map_url: str | None = None
    problem: str | None = None


def parse_response(response: HttpResponse, kind: WebLinkKind, page: str) -> ParsedResponse:
    """Return the texts, links and source map of a response that was requested for a link of this kind.

    Its real type may be another one. `page` is the URL of the page that loaded a script: URLs in the script
    are relative to it. The result has no resources for images and the like, and for a page that is served
    instead of a script or source map.
    """
    if kind is WebLinkKind.SOURCE_MAP:
        is_map = _looks_like_json(response.body)
        return _parse_source_map(response, response.body) if is_map else ParsedResponse()
    if content_types.is_skipped_type(response.media_type):
        return ParsedResponse()
    body = content_types.to_utf8(response.body, response.headers)
    is_html = content_types.is_html(response.media_type, body)
    if kind is WebLinkKind.SCRIPT and is_html and body.lstrip().startswith(b"<"):
        return ParsedResponse(problem="a page was served instead of a script")
    if (
        kind is WebLinkKind.SCRIPT
        or content_types.is_script(response.media_type)
        or (is_script_url(response.url) and not is_html)
    ):
        return _parse_script(response, body, page)
    return _parse_document(response, body, is_html=is_html)


def full_text(response: HttpResponse) -> bytes:
    """Return the body of a response as UTF-8, with the original files of its source map appended, if any.

    The map is the response itself, or is embedded in it. A malformed map is ignored. Raise ParserDiedError if
    a map costs too much to be read.
    """
    body = content_types.to_utf8(response.body, response.headers)
    texts = [body]
    for candidate in (body, _decode_inline_map(body)):
        if _looks_like_json(candidate):
            with suppress(source_map.SourceMapError):
                texts += [original.content for original in read_source_map(candidate)[0]]
    return b"\n".join(texts)


def _parse_document(response: HttpResponse, body: bytes, *, is_html: bool) -> ParsedResponse:
    """Return the text and the links of a page, JSON, XML or any other text that is not a script.

    `body` is the text as UTF-8, and `is_html` whether it is an HTML page. PAGE_LINKS links are a problem, as
    there may be more.
    """
    parsed = ParsedResponse([_resource(response, body, SourceType.ENDPOINT)])
    url, media_type = response.url, response.media_type
    if is_html:
        parsed.links = html_links(body, url)
    elif content_types.is_json(media_type) or url_path(url).endswith((".json", ".webmanifest")):
        try:
            parsed.links = read_json_links(body, url)
        except ParserDiedError as error:
            parsed.problem = str(error)
    elif content_types.is_xml(media_type):
        parsed.links = xml_links(body, url)
    if len(parsed.links) >= PAGE_LINKS:
        parsed.problem = f"more than {PAGE_LINKS} links: the rest was not followed"
    return parsed


def _parse_script(response: HttpResponse, body: bytes, page: str) -> ParsedResponse:
    """Return the text and the links of a script, and the original files of a source map that it embeds.

    `body` is the script as UTF-8, and `page` the URL of the page that loaded it. The URL of a map that is not
    embedded is `map_url` of the result. An embedded map with original files is removed from the text; one
    that cannot be read is a problem.
    """
    url = response.url
    parsed = ParsedResponse(
        [_resource(response, body, SourceType.JS_BUNDLE)],
        script_links(body, url, page or url),
        is_script=True,
    )
    reference = source_map.find_reference(body, response.headers)
    if reference and not source_map.is_inline(reference):
        parsed.map_url = normalise_url(reference.decode("utf-8", "replace"), url)
    elif reference:
        inline_map = _decode_inline_map(body)
        originals = (
            _parse_source_map(response, inline_map)
            if inline_map
            else ParsedResponse(problem="the inline source map cannot be read")
        )
        if originals.resources:  # they are scanned under their own names, so the map itself need not be
            script = body.replace(reference, b"")
            parsed.resources = [_resource(response, script, SourceType.JS_BUNDLE)]
        parsed.resources += originals.resources
        parsed.problem = originals.problem
    return parsed


def _resource(response: HttpResponse, body: bytes, source_type: SourceType) -> Resource:
    """Return a resource with the URL and media type of the response, and with this body and source type.

    Build hashes in its `path` are replaced (`stable_path`), but not in its `file_path`.
    """
    path = url_path(response.url)
    return Resource(
        response.url,
        stable_path(path),
        source_type,
        path,
        url_origin(response.url),
        response.media_type,
        body,
    )


def _decode_inline_map(script: bytes) -> bytes:
    """Return the source map that a script embeds as a data URL; b"" if it has none or it is malformed."""
    reference = source_map.find_reference(script, {})
    try:
        return source_map.decode_inline(reference) if reference and source_map.is_inline(reference) else b""
    except source_map.SourceMapError:
        return b""


def _parse_source_map(response: HttpResponse, raw: bytes) -> ParsedResponse:
    """Return the original files in the source map `raw` as resources, or the problem why they are missing.

    The response is the map, or the script that embeds it.
    """
    try:
        files, problem = read_source_map(raw)
    except (source_map.SourceMapError, ParserDiedError) as error:
        return ParsedResponse(problem=str(error))
    resources = [
        Resource(
            response.url,
            original.name,
            SourceType.JS_BUNDLE,
            original.name,
            url_origin(response.url),
            response.media_type,
            original.content,
        )
        for original in files
    ]
    return ParsedResponse(resources, problem=problem)


def _looks_like_json(body: bytes) -> bool:
    """Whether a body begins with `{` or `)]}`, as a source map does and an HTML page does not."""
    return body[:64].removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b")]}"))
