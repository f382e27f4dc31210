"""Detect the format of a report from its first bytes."""

import re

from outcrop.domain.errors import BadInputError
from outcrop.lazy_regex import regex
from outcrop.services.exchange.formats.csv_table import BOM, looks_like_csv
from outcrop.services.exchange.formats.names import ImportFormat

# A string, with the colon that follows a key, or a bracket. Group 1 is empty if the string does not end.
_TOKEN = regex(rb'"((?:[^"\\]|\\.)*)("?)(\s*:)?|[\[\]{}]', re.DOTALL)
_MAX_DEPTH = 4
_SCALAR = regex(rb'\s*"?([\w.+-]{1,40})')
# The keys that show a format. `[]` is an element of an array. The first entry that is contained in the file's
# keys counts, so that special formats come before general ones.
_SIGNS: list[tuple[set[str], ImportFormat]] = [
    ({"[].RuleID"}, ImportFormat.GITLEAKS),
    ({"[].locations_url", "[].secret_type"}, ImportFormat.GITHUB),
    ({"[][].locations_url", "[][].secret_type"}, ImportFormat.GITHUB),
    ({"[].number", "[].secret_type"}, ImportFormat.GITHUB),
    ({"[].DetectorName"}, ImportFormat.TRUFFLEHOG),
    ({"[].fingerprint", "[].matched_text"}, ImportFormat.OUTCROP),
    ({"fingerprint", "matched_text"}, ImportFormat.OUTCROP),
    ({"locations_url", "secret_type"}, ImportFormat.GITHUB),
    ({"DetectorName"}, ImportFormat.TRUFFLEHOG),
    ({"SourceMetadata"}, ImportFormat.TRUFFLEHOG),
    ({"level", "msg"}, ImportFormat.TRUFFLEHOG),
    ({"rule", "finding"}, ImportFormat.KINGFISHER),
    ({"runs"}, ImportFormat.SARIF),
    ({"vulnerabilities"}, ImportFormat.GITLAB),
    ({"entities_with_incidents"}, ImportFormat.GGSHIELD),
    ({"scans[].entities_with_incidents"}, ImportFormat.GGSHIELD),
    ({"scans", "total_incidents"}, ImportFormat.GGSHIELD),
    ({"total_incidents", "total_occurrences"}, ImportFormat.GGSHIELD),
    ({"results", "plugins_used"}, ImportFormat.DETECT_SECRETS),
    ({"results", "generated_at"}, ImportFormat.DETECT_SECRETS),
    ({"findings[].rule"}, ImportFormat.KINGFISHER),
    ({"findings[].title"}, ImportFormat.DEFECTDOJO),
    ({"findings"}, ImportFormat.KINGFISHER),
]
_WRONG_ENCODINGS = {
    b"\xff\xfe": "is UTF-16, not UTF-8",
    b"\xfe\xff": "is UTF-16, not UTF-8",
    b"\x1f\x8b": "is compressed",
    b"PK\x03\x04": "is an archive",
    b"\x28\xb5\x2f\xfd": "is compressed",
}


def detect_format(head: bytes) -> ImportFormat:
    """Return a file's format, from its first bytes; raise BadInputError if that is not possible."""
    check_encoding(head)
    text = head.removeprefix(BOM).lstrip()
    keys = list_keys(text)
    for signs, format_ in _SIGNS:
        if signs <= keys:
            return format_
    if text.rstrip() == b"[]":
        return ImportFormat.GITLEAKS
    if text.startswith(b"{") or not text:  # also an empty file, and one that begins with many blanks
        return ImportFormat.OUTCROP
    if looks_like_csv(head):
        return ImportFormat.CSV
    raise BadInputError("cannot detect the format of the report: name it with `format`")


def check_encoding(head: bytes) -> None:
    """Raise BadInputError if the file cannot be UTF-8 text."""
    for start, reason in _WRONG_ENCODINGS.items():
        if head.startswith(start):
            raise BadInputError(f"record 1: the file {reason}")
    if b"\0" in head[:4]:
        raise BadInputError("record 1: the file is UTF-16 or UTF-32, not UTF-8")


def list_keys(head: bytes) -> set[str]:
    """Return the keys in the beginning of JSON documents, each with the path to it, such as `runs[].tool`.

    Only the outermost objects and arrays are read. The text may end anywhere.
    """
    keys: set[str] = set()
    containers: list[tuple[bytes, str]] = []  # the open brackets, each with the path to it
    key = ""
    for token in _TOKEN.finditer(head):
        text = token.group()
        if text in (b"{", b"["):
            containers.append((text, _child_path(containers, key)))
        elif text in (b"}", b"]"):
            if containers:
                containers.pop()
        elif not token.group(2):
            break
        elif token.group(3):
            key = token.group(1).decode("utf-8", "replace")
            if containers and len(containers) <= _MAX_DEPTH:
                keys.add(_child_path(containers, key))
    return keys


def read_version(head: bytes) -> str | None:
    """Return the `version` of a JSON object from its first bytes; None if it comes later, or is not there."""
    depth = 0
    for token in _TOKEN.finditer(head):
        text = token.group()
        if text in (b"{", b"["):
            depth += 1
        elif text in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and token.group(3) and token.group(1) == b"version":
            found = _SCALAR.match(head, token.end())
            return None if found is None else found[1].decode()
    return None


def _child_path(containers: list[tuple[bytes, str]], key: str) -> str:
    """Return the path of a value in the innermost container; `key` is its key if that is an object."""
    if not containers:
        return ""
    bracket, path = containers[-1]
    if bracket == b"[":
        return f"{path}[]"
    return f"{path}.{key}" if path else key
