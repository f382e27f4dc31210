"""Reports of Kingfisher: a JSON object with all findings, or one of them a line."""

from typing import Any

from outcrop.domain.secret import MASK
from outcrop.services.exchange.formats.repository_name import repository_of
from outcrop.services.exchange.json_array import ITEM

PATH = ("findings", ITEM)
_VALIDATION = {"active credential": "valid", "inactive credential": "invalid"}


def finding_of(record: dict[str, Any]) -> dict[str, Any] | None:
    """Give a finding in the shape of our own lines; None where it is none."""
    rule, found = record.get("rule"), record.get("finding")
    if not isinstance(rule, dict) or not isinstance(found, dict) or not isinstance(rule.get("id"), str):
        return None
    git = _dict(found, "git_metadata")
    commit, file = _dict(git, "commit"), _dict(git, "file")
    status = _VALIDATION.get(str(_dict(found, "validation").get("status")).lower(), "unvalidated")
    snippet = found.get("snippet")
    return {
        "secret": None if not snippet or "redacted" in str(snippet).lower() else snippet,
        "matched_text": MASK,
        "pattern": {
            "name": rule.get("description") or rule.get("name") or rule["id"],
            "secret_type": rule["id"],
        },
        "validation_status": status,
        "validation_confidence": "low" if status == "unvalidated" else "high",
        "source_type": "commit" if commit else "repo",
        "source_url": file.get("url") or git.get("repository_url"),
        "repo_full_name": repository_of(git.get("repository_url")),
        "file_path": file.get("path") or found.get("path"),
        "line_number": found.get("line"),
    }


def _dict(outer: dict[str, Any], key: str) -> dict[str, Any]:
    inner = outer.get(key)
    return inner if isinstance(inner, dict) else {}
