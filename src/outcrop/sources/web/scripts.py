"""What a script loads: modules, workers and chunks by every way that bundlers write them, and the data it plainly asks for.

Scripts of strangers are megabytes long: every pattern here runs in an engine that is linear in time.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any
from urllib.parse import urlsplit

import re2  # type: ignore[import-untyped]

from outcrop.sources.web.link import LinkKind, WebLink
from outcrop.sources.web.urls import (
    is_script_url,
    is_skipped_url,
    normalise_url,
    stable_path,
    url_origin,
    url_path,
)

_MOST = 5_000  # links of one script
_MOST_MATCHES = 20_000  # of one pattern; what is written to keep us busy ends here

_QUOTED = rb"""["'`]([^"'`\\\s<>]+)["'`]"""
_COMMENTS = rb"(?:/\*[^*]*\*/\s*)*"
_IMPORT = re2.compile(rb"\b(?:import\s*\(?|from)\s*" + _COMMENTS + _QUOTED)
_WORKER = re2.compile(rb"\bnew\s+(?:Shared)?Worker\s*\(\s*(new\s+URL\s*\(\s*)?" + _COMMENTS + _QUOTED)
_REGISTER = re2.compile(rb"\bserviceWorker\s*\??\.\s*register\s*\(\s*" + _QUOTED)
_IMPORT_SCRIPTS = re2.compile(rb"\bimportScripts\s*\(([^)]*)\)")
_SOURCE = re2.compile(rb"\.src\s*=\s*" + _QUOTED)
_EACH = re2.compile(_QUOTED)
# A string that is a script's name; inside another string its quotes are escaped.
_NAME = re2.compile(rb"""["'`]([^"'`\\\s<>{}()]*\.m?js)\\*["'`]""")

# webpack's runtime: "static/js/"+({7:"home"}[e]||e)+"."+{7:"3f9a12bc"}[e]+".chunk.js"
_ID = rb"[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*"
_STR = rb"""(?:"[^"\\\n]*"|'[^'\\\n]*')"""
_PAIR = rb"([\w$]+|" + _STR + rb")\s*:\s*(" + _STR + rb")"
_OBJECT = rb"\{\s*(?:(?:[\w$]+|" + _STR + rb")\s*:\s*" + _STR + rb"\s*,?\s*)+\}"
_LOOKUP = (
    rb"(?:\(\s*)*" + _OBJECT + rb"\s*\)*\s*\[\s*" + _ID + rb"\s*\](?:\s*\)*\s*\|\|\s*" + _ID + rb")?\s*\)*"
)
_PART = rb"(?:" + _STR + rb"|" + _LOOKUP + rb"|" + _ID + rb")"
_CHUNKS = re2.compile(rb"(?:" + _PART + rb"\s*\+\s*)+(?:\"[^\"\\\n]*\.m?js\"|'[^'\\\n]*\.m?js')")
_CHUNK_PART = re2.compile(rb"(" + _STR + rb")|(" + _LOOKUP + rb")|" + _ID)
_TEMPLATE = re2.compile(rb"`(?:[^`$\\]*\$\{\s*(?:" + _LOOKUP + rb"|" + _ID + rb")\s*\})+[^`$\\]*\.m?js`")
_TEMPLATE_PART = re2.compile(rb"([^`$\\]+)|\$\{\s*(" + _LOOKUP + rb")\s*\}|\$\{\s*" + _ID + rb"\s*\}")
_PAIRS = re2.compile(_PAIR)
_PUBLIC_PATH = re2.compile(rb"\b[A-Za-z_$][\w$]*\.p\s*=\s*(" + _STR + rb")")

_ASKS = re2.compile(
    rb"(\bfetch|\baxios|\baxios\.get|\$\.get|\$\.getJSON|\bjQuery\.getJSON)\s*\(\s*" + _QUOTED + rb"\s*([,)])"
)
_OPENS = re2.compile(rb"""\.open\s*\(\s*["'](?i:GET)["']\s*,\s*""" + _QUOTED + rb"\s*[,)]")
_CHANGES = re2.compile(
    rb"""\b(?:body|data)\s*:|\bmethod\s*:\s*(?:[^"'`\s]|["'`](?i:POST|PUT|PATCH|DELETE|HEAD|OPTIONS))|\.\.\."""
)
_OPTIONS = 300  # how far the options of a call are read
_VARIABLE = re2.compile(rb"[{}*|]|\$|/:")  # a part of the address is put in later
_RISKY = re2.compile(
    r"(?i)(?:log|sign)[-_]?(?:out|off)|delete|remove|destroy|unsubscribe|revoke|reset|cancel"
)


def script_links(body: bytes, url: str, page: str, near: Sequence[str] = ()) -> list[WebLink]:
    """Give what a script loads. `page` is where it was loaded; `near` are scripts whose folders its chunks may lie in."""
    found: dict[str, WebLink] = {}
    for link in chain(
        _loads(body, url, page), _chunks(body, url, near), _names(body, url, near), _asked(body, page)
    ):
        known = found.get(link.url)
        if known is None or (link.sure and not known.sure):
            found[link.url] = link
        if len(found) >= _MOST:
            break
    found.pop(url, None)
    return list(found.values())


def _all(pattern: Any, body: bytes) -> Iterator[Any]:
    return islice(pattern.finditer(body), _MOST_MATCHES)


def _complete(pattern: Any, body: bytes) -> Iterator[Any]:
    """Give the matches after which nothing is added to the string."""
    return (
        match for match in _all(pattern, body) if body[match.end() : match.end() + 8].lstrip()[:1] != b"+"
    )


def _loads(body: bytes, url: str, page: str) -> Iterator[WebLink]:
    """Give what is loaded by a call that says so."""
    for match in _complete(_IMPORT, body):
        if match[1].startswith((b"./", b"../", b"/", b"http:", b"https:")):  # another name is a package's
            yield from _script(match[1], url)
    for match in _complete(_WORKER, body):
        yield from _script(match[2], url if match[1] else page)
    for match in _complete(_REGISTER, body):
        yield from _script(match[1], page)
    for match in _all(_IMPORT_SCRIPTS, body):
        for each in _complete(_EACH, match[1]):
            yield from _script(each[1], url)
    for match in _complete(_SOURCE, body):
        yield from (link for link in _script(match[1], page) if is_script_url(link.url))


def _script(name: bytes, base: str, *, sure: bool = True) -> Iterator[WebLink]:
    url = normalise_url(name.decode("utf-8", "replace"), base)
    if url and b"${" not in name and not is_skipped_url(url):
        yield WebLink(url, LinkKind.SCRIPT, sure=sure)


def _names(body: bytes, url: str, near: Sequence[str]) -> Iterator[WebLink]:
    """Give the scripts of the same origin that strings name; of a name that leads nowhere nothing is guessed."""
    origins = {url_origin(place) for place in (url, *near)}
    for match in _complete(_NAME, body):
        before = body[max(0, match.start() - 8) : match.start()].rstrip(b" \t\n\\")[-1:]
        after = body[match.end() : match.end() + 8].lstrip()[:1]
        if before == b"+" or (after == b":" and before in {b"{", b","}):  # the end of a name; a key
            continue
        resolved = _placed(match[1].decode("utf-8", "replace"), url, near)
        if resolved and url_origin(resolved) in origins:
            yield WebLink(resolved, LinkKind.SCRIPT, sure=False)


def _placed(name: str, url: str, near: Sequence[str]) -> str | None:
    """Find where a script's name leads: by itself, by a folder that it shares with a script, by its hash."""
    if name.startswith(("/", "http://", "https://")):
        return normalise_url(name, url)
    hashed = stable_path(name) != name
    if name.startswith("."):  # without a hash it is a module's name inside the bundle
        return normalise_url(name, url) if hashed and name.startswith(("./", "../")) else None
    return _beside(name, url, near) or (normalise_url(name, url) if hashed and "/" not in name else None)


def _beside(name: str, url: str, near: Sequence[str]) -> str | None:
    """Resolve `static/js/a.js` at the folder `static` of a script that lies in one."""
    first, slash, _ = name.partition("/")
    for place in (url, *near) if slash else ():
        folders = url_path(place).split("/")[:-1]
        if first and first in folders:
            at = len(folders) - 1 - folders[::-1].index(first)
            return normalise_url("/".join([*folders[:at], name]), place)
    return None


def _chunks(body: bytes, url: str, near: Sequence[str]) -> Iterator[WebLink]:
    """Give the chunks whose names the runtime puts together from tables."""
    public = _PUBLIC_PATH.search(body)
    root = public[1][1:-1].decode("utf-8", "replace") if public else ""
    for whole, each in ((_CHUNKS, _CHUNK_PART), (_TEMPLATE, _TEMPLATE_PART)):
        for match in _all(whole, body):
            for name in _put_together([(part[1], part[2]) for part in each.finditer(match[0])]):
                base = normalise_url(root, url) if root else None
                resolved = (
                    normalise_url(name, base)
                    if base
                    else _beside(name, url, near) or normalise_url(name, url)
                )
                if resolved:
                    yield WebLink(resolved, LinkKind.SCRIPT, sure=False)


def _put_together(parts: list[tuple[bytes | None, bytes | None]]) -> Iterator[str]:
    """Write out a chunk's name for every id that the tables hold. A part is a string, a table, or the id itself."""
    tables = [dict(_pairs(table)) for _, table in parts if table]
    whole = [
        rows
        for rows, (_, table) in zip(tables, (part for part in parts if part[1]), strict=True)
        if b"||" not in (table or b"")
    ]
    ids = dict.fromkeys(key for rows in whole or tables for key in rows)
    for number, key in enumerate(ids):
        if number >= _MOST:
            return
        name, rest = "", iter(tables)
        for position, (text, table) in enumerate(parts):
            if table:
                name += next(rest).get(key, key)
            elif text:
                name += _plain(text)
            elif position or len(parts) == len(tables) + 2:  # what stands first is the public path, `r.p+`
                name += key
        yield name


def _pairs(table: bytes) -> Iterator[tuple[str, str]]:
    for match in _all(_PAIRS, table):
        key = _plain(match[1])
        digits, exponent, zeros = key.partition("e")
        if (
            exponent and digits.isdigit() and zeros.isdigit() and int(zeros) < 10
        ):  # minifiers write 1000 as 1e3
            key = digits + "0" * int(zeros)
        yield key, _plain(match[2])


def _plain(text: bytes) -> str:
    return (text[1:-1] if text[:1] in b"\"'" else text).decode("utf-8", "replace")


def _asked(body: bytes, page: str) -> Iterator[WebLink]:
    """Give what is asked for by a plain GET of a fixed address."""
    for match in _all(_ASKS, body):
        if match[3] == b"," and match[1] in {b"fetch", b"axios"}:
            options = body[match.end() : match.end() + _OPTIONS].lstrip()
            if not options.startswith(b"{") or _CHANGES.search(options.partition(b"}")[0]):
                continue
        yield from _document(match[2], page)
    for match in _all(_OPENS, body):
        yield from _document(match[1], page)


def _document(name: bytes, page: str) -> Iterator[WebLink]:
    url = normalise_url(name.decode("utf-8", "replace"), page)
    if (
        url
        and not _VARIABLE.search(name)
        and not _RISKY.search(urlsplit(url).path)
        and not is_skipped_url(url)
    ):
        yield WebLink(url, LinkKind.SCRIPT if is_script_url(url) else LinkKind.PART, sure=False)
