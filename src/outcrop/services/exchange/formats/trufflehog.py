"""Translate the output of `trufflehog --json`: one finding per line, mixed with log lines."""

import re
from typing import Any

from outcrop.domain.secret import MASK
from outcrop.services.exchange.formats.repository_name import parse_repository_name


def translate(record: dict[str, Any]) -> dict[str, Any] | None:
    """Return a record as our own fields; None if it is not a finding."""
    name, metadata = record.get("DetectorName"), _metadata(record)
    if not isinstance(name, str) or not (record.get("Raw") or metadata):
        return None
    secret_type = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "unknown"
    return {
        "secret": record.get("Raw") or None,
        "matched_text": MASK,
        "pattern": {"name": name, "secret_type": secret_type},
        **_validation(record),
        **_place(metadata),
    }


def is_log(record: dict[str, Any]) -> bool:
    """Whether a record is a line of TruffleHog's log."""
    return "level" in record and "msg" in record


def _validation(record: dict[str, Any]) -> dict[str, Any]:
    """Return status and confidence; an unverified credential may not have been checked at all."""
    if record.get("Verified") is True:
        return {"validation_status": "valid", "validation_confidence": "high"}
    status = "error" if record.get("VerificationError") else "unvalidated"
    return {"validation_status": status, "validation_confidence": "low"}


def _place(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a finding's place."""
    repository = metadata.get("repository") or None
    link = metadata.get("link") or None
    git_type = "commit" if metadata.get("commit") else "repo"
    is_gist = str(repository or link or "").startswith("https://gist.")
    repository_url = repository if str(repository).startswith("http") else None
    return {
        "source_type": "gist" if is_gist else git_type,
        "source_url": link or repository_url,
        "repo_full_name": parse_repository_name(repository) or parse_repository_name(link),
        "file_path": metadata.get("file") or None,
        "line_number": metadata.get("line") or None,
        "commit": metadata.get("commit") or None,
    }


def _metadata(record: dict[str, Any]) -> dict[str, Any]:
    """Return the source metadata, which is nested under the kind of the source."""
    try:
        (metadata,) = record["SourceMetadata"]["Data"].values()
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}
    return metadata if isinstance(metadata, dict) else {}
