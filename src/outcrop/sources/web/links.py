"""Find the links of HTML pages, feeds, sitemaps and JSON documents such as manifests."""

import html
import re
from collections.abc import Iterator
from itertools import chain, islice

import orjson
import re2  # type: ignore[import-untyped]
from selectolax.lexbor import LexborHTMLParser, LexborNode

from outcrop.lazy_regex import regex
from outcrop.limits import NEARBY_SCRIPTS, PAGE_JSON_VALUES, PAGE_LINKS, PAGE_TAGS
from outcrop.sources.web.asset_names import stable_path
from outcrop.sources.web.scripts import script_links
from outcrop.sources.web.urls import WebLink, WebLinkKind, is_script_url, is_skipped_url, normalise_url

_TEXT_SITEMAP_HEAD = 1_024  # bytes in which an XML sitemap has a `<`

# Comments, elements whose content is not markup, and tags. Possessive quantifiers make the regex linear: an
# unclosed comment or element extends to the end of the page.
_ATTRIBUTES = rb"""(?:[^>=]++|=\s*+(?:"[^"]*+"?|'[^']*+'?)?+)*+(?:>|\Z)"""
_TAGS = regex(
    rb"<(?:!--.*?(?:-->|\Z)"
    rb"|(script)(?=[\s/>])" + _ATTRIBUTES + rb".*?(?:(</script\s*>)|\Z)"
    rb"|(?:style(?=[\s/>]).*?(?:</style|\Z)|textarea(?=[\s/>]).*?(?:</textarea|\Z)"
    rb"|title(?=[\s/>]).*?(?:</title|\Z))"
    rb"|(a|area|base|form|frame|iframe|link|meta)(?=[\s/>])"
    + _ATTRIBUTES
    + rb"|[a-z/!?]"
    + _ATTRIBUTES
    + rb")",
    re.IGNORECASE | re.DOTALL,
)
_PAGE_RELATIONS = {"next", "prev", "alternate", "canonical"}  # of `<link rel=…>`
_SCRIPT_TYPES = {
    "",
    "module",
    "text/javascript",
    "application/javascript",
    "text/ecmascript",
    "application/ecmascript",
    "text/babel",
}
_META_REFRESH = re2.compile(r"""(?i)^\s*[\d.]*\s*[;,]?\s*url\s*=\s*["']?([^"']+)""")
_SITEMAP_LOC = re2.compile(rb"<(?:[\w.-]+:)?loc\s*>\s*(?:<!\[CDATA\[)?\s*([^<\]]+)")
_FEED_LINK = re2.compile(
    rb"""<(?:[\w.-]+:)?link\s*>\s*(?:<!\[CDATA\[)?\s*([^<\]]+)"""
    rb"""|<(?:[\w.-]+:)?link\s[^>]*?href\s*=\s*["']([^"'<>]+)["']"""
)
_SITEMAP_INDEX = re2.compile(rb"<(?:[\w.-]+:)?sitemapindex[\s>]")
_SIGN_OUT = re2.compile(r"(?i)(?:^|/)(?:log|sign)[-_]?(?:out|off)\b")


# --- HTML


def html_links(body: bytes, url: str) -> list[WebLink]:
    """Return the links of an HTML page in UTF-8: scripts, what its inline scripts load, and documents.

    `url` is the URL of the page; its `<base>` is obeyed. Each URL is returned once, that of the page itself
    not, and at most PAGE_LINKS in all.
    """
    tree = LexborHTMLParser(_keep_linking_tags(body))
    base = url
    if (base_tag := tree.css_first("base[href]")) is not None:
        base = normalise_url(_attribute(base_tag, "href"), url) or url
    scripts = list(_script_links(tree, base))
    nearby = [link.url for link in scripts[:NEARBY_SCRIPTS]]
    found: dict[str, WebLink] = {}
    for link in chain(scripts, _inline_script_links(tree, base, nearby), _document_links(tree, base)):
        found.setdefault(link.url, link)
        if len(found) >= PAGE_LINKS:
            break
    found.pop(url, None)
    return list(found.values())


def _keep_linking_tags(body: bytes) -> bytes:
    """Return only those elements of an HTML page that can have links, as siblings; at most PAGE_LINKS.

    A parser builds the tree that the standard defines. A page of 100 kB of unclosed elements can make this
    take hours or all memory. Links are found without the tree; those in a template count too.
    """
    kept: list[bytes] = []
    for match in islice(_TAGS.finditer(body), PAGE_TAGS):
        if match[2] or match[3]:
            kept.append(match[0] if match[2] else b"%b</%b>" % (match[0], match[3]))
            if len(kept) >= PAGE_LINKS:
                break
    return b"".join(kept)


