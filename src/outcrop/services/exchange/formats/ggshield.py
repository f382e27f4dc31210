"""Translate the output of `ggshield secret scan --json`: incidents by file, and by commit for a history."""

from collections.abc import Iterator
from typing import Any

from outcrop.domain.secret import MASK
from outcrop.lazy_regex import regex
from outcrop.services.exchange.formats.fields import get_dict, get_dicts, get_text, to_relative, to_type
from outcrop.services.exchange.json_array import ITEM

PATHS = (("entities_with_incidents", ITEM), ("scans", ITEM))
_VALIDATION = {"valid": "valid", "invalid": "invalid", "failed_to_check": "error"}
_COMMIT = regex(r"[0-9a-f]{7,64}")
_CENSORED = regex(r"\*{3,}")
_SECRET_PARTS = ("secret", "password", "token", "key")  # in the type of a match, the most likely first
_NOT_SECRET = ("id", "host", "port", "username", "scheme", "database", "url")  # ends of other types


def translate(record: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the findings of a file, or of one scan with its files; None if the record is neither."""
    if isinstance(record.get("incidents"), list) and isinstance(record.get("filename"), str):
        return list(_file_findings(record, {}))
    if "total_incidents" in record or "entities_with_incidents" in record:
        return list(_scan_findings(record))
    return None


def _scan_findings(scan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the findings of a scan, and of the scans in it; the id of a commit's scan is that commit."""
    id_ = get_text(scan, "id") or ""
    is_commit = scan.get("type") == "commit" and _COMMIT.fullmatch(id_) is not None
    place = {"commit": id_, "author": get_text(get_dict(scan, "extra_info"), "author")} if is_commit else {}
    for file in get_dicts(scan, "entities_with_incidents"):
        yield from _file_findings(file, place)
    for inner in get_dicts(scan, "scans"):
        yield from _scan_findings(inner)


def _file_findings(file: dict[str, Any], place: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield one finding for each occurrence of each incident in a file."""
    path = get_text(file, "filename") or ""
    if path.startswith("commit://"):
        commit, _, path = path.removeprefix("commit://").partition("/")
        place = {"commit": commit if _COMMIT.fullmatch(commit) else None} | place
    for incident in get_dicts(file, "incidents"):
        matches = list(get_dicts(incident, "occurrences"))
        count = incident.get("total_occurrences")
        size = len(matches) // count if isinstance(count, int) and 0 < count <= len(matches) else 1
        for start in range(0, len(matches), max(size, 1)):
            yield _finding(incident, matches[start : start + size], to_relative(path), place)


def _finding(
    incident: dict[str, Any], matches: list[dict[str, Any]], path: str | None, place: dict[str, Any]
) -> dict[str, Any]:
    """Return the finding of one occurrence, whose matches are the parts of its credential."""
    type_ = get_text(incident, "type") or "unknown"
    values = [match for match in matches if get_text(match, "match") is not None]
    ranked = sorted(values, key=lambda match: _rank(str(match.get("match_type"))))
    texts = [] if any(_CENSORED.search(match["match"]) for match in values) else [m["match"] for m in ranked]
    lines = (m.get(key) for m in matches for key in ("post_line_start", "pre_line_start", "line_start"))
    status = _VALIDATION.get(str(incident.get("validity")).lower(), "unvalidated")
    return {
        "secret": texts[0] if texts else None,
        "parts": texts[1:],
        "matched_text": MASK,
        "fingerprint": get_text(incident, "ignore_sha"),
        "pattern": {"name": type_, "secret_type": to_type(type_)},
        "validation_status": status,
        "validation_confidence": "low" if status == "unvalidated" else "high",
        "source_type": "commit" if place.get("commit") else "repo",
        "file_path": path,
        "line_number": next((line for line in lines if line is not None), None),
        **place,
    }


def _rank(match_type: str) -> tuple[bool, int]:
    """Return a sort key: types of matches that name a secret come before those that name an id or a place."""
    name = match_type.lower()
    rank = next((number for number, part in enumerate(_SECRET_PARTS) if part in name), len(_SECRET_PARTS))
    return name.endswith(_NOT_SECRET), rank
