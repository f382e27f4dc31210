"""What a page, a manifest, a feed or a table of files refers to."""

import html
import re
from collections.abc import Iterator
from itertools import chain, islice

import orjson
import re2  # type: ignore[import-untyped]
from selectolax.lexbor import LexborHTMLParser, LexborNode

from outcrop.sources.web.link import LinkKind, WebLink
from outcrop.sources.web.scripts import script_links
from outcrop.sources.web.urls import is_script_url, is_skipped_url, normalise_url, stable_path

MOST_LINKS = 20_000  # links of one document
_MOST_TAGS = 2_000_000
_NEAR = 20
# Comments, texts that are no markup, and tags. Nothing is ever read twice: what has no end ends with the page.
_ATTRIBUTES = rb"""(?:[^>=]++|=\s*+(?:"[^"]*+"?|'[^']*+'?)?+)*+(?:>|\Z)"""
_TAGS = re.compile(
    rb"<(?:!--.*?(?:-->|\Z)"
    rb"|(script)(?=[\s/>])" + _ATTRIBUTES + rb".*?(?:(</script\s*>)|\Z)"
    rb"|(?:style(?=[\s/>]).*?(?:</style|\Z)|textarea(?=[\s/>]).*?(?:</textarea|\Z)|title(?=[\s/>]).*?(?:</title|\Z))"
    rb"|(a|area|base|form|frame|iframe|link|meta)(?=[\s/>])"
    + _ATTRIBUTES
    + rb"|[a-z/!?]"
    + _ATTRIBUTES
    + rb")",
    re.IGNORECASE | re.DOTALL,
)
_FOLLOWED = {"next", "prev", "alternate", "canonical"}
_PROGRAMS = {
    "",
    "module",
    "text/javascript",
    "application/javascript",
    "text/ecmascript",
    "application/ecmascript",
    "text/babel",
}
_REFRESH = re2.compile(r"""(?i)^\s*[\d.]*\s*[;,]?\s*url\s*=\s*["']?([^"']+)""")
_LOC = re2.compile(rb"<(?:[\w.-]+:)?loc\s*>\s*(?:<!\[CDATA\[)?\s*([^<\]]+)")
_FEED_LINK = re2.compile(
    rb"""<(?:[\w.-]+:)?link\s*>\s*(?:<!\[CDATA\[)?\s*([^<\]]+)|<(?:[\w.-]+:)?link\s[^>]*?href\s*=\s*["']([^"'<>]+)["']"""
)
_SITEMAP_INDEX = re2.compile(rb"<(?:[\w.-]+:)?sitemapindex[\s>]")
_LEAVES = re2.compile(r"(?i)(?:^|/)(?:log|sign)[-_]?(?:out|off)\b")


def html_links(body: bytes, url: str) -> list[WebLink]:
    """Give what a page, whose text is UTF-8, links to and loads."""
    tree = LexborHTMLParser(_flat(body))
    base = url
    if (named := tree.css_first("base[href]")) is not None:
        base = normalise_url(_attribute(named, "href"), url) or url
    scripts = list(_scripts(tree, base))
    near = [link.url for link in scripts[:_NEAR]]
    found: dict[str, WebLink] = {}
    for link in chain(scripts, _inline(tree, base, near), _documents(tree, base)):
        found.setdefault(link.url, link)
        if len(found) >= MOST_LINKS:
            break
    found.pop(url, None)
    return list(found.values())


def _flat(body: bytes) -> bytes:
    """Keep of a page the elements that refer to something, side by side.

    A parser builds the tree that the standard asks for, and a page can be written so that this takes hours or all memory;
    a tenth of a megabyte of open elements is enough. What is looked for here needs no tree: what a template holds counts too.
    """
    kept: list[bytes] = []
    for match in islice(_TAGS.finditer(body), _MOST_TAGS):
        if match[2] or match[3]:
            kept.append(match[0] if match[2] else b"%b</%b>" % (match[0], match[3]))
            if len(kept) >= MOST_LINKS:
                break
    return b"".join(kept)


def _attribute(node: LexborNode, name: str) -> str:
    return node.attributes.get(name) or ""


def _link(reference: str, base: str, kind: LinkKind, *, sure: bool = True) -> Iterator[WebLink]:
    url = normalise_url(reference, base) if reference.strip() else None
    if url and not is_skipped_url(url):
        yield WebLink(url, LinkKind.SCRIPT if is_script_url(url) else kind, sure=sure)


def _scripts(tree: LexborHTMLParser, base: str) -> Iterator[WebLink]:
    for node in tree.css("script[src]"):
        yield from _link(_attribute(node, "src"), base, LinkKind.SCRIPT)
    for node in tree.css("script:not([src])"):  # in a drawing it is a link as others are
        yield from _link(_attribute(node, "href") or _attribute(node, "xlink:href"), base, LinkKind.SCRIPT)
    for node in tree.css("link[href]"):
        words = _attribute(node, "rel").lower().split()
        target = _attribute(node, "href")
        loaded = _attribute(node, "as").lower() in {"script", "worker"} and {"preload", "prefetch"} & set(
            words
        )
        if (
            loaded
            or "modulepreload" in words
            or ("prefetch" in words and is_script_url(normalise_url(target, base) or ""))
        ):
            yield from _link(target, base, LinkKind.SCRIPT)