def _attribute(node: LexborNode, name: str) -> str:
    """Return the value of an attribute; "" if the tag does not have it or it has no value."""
    return node.attributes.get(name) or ""


def _link(reference: str, base: str, kind: WebLinkKind, *, expected: bool = True) -> Iterator[WebLink]:
    """Yield the link to a reference; nothing if it is blank, no http URL, or leads to an image or the like.

    The reference is resolved against the URL `base`. The kind of the link is SCRIPT if the URL has the
    extension of a script, otherwise `kind`. `expected` means that the target should exist.
    """
    url = normalise_url(reference, base) if reference.strip() else None
    if url and not is_skipped_url(url):
        yield WebLink(url, WebLinkKind.SCRIPT if is_script_url(url) else kind, expected=expected)


def _page_link(reference: str, base: str) -> Iterator[WebLink]:
    """Yield the link to a page as `_link` does; nothing if the reference names a sign-out page.

    Such a request would end our own session.
    """
    if not _SIGN_OUT.search(reference):
        yield from _link(reference, base, WebLinkKind.PAGE)


def _script_links(tree: LexborHTMLParser, base: str) -> Iterator[WebLink]:
    """Yield the scripts that `<script>` tags load and `<link>` tags preload; URLs are relative to `base`."""
    for node in tree.css("script[src]"):
        yield from _link(_attribute(node, "src"), base, WebLinkKind.SCRIPT)
    for node in tree.css("script:not([src])"):  # in SVG a script has an `href`
        yield from _link(_attribute(node, "href") or _attribute(node, "xlink:href"), base, WebLinkKind.SCRIPT)
    for node in tree.css("link[href]"):
        relations = _attribute(node, "rel").lower().split()
        href = _attribute(node, "href")
        is_script_type = _attribute(node, "as").lower() in {"script", "worker"}
        if (
            (is_script_type and ("preload" in relations or "prefetch" in relations))
            or "modulepreload" in relations
            or ("prefetch" in relations and is_script_url(normalise_url(href, base) or ""))
        ):
            yield from _link(href, base, WebLinkKind.SCRIPT)


def _inline_script_links(tree: LexborHTMLParser, base: str, nearby: list[str]) -> Iterator[WebLink]:
    """Yield what inline scripts and import maps load; URLs are relative to `base`.

    `nearby` are URLs of other scripts of the page: their folders may contain chunks that a script names.
    """
    for node in tree.css("script:not([src])"):
        script_type = _attribute(node, "type").strip().lower()
        text = node.text(deep=True)
        if script_type in _SCRIPT_TYPES:
            yield from script_links(text.encode("utf-8", "replace"), base, base, nearby)
        elif script_type == "importmap":
            yield from _import_map_links(_parse_json(text.encode("utf-8", "replace")), base)


def _document_links(tree: LexborHTMLParser, base: str) -> Iterator[WebLink]:
    """Yield the links to frames, refresh targets, manifests, related pages, forms and anchors of a page.

    References are resolved against the URL `base`.
    """
    for node in tree.css("iframe[src], frame[src]"):
        yield from _link(_attribute(node, "src"), base, WebLinkKind.EMBEDDED)
    for node in tree.css("meta[http-equiv][content]"):
        if _attribute(node, "http-equiv").lower() == "refresh" and (
            match := _META_REFRESH.search(_attribute(node, "content"))
        ):
            yield from _link(match[1], base, WebLinkKind.EMBEDDED)
    for node in tree.css("link[href]"):
        relations = set(_attribute(node, "rel").lower().split())
        if "manifest" in relations:
            yield from _link(_attribute(node, "href"), base, WebLinkKind.EMBEDDED, expected=False)
        elif relations & _PAGE_RELATIONS and "stylesheet" not in relations:
            yield from _link(_attribute(node, "href"), base, WebLinkKind.PAGE)
    for node in tree.css("form"):
        if _attribute(node, "method").strip().lower() in {"", "get"}:
            yield from _page_link(_attribute(node, "action"), base)
    for node in tree.css("a, area"):
        yield from _page_link(_attribute(node, "href") or _attribute(node, "xlink:href"), base)


# --- Feeds and sitemaps


def xml_links(body: bytes, url: str) -> list[WebLink]:
    """Return the pages that a feed or a sitemap at `url` links to, each once.

    Only the first PAGE_LINKS references are read. Images and the like, and sign-out pages, are left out.
    """
    hrefs = [match[1] or match[2] for match in _FEED_LINK.finditer(body)]
    return _page_links([*_sitemap_locations(body), *hrefs], url)


