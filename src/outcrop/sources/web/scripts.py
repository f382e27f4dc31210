"""Find the URLs that a script loads: modules, workers, bundler chunks, and data from fixed addresses.

Scripts are untrusted and can be megabytes long, so all patterns run in RE2, whose time is linear.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any
from urllib.parse import urlsplit

import re2  # type: ignore[import-untyped]

from outcrop.limits import SCRIPT_LINKS, SCRIPT_MATCHES
from outcrop.sources.web.asset_names import stable_path
from outcrop.sources.web.urls import (
    WebLink,
    WebLinkKind,
    is_script_url,
    is_skipped_url,
    normalise_url,
    url_origin,
    url_path,
)

_QUOTED = rb"""["'`]([^"'`\\\s<>]+)["'`]"""
_COMMENTS = rb"(?:/\*[^*]*\*/\s*)*"
_IMPORT = re2.compile(rb"\b(?:import\s*\(?|from)\s*" + _COMMENTS + _QUOTED)
_WORKER = re2.compile(rb"\bnew\s+(?:Shared)?Worker\s*\(\s*(new\s+URL\s*\(\s*)?" + _COMMENTS + _QUOTED)
_SERVICE_WORKER = re2.compile(rb"\bserviceWorker\s*\??\.\s*register\s*\(\s*" + _QUOTED)
_IMPORT_SCRIPTS = re2.compile(rb"\bimportScripts\s*\(([^)]*)\)")
_SRC_ASSIGNMENT = re2.compile(rb"\.src\s*=\s*" + _QUOTED)
_STRING = re2.compile(_QUOTED)
# A string that is the name of a script. Inside another string its quotes are escaped.
_SCRIPT_NAME = re2.compile(rb"""["'`]([^"'`\\\s<>{}()]*\.m?js)\\*["'`]""")

# The file names of webpack chunks: "static/js/"+({7:"home"}[e]||e)+"."+{7:"3f9a12bc"}[e]+".chunk.js"
_IDENTIFIER = rb"[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*"
_STR = rb"""(?:"[^"\\\n]*"|'[^'\\\n]*')"""
_PAIR = rb"([\w$]+|" + _STR + rb")\s*:\s*(" + _STR + rb")"
_OBJECT = rb"\{\s*(?:(?:[\w$]+|" + _STR + rb")\s*:\s*" + _STR + rb"\s*,?\s*)+\}"
_LOOKUP = (
    rb"(?:\(\s*)*"
    + _OBJECT
    + rb"\s*\)*\s*\[\s*"
    + _IDENTIFIER
    + rb"\s*\](?:\s*\)*\s*\|\|\s*"
    + _IDENTIFIER
    + rb")?\s*\)*"
)
_PART = rb"(?:" + _STR + rb"|" + _LOOKUP + rb"|" + _IDENTIFIER + rb")"
_CHUNK_NAME = re2.compile(rb"(?:" + _PART + rb"\s*\+\s*)+(?:\"[^\"\\\n]*\.m?js\"|'[^'\\\n]*\.m?js')")
_CHUNK_NAME_PART = re2.compile(rb"(" + _STR + rb")|(" + _LOOKUP + rb")|" + _IDENTIFIER)
_TEMPLATE = re2.compile(
    rb"`(?:[^`$\\]*\$\{\s*(?:" + _LOOKUP + rb"|" + _IDENTIFIER + rb")\s*\})+[^`$\\]*\.m?js`"
)
_TEMPLATE_PART = re2.compile(rb"([^`$\\]+)|\$\{\s*(" + _LOOKUP + rb")\s*\}|\$\{\s*" + _IDENTIFIER + rb"\s*\}")
_PAIRS = re2.compile(_PAIR)
_PUBLIC_PATH = re2.compile(rb"\b[A-Za-z_$][\w$]*\.p\s*=\s*(" + _STR + rb")")

_FETCH = re2.compile(
    rb"(\bfetch|\baxios|\baxios\.get|\$\.get|\$\.getJSON|\bjQuery\.getJSON)\s*\(\s*" + _QUOTED + rb"\s*([,)])"
)
_XHR_OPEN = re2.compile(rb"""\.open\s*\(\s*["'](?i:GET)["']\s*,\s*""" + _QUOTED + rb"\s*[,)]")
# Options of a call that make it no plain GET, or may do so.
_NO_PLAIN_GET = re2.compile(
    rb"""\b(?:body|data)\s*:|\bmethod\s*:\s*(?:[^"'`\s]|["'`](?i:POST|PUT|PATCH|DELETE|HEAD|OPTIONS))|\.\.\."""
)
_MAX_OPTIONS_BYTES = 300  # of a call's options that are read
_VARIABLE = re2.compile(rb"[{}*|]|\$|/:")  # a placeholder that the script replaces
# Words in a path whose GET may change something on the server.
_RISKY_PATH = re2.compile(
    r"(?i)(?:log|sign)[-_]?(?:out|off)|delete|remove|destroy|unsubscribe|revoke|reset|cancel"
)


def script_links(body: bytes, url: str, page: str, nearby: Sequence[str] = ()) -> list[WebLink]:
    """Return the links of the script at `url`, each URL once, at most SCRIPT_LINKS, without `url` itself.

    `page` is the URL of the page that loaded the script. `nearby` are URLs of other scripts of that page:
    their folders may contain the chunks that this script names. A link that is only guessed is not
    `expected`.
    """
    found: dict[str, WebLink] = {}
    for link in chain(
        _loaded_scripts(body, url, page),
        _chunk_links(body, url, nearby),
        _named_scripts(body, url, nearby),
        _requested_data(body, page),
    ):
        known = found.get(link.url)
        if known is None or (link.expected and not known.expected):
            found[link.url] = link
        if len(found) >= SCRIPT_LINKS:
            break
    found.pop(url, None)
    return list(found.values())


def _matches(pattern: Any, body: bytes) -> Iterator[Any]:
    """Yield the first SCRIPT_MATCHES matches of an RE2 pattern."""
    return islice(pattern.finditer(body), SCRIPT_MATCHES)


def _complete_matches(pattern: Any, body: bytes) -> Iterator[Any]:
    """Yield the matches of an RE2 pattern that no `+` follows, which would append to the string.

    Only the first SCRIPT_MATCHES matches are read.
    """
    return (
        match for match in _matches(pattern, body) if body[match.end() : match.end() + 8].lstrip()[:1] != b"+"
    )


# --- Scripts that a call or an assignment loads


def _loaded_scripts(body: bytes, url: str, page: str) -> Iterator[WebLink]:
    """Yield the scripts that imports, workers, `importScripts` and assignments to `src` load.

    As in browsers, some names are relative to the script (`url`) and others to the page that loaded it
    (`page`).
    """
    for match in _complete_matches(_IMPORT, body):
        if match[1].startswith((b"./", b"../", b"/", b"http:", b"https:")):  # other names are packages
            yield from _script_link(match[1], url)
    for match in _complete_matches(_WORKER, body):
        yield from _script_link(match[2], url if match[1] else page)
    for match in _complete_matches(_SERVICE_WORKER, body):
        yield from _script_link(match[1], page)
    for match in _matches(_IMPORT_SCRIPTS, body):
        for argument in _complete_matches(_STRING, match[1]):
            yield from _script_link(argument[1], url)
    for match in _complete_matches(_SRC_ASSIGNMENT, body):
        yield from (link for link in _script_link(match[1], page) if is_script_url(link.url))


def _script_link(name: bytes, base: str) -> Iterator[WebLink]:
    """Yield the link to a script, relative to the URL `base`.

    Yield nothing if the name is no http URL, has a placeholder `${`, or has the extension of an image or the
    like.
    """
    url = normalise_url(name.decode("utf-8", "replace"), base)
    if url and b"${" not in name and not is_skipped_url(url):
        yield WebLink(url, WebLinkKind.SCRIPT)


# --- Scripts that are named in strings


def _named_scripts(body: bytes, url: str, nearby: Sequence[str]) -> Iterator[WebLink]:
    """Yield the scripts whose names are strings, if their origin is that of this or a nearby script.

    `url` is the URL of this script, and `nearby` are those of other scripts of the page. Strings that are the
    key of an object, or only the end of a name, are skipped. The links are not `expected`.
    """
    origins = {url_origin(script) for script in (url, *nearby)}
    for match in _complete_matches(_SCRIPT_NAME, body):
        before = body[max(0, match.start() - 8) : match.start()].rstrip(b" \t\n\\")[-1:]
        after = body[match.end() : match.end() + 8].lstrip()[:1]
        is_end_of_name = before == b"+"
        is_key = after == b":" and before in {b"{", b","}
        if is_end_of_name or is_key:
            continue
        resolved = _resolve_name(match[1].decode("utf-8", "replace"), url, nearby)
        if resolved and url_origin(resolved) in origins:
            yield WebLink(resolved, WebLinkKind.SCRIPT, expected=False)


def _resolve_name(name: str, url: str, nearby: Sequence[str]) -> str | None:
    """Return the URL of a script's name, or None if the name does not say where the script is.

    The name says so if it is absolute, if its first folder is one of this script (`url`) or a nearby one, or
    if it has a build hash and is in the folder of this script or begins with `./` or `../`.
    """
    if name.startswith(("/", "http://", "https://")):
        return normalise_url(name, url)
    has_hash = stable_path(name) != name
    if name.startswith("."):  # without a hash it names a module inside the bundle
        return normalise_url(name, url) if has_hash and name.startswith(("./", "../")) else None
    return _resolve_in_shared_folder(name, url, nearby) or (
        normalise_url(name, url) if has_hash and "/" not in name else None
    )


def _resolve_in_shared_folder(name: str, url: str, nearby: Sequence[str]) -> str | None:
    """Return the URL of a name such as `static/js/a.js`, resolved at the folder `static` of a known script.

    The folder is searched for in the path of this script (`url`), then in those of the nearby ones. Return
    None if none of them has that folder, or the name has no folder.
    """
    first, slash, _ = name.partition("/")
    for script in (url, *nearby) if slash else ():
        folders = url_path(script).split("/")[:-1]
        if first and first in folders:
            at = len(folders) - 1 - folders[::-1].index(first)
            return normalise_url("/".join([*folders[:at], name]), script)
    return None


# --- Chunks whose names a bundler's runtime builds from tables


def _chunk_links(body: bytes, url: str, nearby: Sequence[str]) -> Iterator[WebLink]:
    """Yield the chunks whose names the bundler's runtime concatenates from strings and tables.

    The names are relative to the public path that the script sets. Without one they are resolved at a folder
    of this script (`url`) or a nearby one, or else against `url`. The links are not `expected`.
    """
    public_path = _PUBLIC_PATH.search(body)
    root = public_path[1][1:-1].decode("utf-8", "replace") if public_path else ""
    base = normalise_url(root, url) if root else None
    for expression, part_pattern in ((_CHUNK_NAME, _CHUNK_NAME_PART), (_TEMPLATE, _TEMPLATE_PART)):
        for match in _matches(expression, body):
            for name in _chunk_names([(part[1], part[2]) for part in part_pattern.finditer(match[0])]):
                resolved = (
                    normalise_url(name, base)
                    if base
                    else _resolve_in_shared_folder(name, url, nearby) or normalise_url(name, url)
                )
                if resolved:
                    yield WebLink(resolved, WebLinkKind.SCRIPT, expected=False)


def _chunk_names(parts: list[tuple[bytes | None, bytes | None]]) -> Iterator[str]:
    """Yield the name of each chunk that an expression builds, at most SCRIPT_LINKS.

    Each part of the expression is (string, None), (None, table) or, for an identifier, (None, None). An
    identifier is the chunk's id. As the first part it is dropped as the public path, unless there is only one
    more part besides the tables. A table with `||id` lists only some chunks: the ids are the keys of the
    other tables if there are any. Without tables nothing is yielded.
    """
    tables = [(dict(_table_pairs(table)), b"||" in table) for _, table in parts if table]
    complete_tables = [rows for rows, is_partial in tables if not is_partial]
    ids = dict.fromkeys(key for rows in complete_tables or [rows for rows, _ in tables] for key in rows)
    for chunk_id in islice(ids, SCRIPT_LINKS):
        name, remaining = "", iter(tables)
        for position, (text, table) in enumerate(parts):
            if table:
                name += next(remaining)[0].get(chunk_id, chunk_id)
            elif text:
                name += _unquote(text)
            elif position or len(parts) == len(tables) + 2:  # a first identifier is the public path: `r.p+`
                name += chunk_id
        yield name


def _table_pairs(table: bytes) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of a JavaScript object literal, without quotes.

    A key such as `1e3`, as minifiers write it, is yielded as `1000`.
    """
    for match in _matches(_PAIRS, table):
        key = _unquote(match[1])
        digits, exponent, zeros = key.partition("e")
        if exponent and digits.isdigit() and zeros.isdigit() and int(zeros) < 10:
            key = digits + "0" * int(zeros)
        yield key, _unquote(match[2])


def _unquote(text: bytes) -> str:
    """Return the text without its quotes, if it has any."""
    return (text[1:-1] if text[:1] in b"\"'" else text).decode("utf-8", "replace")


# --- Data


def _requested_data(body: bytes, page: str) -> Iterator[WebLink]:
    """Yield what the script requests by a plain GET of a fixed address, relative to the URL `page`.

    The links are not `expected`.
    """
    for match in _matches(_FETCH, body):
        if match[3] == b"," and match[1] in {b"fetch", b"axios"}:
            options = body[match.end() : match.end() + _MAX_OPTIONS_BYTES].lstrip()
            if not options.startswith(b"{") or _NO_PLAIN_GET.search(options.partition(b"}")[0]):
                continue
        yield from _data_link(match[2], page)
    for match in _matches(_XHR_OPEN, body):
        yield from _data_link(match[1], page)


def _data_link(name: bytes, page: str) -> Iterator[WebLink]:
    """Yield the link to data at the address `name`, relative to the URL `page`; it is not `expected`.

    Yield nothing if the address is no http URL, has placeholders or the extension of an image or the like, or
    if a word in its path means that a GET may change something.
    """
    url = normalise_url(name.decode("utf-8", "replace"), page)
    if (
        url
        and not _VARIABLE.search(name)
        and not _RISKY_PATH.search(urlsplit(url).path)
        and not is_skipped_url(url)
    ):
        kind = WebLinkKind.SCRIPT if is_script_url(url) else WebLinkKind.EMBEDDED
        yield WebLink(url, kind, expected=False)