def _inline(tree: LexborHTMLParser, base: str, near: list[str]) -> Iterator[WebLink]:
    for node in tree.css("script:not([src])"):
        kind = _attribute(node, "type").strip().lower()
        text = node.text(deep=True)
        if kind in _PROGRAMS:
            yield from script_links(text.encode("utf-8", "replace"), base, base, near)
        elif kind == "importmap":
            yield from _import_map(_json(text.encode("utf-8", "replace")), base)


def _documents(tree: LexborHTMLParser, base: str) -> Iterator[WebLink]:
    for node in tree.css("iframe[src], frame[src]"):
        yield from _link(_attribute(node, "src"), base, LinkKind.PART)
    for node in tree.css("meta[http-equiv][content]"):
        if _attribute(node, "http-equiv").lower() == "refresh" and (
            match := _REFRESH.search(_attribute(node, "content"))
        ):
            yield from _link(match[1], base, LinkKind.PART)
    for node in tree.css("link[href]"):
        words = set(_attribute(node, "rel").lower().split())
        if "manifest" in words:
            yield from _link(_attribute(node, "href"), base, LinkKind.PART, sure=False)
        elif words & _FOLLOWED and "stylesheet" not in words:
            yield from _link(_attribute(node, "href"), base, LinkKind.PAGE)
    for node in tree.css("form"):
        if _attribute(node, "method").strip().lower() in {"", "get"}:
            yield from _page(_attribute(node, "action"), base)
    for node in tree.css("a, area"):
        yield from _page(_attribute(node, "href") or _attribute(node, "xlink:href"), base)


def _page(reference: str, base: str) -> Iterator[WebLink]:
    """Follow a link, but not one that would end our own session."""
    if not _LEAVES.search(reference):
        yield from _link(reference, base, LinkKind.PAGE)


def xml_links(body: bytes, url: str) -> list[WebLink]:
    """Give the pages that a feed or a sitemap names."""
    named = [match[1] or match[2] for match in _FEED_LINK.finditer(body)]
    return _spelled([*_located(body), *named], url)


def sitemap_links(body: bytes, url: str) -> tuple[list[str], list[str]]:
    """Give the pages and the further sitemaps that a sitemap names; one may be a plain list of whole addresses."""
    if b"<" not in body[:1_024]:
        named = [word for word in body.split() if word.lower().startswith((b"http://", b"https://"))]
        return [link.url for link in _spelled(named, url)], []
    found = [link.url for link in _spelled(_located(body), url)]
    return ([], found) if _SITEMAP_INDEX.search(body) else (found, [])


def _located(body: bytes) -> list[bytes]:
    return [match[1] for match in _LOC.finditer(body)]


def _spelled(names: list[bytes], base: str) -> list[WebLink]:
    found = (
        link
        for name in names[:MOST_LINKS]
        for link in _page(html.unescape(name.decode("utf-8", "replace")).strip(), base)
    )
    return list(dict.fromkeys(found))


def json_links(body: bytes, url: str) -> list[WebLink]:
    """Give what a web app's manifest, a bundler's table of files or an import map refers to; other data refers to nothing."""
    parsed = _json(body)
    root = url.replace(
        "/.vite/", "/"
    )  # a table of files counts from the root of the build, where it lies itself, or in this folder
    links: list[WebLink] = []
    if isinstance(parsed, dict):
        if "start_url" in parsed or "serviceworker" in parsed:
            links += _web_app(parsed, url)
        if "imports" in parsed or "scopes" in parsed:
            links += _import_map(parsed, url)
    for text in _strings(parsed):
        if is_script_url(text) and (
            text.startswith(("/", "./", "http://", "https://")) or stable_path(text) != text
        ):
            links += _link(text, root, LinkKind.SCRIPT, sure=False)
    return list(dict.fromkeys(links))[:MOST_LINKS]


def _web_app(manifest: dict[str, object], url: str) -> Iterator[WebLink]:
    shortcuts = manifest.get("shortcuts")
    inner = (
        [entry.get("url") for entry in shortcuts if isinstance(entry, dict)]
        if isinstance(shortcuts, list)
        else []
    )
    for value in (manifest.get("start_url"), *inner):
        if isinstance(value, str):
            yield from _link(value, url, LinkKind.PAGE)
    worker = manifest.get("serviceworker")
    source = worker.get("src") if isinstance(worker, dict) else None
    if isinstance(source, str):
        yield from _link(source, url, LinkKind.SCRIPT)


def _import_map(parsed: object, base: str) -> Iterator[WebLink]:
    if not isinstance(parsed, dict):
        return
    scopes = parsed.get("scopes")
    for table in (parsed.get("imports"), *(scopes.values() if isinstance(scopes, dict) else ())):
        for value in table.values() if isinstance(table, dict) else ():
            if isinstance(value, str) and not value.endswith("/"):  # such a value is a folder
                yield from _link(value, base, LinkKind.SCRIPT)


def _strings(parsed: object) -> Iterator[str]:
    ahead, seen = [parsed], 0
    while ahead and seen < 200_000:
        value = ahead.pop()
        seen += 1
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            ahead += reversed(value.values())
        elif isinstance(value, list):
            ahead += reversed(value)


def _json(text: bytes) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
