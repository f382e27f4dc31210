"""Read source maps: find the reference to a map in a script, and the original files in a map."""

import base64
import binascii
import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes, urlsplit

import orjson

from outcrop.lazy_regex import regex
from outcrop.limits import SOURCE_MAP_REFERENCES, SOURCE_MAP_SECTIONS

_REFERENCE = b"sourceMappingURL="
_COMMENT_BEFORE = regex(rb"(?://|/\*)[#@][ \t]*$")
_COMMENT_BYTES = 12  # that may precede the reference
_VALUE = regex(rb"[^\s'\"`]+")
_DATA_URL = regex(rb"data:[\w.+-]+/[\w.+-]+((?:;[^,;]{0,64}){0,8}),", re.IGNORECASE)
_UNNAMED = "(unnamed)"


class SourceMapError(ValueError):
    """A source map is malformed."""


@dataclass(frozen=True, slots=True)
class OriginalFile:
    """A file as it was before it was bundled."""

    name: str
    content: bytes


def find_reference(script: bytes, headers: Mapping[str, str]) -> bytes | None:
    """Return the URL of a script's source map as it is written; a data URL contains the map itself.

    As in browsers, a response header in `headers` is preferred to a comment in the script. Return None if
    there is neither.
    """
    for name in ("SourceMap", "X-SourceMap"):
        if header := headers.get(name, "").strip():
            return header.encode("utf-8", "replace")
    # The last comment counts. An inline map can be long, so no regex searches the whole script.
    at = len(script)
    for _ in range(SOURCE_MAP_REFERENCES):
        at = script.rfind(_REFERENCE, 0, at)
        if at < 0:
            return None
        if not _COMMENT_BEFORE.search(script[max(0, at - _COMMENT_BYTES) : at]):
            continue
        if value := _VALUE.match(script, at + len(_REFERENCE)):
            reference = value[0].removesuffix(b"*/")
            # `data:…,` without data is in the code of a bundler, which appends the data itself.
            if reference and not reference.endswith(b","):
                return reference
    return None


def is_inline(reference: bytes) -> bool:
    """Whether the reference is a data URL, which contains the map."""
    return reference[:5].lower() == b"data:"


def decode_inline(reference: bytes) -> bytes:
    """Return the source map in a data URL; raise SourceMapError if the URL is malformed."""
    head = _DATA_URL.match(reference)
    if not head:
        raise SourceMapError("the inline source map is not a data URL")
    data = unquote_to_bytes(reference[head.end() :])
    if not head[1].lower().endswith(b";base64"):
        return data
    try:
        return base64.b64decode(data + b"=" * (-len(data) % 4))
    except binascii.Error:
        raise SourceMapError("the inline source map is not base64") from None


def original_files(raw: bytes) -> Iterator[OriginalFile]:
    """Yield the original files whose contents a source map has; raise SourceMapError if it is malformed.

    `raw` is the JSON of the map. Names are relative paths (`original_path`).
    """
    text = raw.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b")]}"):  # a first line that keeps browsers from running the map as a script
        text = text.partition(b"\n")[2]
    try:
        parsed = _parse_json(text)
    except (ValueError, RecursionError):
        raise SourceMapError("the source map is not JSON") from None
    for part in _map_sections(parsed):
        yield from _section_files(part)


def _parse_json(text: bytes) -> object:
    """Return decoded JSON; raise ValueError or RecursionError if it cannot be decoded."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # orjson refuses lone surrogates, which JavaScript strings may contain
        return json.loads(text)


def _map_sections(parsed: object) -> Iterator[dict[str, object]]:
    """Yield the maps in a decoded index map, or the map itself if it is not an index map.

    Sections without a map are skipped, and so are those after the first SOURCE_MAP_SECTIONS. Raise
    SourceMapError if `parsed` is not a JSON object.
    """
    if not isinstance(parsed, dict):
        raise SourceMapError("the source map is not a JSON object")
    sections = parsed.get("sections")
    if not isinstance(sections, list):
        yield parsed
        return
    for section in sections[:SOURCE_MAP_SECTIONS]:
        inner = section.get("map") if isinstance(section, dict) else None
        if isinstance(inner, dict):  # an index map in an index map is not allowed, so it is not followed
            yield inner


def _section_files(part: dict[str, object]) -> Iterator[OriginalFile]:
    """Yield the original files of one decoded map; files without content are skipped."""
    contents, names, root = part.get("sourcesContent"), part.get("sources"), part.get("sourceRoot")
    if not isinstance(contents, list):
        return
    names = names if isinstance(names, list) else []
    for number, content in enumerate(contents):
        if isinstance(content, str) and content:
            name = names[number] if number < len(names) else None
            path = original_path(name if isinstance(name, str) else "", root if isinstance(root, str) else "")
            yield OriginalFile(path, content.encode("utf-8", "replace"))


def original_path(name: str, root: str = "") -> str:
    """Return a relative path for an original file: `webpack:///./src/a.ts` → `src/a.ts`.

    `root` is the `sourceRoot` of the map, which precedes a relative name. Drop the bundler's scheme and the
    query, and resolve `.` and `..` without leaving the root. Return _UNNAMED if nothing remains.
    """
    if root and "://" not in name and not name.startswith("/"):
        name = f"{root.rstrip('/')}/{name}"
    scheme, separator, rest = name.partition("://")
    if separator and scheme.lower() in {"http", "https"}:
        try:
            rest = urlsplit(name).path
        except ValueError:
            rest = rest.partition("/")[2]
    elif separator:
        # webpack puts the name of the package first, which may be empty: `webpack://shop/./src/a.ts`.
        rest = rest.partition("/")[2] if scheme == "webpack" and "/" in rest else rest
    else:
        rest = name.removeprefix("webpack:")
    without_query = re.split(r"[?#]", rest.replace("\0", ""), maxsplit=1)[0]
    path = posixpath.normpath("/" + without_query.replace("\\", "/")).lstrip("/")
    return path.encode("utf-8", "replace").decode() or _UNNAMED  # JSON may contain lone surrogates
