"""Output of `trufflehog --json`: one finding a line, with lines of its log between them."""

import re
from typing import Any

from outcrop.domain.secret import MASK
from outcrop.services.exchange.formats.repository_name import repository_of


def finding_of(record: dict[str, Any]) -> dict[str, Any] | None:
    """Give a finding in the shape of our own lines; None where it is none."""
    name = record.get("DetectorName")
    if not isinstance(name, str):
        return None
    place = _place(record)
    repository = place.get("repository") or None
    verified, failed = record.get("Verified") is True, bool(record.get("VerificationError"))
    link = place.get("link") or None
    gist = str(repository or link or "").startswith("https://gist.")
    return {
        "secret": record.get("Raw") or None,
        "matched_text": MASK,
        "pattern": {
            "name": name,
            "secret_type": re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "unknown",
        },
        # Not verified may mean that it was not tried: that says nothing.
        "validation_status": "valid" if verified else "error" if failed else "unvalidated",
        "validation_confidence": "high" if verified else "low",
        "source_type": "gist" if gist else "commit" if place.get("commit") else "repo",
        "source_url": link or (repository if str(repository).startswith("http") else None),
        "repo_full_name": repository_of(repository) or repository_of(link),
        "file_path": place.get("file") or None,
        "line_number": place.get("line") or None,
    }


def is_log(record: dict[str, Any]) -> bool:
    return "level" in record and "msg" in record


def _place(record: dict[str, Any]) -> dict[str, Any]:
    """Give where it stands: under a key that names the kind of source."""
    try:
        (place,) = record["SourceMetadata"]["Data"].values()
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}
    return place if isinstance(place, dict) else {}
