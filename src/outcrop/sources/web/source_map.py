"""Source maps: where a script names its own, and the original files that one holds."""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes, urlsplit

import orjson

from outcrop.sources.web.urls import clean_path

_MARK = b"sourceMappingURL="
_BEFORE = re.compile(rb"(?://|/\*)[#@][ \t]*$")
_VALUE = re.compile(rb"[^\s'\"`]+")
_DATA = re.compile(rb"data:[\w.+-]+/[\w.+-]+((?:;[^,;]{0,64}){0,8}),", re.IGNORECASE)
_MOST_MARKS = 16
_MOST_SECTIONS = 10_000
_UNNAMED = "(unnamed)"


class SourceMapError(ValueError):
    """Something that is said to be a source map and is none."""


@dataclass(frozen=True, slots=True)
class OriginalFile:
    """A file as it was before it was bundled."""

    name: str
    content: bytes


def reference(script: bytes, headers: Mapping[str, str]) -> bytes | None:
    """Give the address of a script's map as it is written, an inline map whole; the header wins, as in browsers."""
    for name in ("SourceMap", "X-SourceMap"):
        if header := headers.get(name, "").strip():
            return header.encode("utf-8", "replace")
    # The last one counts. An inline map is as long as the script, so it is not looked for with a pattern over all of it.
    at = len(script)
    for _ in range(_MOST_MARKS):
        at = script.rfind(_MARK, 0, at)
        if at < 0:
            return None
        if _BEFORE.search(script[max(0, at - 12) : at]) and (found := _VALUE.match(script, at + len(_MARK))):
            named = found[0].removesuffix(b"*/")
            if named and not named.endswith(
                b","
            ):  # a program that writes such comments: its data is put together later
                return named
    return None


def is_inline(named: bytes) -> bool:
    return named[:5].lower() == b"data:"


def inline_map(named: bytes) -> bytes:
    """Decode a map that stands in its own address."""
    head = _DATA.match(named)
    if not head:
        raise SourceMapError("the inline source map is not a data address")
    data = unquote_to_bytes(named[head.end() :])
    if not head[1].lower().endswith(b";base64"):
        return data
    try:
        return base64.b64decode(data + b"=" * (-len(data) % 4))
    except binascii.Error:
        raise SourceMapError("the inline source map is not base64") from None


def originals(raw: bytes) -> Iterator[OriginalFile]:
    """Give the original files that a map holds, each with its name made plain."""
    text = raw.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b")]}"):  # a guard against being run as a script: the first line is no part of the map
        text = text.partition(b"\n")[2]
    try:
        parsed = _json(text)
    except (ValueError, RecursionError):
        raise SourceMapError("the source map is not JSON") from None
    for part in _maps(parsed):
        yield from _of_one(part)


def _json(text: bytes) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # half of a surrogate pair is no text, but JavaScript has it
        return json.loads(text)


def _maps(parsed: object) -> Iterator[dict[str, object]]:
    """Give the maps of an index map, or the one map itself."""
    if not isinstance(parsed, dict):
        raise SourceMapError("the source map is not an object")
    sections = parsed.get("sections")
    if not isinstance(sections, list):
        yield parsed
        return
    for section in sections[:_MOST_SECTIONS]:
        inner = section.get("map") if isinstance(section, dict) else None
        if isinstance(inner, dict):  # a section's own sections are not allowed, and not followed
            yield inner


def _of_one(part: dict[str, object]) -> Iterator[OriginalFile]:
    contents, names, root = part.get("sourcesContent"), part.get("sources"), part.get("sourceRoot")
    if not isinstance(contents, list):
        return
    names = names if isinstance(names, list) else []
    for number, content in enumerate(contents):
        if isinstance(content, str) and content:
            name = names[number] if number < len(names) else None
            plain = plain_name(name if isinstance(name, str) else "", root if isinstance(root, str) else "")
            yield OriginalFile(plain, content.encode("utf-8", "replace"))


def plain_name(name: str, root: str = "") -> str:
    """Give an original's name without the bundler's scheme and query, never above the root: `webpack:///./src/a.ts` → `src/a.ts`."""
    if root and "://" not in name and not name.startswith("/"):
        name = f"{root.rstrip('/')}/{name}"
    scheme, separator, rest = name.partition("://")
    if separator and scheme.lower() in {"http", "https"}:
        try:
            rest = urlsplit(name).path
        except ValueError:
            rest = rest.partition("/")[2]
    elif separator:
        # What follows is a package's name for webpack, and often nothing: `webpack://shop/./src/a.ts`, `webpack:///src/a.ts`.
        rest = rest.partition("/")[2] if scheme == "webpack" and "/" in rest else rest
    else:
        rest = name.removeprefix("webpack:")
    path = clean_path(re.split(r"[?#]", rest.replace("\0", ""), maxsplit=1)[0])
    return path.encode("utf-8", "replace").decode() or _UNNAMED  # JSON can hold halves of characters
