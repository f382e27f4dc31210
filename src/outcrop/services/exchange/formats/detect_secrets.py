"""Translate baselines of detect-secrets: findings by file, each with a SHA-1 instead of the credential."""

from typing import Any

from outcrop.domain.secret import MASK
from outcrop.services.exchange.formats.fields import to_relative, to_type
from outcrop.services.exchange.json_array import ANY_KEY, ITEM

PATHS = (("results", ANY_KEY, ITEM),)
HASH = "sha1:"  # begins the fingerprint of a finding, which is the SHA-1 of its credential


def translate(record: dict[str, Any], file: str) -> list[dict[str, Any]] | None:
    """Return a finding in `file` as our own fields; None if it is not a finding."""
    type_, digest = record.get("type"), record.get("hashed_secret")
    if not isinstance(type_, str) or not isinstance(digest, str) or not digest:
        return None
    is_valid = record.get("is_verified") is True
    return [
        {
            "matched_text": MASK,
            "fingerprint": HASH + digest.lower(),
            "pattern": {"name": type_, "secret_type": to_type(type_)},
            "validation_status": "valid" if is_valid else "unvalidated",
            "validation_confidence": "high" if is_valid else "low",
            "source_type": "repo",
            "file_path": to_relative(file.replace("\\", "/")),
            "line_number": record.get("line_number"),
        }
    ]
