"""Translate reports of Kingfisher: a JSON object with all findings, or one finding per line."""

from typing import Any

from outcrop.domain.secret import MASK
from outcrop.services.exchange.formats.fields import get_dict, get_text, to_relative
from outcrop.services.exchange.json_array import ITEM
from outcrop.sources.repository_address import repository_name

PATHS = (("findings", ITEM),)
_VALIDATION = {"active credential": "valid", "inactive credential": "invalid"}
_OTHER_RECORDS = {"access_map", "audit", "metadata"}  # keys of lines that are no findings


def translate(record: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return a record as our own fields; [] for a line about the scan, None if it is not a finding."""
    rule, finding = record.get("rule"), record.get("finding")
    if not isinstance(rule, dict) or not isinstance(finding, dict) or not isinstance(rule.get("id"), str):
        return [] if record.keys() & _OTHER_RECORDS else None
    place = _place(finding)
    if not finding.get("snippet") and not place["file_path"]:
        return None
    fingerprint = finding.get("fingerprint")
    status = _VALIDATION.get(str(get_dict(finding, "validation").get("status")).lower(), "unvalidated")
    return [
        {
            **_credential(finding),
            "matched_text": MASK,
            "fingerprint": None if fingerprint is None else str(fingerprint),
            "pattern": {
                "name": rule.get("description") or rule.get("name") or rule["id"],
                "secret_type": rule["id"],
            },
            "validation_status": status,
            "validation_confidence": "low" if status == "unvalidated" else "high",
            **place,
        }
    ]


def _credential(finding: dict[str, Any]) -> dict[str, Any]:
    """Return the credential and its other parts; none if the report is redacted."""
    snippet = finding.get("snippet")
    if not snippet or str(snippet).startswith("[REDACTED"):
        return {"secret": None}
    captures = get_dict(finding, "dependent_captures").values()
    return {"secret": snippet, "parts": [part for part in captures if isinstance(part, str)]}


def _place(finding: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a finding's place; the path in git counts before that of the scanned folder."""
    git = get_dict(finding, "git_metadata")
    commit, file = get_dict(git, "commit"), get_dict(git, "file")
    author = get_text(get_dict(commit, "author"), "name") or get_text(get_dict(commit, "committer"), "name")
    return {
        "source_type": "commit" if commit else "repo",
        "source_url": file.get("url") or git.get("repository_url"),
        "repo": git.get("repository_url"),
        "repo_full_name": repository_name(git.get("repository_url")),
        "file_path": to_relative(file.get("path") or finding.get("path")),
        "line_number": finding.get("line"),
        "commit": commit.get("id"),
        "author": author,
    }