def sitemap_links(body: bytes, url: str) -> tuple[list[str], list[str]]:
    """Return the URLs of pages, and the URLs of further sitemaps, that the sitemap at `url` lists.

    The sitemap is XML or a plain list of URLs. At least one of the two results is empty: a sitemap index
    lists sitemaps only. Each URL is returned once. Only the first PAGE_LINKS references are read; URLs of
    images and the like, and of sign-out pages, are left out.
    """
    if b"<" not in body[:_TEXT_SITEMAP_HEAD]:
        urls = [word for word in body.split() if word.lower().startswith((b"http://", b"https://"))]
        return [link.url for link in _page_links(urls, url)], []
    found = [link.url for link in _page_links(_sitemap_locations(body), url)]
    return ([], found) if _SITEMAP_INDEX.search(body) else (found, [])


def _sitemap_locations(body: bytes) -> list[bytes]:
    """Return the content of all `<loc>` elements."""
    return [match[1] for match in _SITEMAP_LOC.finditer(body)]


def _page_links(references: list[bytes], base: str) -> list[WebLink]:
    """Return the links to pages that these references of a document name, relative to `base`, each once.

    Only the first PAGE_LINKS references are read. Images and the like, and sign-out pages, are left out.
    """
    found = (
        link
        for reference in references[:PAGE_LINKS]
        for link in _page_link(html.unescape(reference.decode("utf-8", "replace")).strip(), base)
    )
    return list(dict.fromkeys(found))


# --- JSON


def json_links(body: bytes, url: str) -> list[WebLink]:
    """Return the links of a web app manifest, an import map or a bundler's manifest at `url`, each once.

    At most PAGE_LINKS are returned; [] for malformed JSON. In any JSON, a string that is the name of a script
    is a link too if it is absolute, begins with `./` or has a build hash; such links are not `expected`.
    """
    parsed = _parse_json(body)
    # Names in a bundler's manifest are relative to the build folder. Vite puts it one folder deeper.
    build_root = url.replace("/.vite/", "/")
    links: list[WebLink] = []
    if isinstance(parsed, dict):
        if "start_url" in parsed or "serviceworker" in parsed:
            links += _manifest_links(parsed, url)
        if "imports" in parsed or "scopes" in parsed:
            links += _import_map_links(parsed, url)
    for text in _json_strings(parsed):
        if is_script_url(text) and (
            text.startswith(("/", "./", "http://", "https://")) or stable_path(text) != text
        ):
            links += _link(text, build_root, WebLinkKind.SCRIPT, expected=False)
    return list(dict.fromkeys(links))[:PAGE_LINKS]


def _manifest_links(manifest: dict[str, object], url: str) -> Iterator[WebLink]:
    """Yield the start page, the shortcuts and the service worker of the web app manifest at `url`."""
    shortcuts = manifest.get("shortcuts")
    shortcut_urls = (
        [entry.get("url") for entry in shortcuts if isinstance(entry, dict)]
        if isinstance(shortcuts, list)
        else []
    )
    for value in (manifest.get("start_url"), *shortcut_urls):
        if isinstance(value, str):
            yield from _link(value, url, WebLinkKind.PAGE)
    worker = manifest.get("serviceworker")
    source = worker.get("src") if isinstance(worker, dict) else None
    if isinstance(source, str):
        yield from _link(source, url, WebLinkKind.SCRIPT)


def _import_map_links(parsed: object, base: str) -> Iterator[WebLink]:
    """Yield the scripts of a decoded import map, relative to `base`; nothing if it is not an object.

    Entries that map a folder, with a slash at the end, are skipped.
    """
    if not isinstance(parsed, dict):
        return
    scopes = parsed.get("scopes")
    for table in (parsed.get("imports"), *(scopes.values() if isinstance(scopes, dict) else ())):
        for value in table.values() if isinstance(table, dict) else ():
            if isinstance(value, str) and not value.endswith("/"):  # a value with a slash maps a folder
                yield from _link(value, base, WebLinkKind.SCRIPT)


def _json_strings(parsed: object) -> Iterator[str]:
    """Yield the strings among the first PAGE_JSON_VALUES values of a decoded document, in their order."""
    pending, count = [parsed], 0
    while pending and count < PAGE_JSON_VALUES:
        value = pending.pop()
        count += 1
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            pending += reversed(value.values())
        elif isinstance(value, list):
            pending += reversed(value)


def _parse_json(text: bytes) -> object:
    """Return decoded JSON; None if it is malformed."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
