"""Translate reports of Kingfisher: a JSON object with all findings, or one finding per line."""

from typing import Any

from outcrop.domain.secret import MASK
from outcrop.services.exchange.formats.repository_name import parse_repository_name
from outcrop.services.exchange.json_array import ITEM

PATH = ("findings", ITEM)
_VALIDATION = {"active credential": "valid", "inactive credential": "invalid"}


def translate(record: dict[str, Any]) -> dict[str, Any] | None:
    """Return a record as our own fields; None if it is not a finding."""
    rule, finding = record.get("rule"), record.get("finding")
    if not isinstance(rule, dict) or not isinstance(finding, dict) or not isinstance(rule.get("id"), str):
        return None
    git = _get_dict(finding, "git_metadata")
    commit, file = _get_dict(git, "commit"), _get_dict(git, "file")
    snippet, path = finding.get("snippet"), file.get("path") or finding.get("path")
    if not snippet and not path:
        return None
    fingerprint = finding.get("fingerprint")
    status = _VALIDATION.get(str(_get_dict(finding, "validation").get("status")).lower(), "unvalidated")
    return {
        "secret": None if not snippet or "redacted" in str(snippet).lower() else snippet,
        "matched_text": MASK,
        "fingerprint": None if fingerprint is None else str(fingerprint),
        "commit": commit.get("id"),
        "pattern": {
            "name": rule.get("description") or rule.get("name") or rule["id"],
            "secret_type": rule["id"],
        },
        "validation_status": status,
        "validation_confidence": "low" if status == "unvalidated" else "high",
        "source_type": "commit" if commit else "repo",
        "source_url": file.get("url") or git.get("repository_url"),
        "repo_full_name": parse_repository_name(git.get("repository_url")),
        "file_path": path,
        "line_number": finding.get("line"),
    }


def _get_dict(outer: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the dict under a key; an empty one if the value is missing or not a dict."""
    inner = outer.get(key)
    return inner if isinstance(inner, dict) else {}
