"""Translate reports of GitLab's secret detection."""

import re
from typing import Any

from outcrop.domain.secret import MASK
from outcrop.lazy_regex import regex
from outcrop.services.exchange.formats.fields import get_dict, get_dicts, get_text, to_relative, to_type
from outcrop.services.exchange.json_array import ITEM

PATHS = (("vulnerabilities", ITEM),)
NEWEST_VERSION = 15  # the first number of the newest version of these reports
_NO_COMMIT = regex(r"0*")  # what the report has if no history was scanned
_LEAD_IN = regex(r"[\w.\-\"' ]{1,80}[:=]\s*")  # the name before a value, in a line of a file
_PEM = "-----BEGIN"


def translate(record: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return a vulnerability as our own fields; [] for one of another scanner, None if it is none."""
    location = record.get("location")
    if not isinstance(location, dict) or not (record.get("category") or record.get("identifiers")):
        return None
    if record.get("category", "secret_detection") != "secret_detection":
        return []
    rules = (get_text(item, "value") for item in get_dicts(record, "identifiers"))
    rule, name = next(filter(None, rules), None), get_text(record, "name", "message")
    extract, place = get_text(record, "raw_source_code_extract"), _place(location)
    position = f"{rule}:{place['file_path']}:{place['line_number']}:{place['commit']}"
    return [
        {
            "secret": None if extract is None else _value_of(extract),
            "surroundings": extract,
            "matched_text": MASK,
            "fingerprint": get_text(record, "cve", "id") or position,
            "pattern": {"name": name or rule or "Secret", "secret_type": to_type(rule or name or "")},
            **place,
        }
    ]


def _place(location: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a finding's place."""
    commit = get_dict(location, "commit")
    sha = get_text(commit, "sha") or ""
    has_commit = not _NO_COMMIT.fullmatch(sha)
    return {
        "source_type": "commit" if has_commit else "repo",
        "file_path": to_relative(location.get("file")),
        "line_number": location.get("start_line"),
        "commit": sha if has_commit else None,
        "author": get_text(commit, "author"),
    }


def _value_of(extract: str) -> str | None:
    """Return the credential in an extract of the source; None if the text around it hides where it ends."""
    if _PEM in extract:
        return extract.strip()
    value = _LEAD_IN.sub("", extract.strip(), count=1).strip("\"'`;, ")
    return value if value and not re.search(r"\s", value) else None
