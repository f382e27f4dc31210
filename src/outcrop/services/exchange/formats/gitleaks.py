"""Translate reports of gitleaks: one JSON array of findings."""

from typing import Any

from outcrop.domain.secret import MASK
from outcrop.services.exchange.formats.fields import to_relative
from outcrop.services.exchange.json_array import ITEM
from outcrop.sources.repository_address import repository_name

PATHS = ((ITEM,),)


def translate(record: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return a record as our own fields; None if it is not a finding."""
    secret = record.get("Secret")
    if not isinstance(record.get("RuleID"), str) or not (secret or record.get("File")):
        return None
    # As `gitleaks --redact` writes it.
    is_redacted = secret in (None, "", "REDACTED") or str(secret).endswith("...")
    link = record.get("Link") or None
    finding = {
        "secret": None if is_redacted else secret,
        "surroundings": None if is_redacted else record.get("Match") or None,
        "matched_text": MASK,
        "fingerprint": record.get("Fingerprint") or None,
        "commit": record.get("Commit") or None,
        "author": record.get("Author") or None,
        "pattern": {"name": record.get("Description") or record["RuleID"], "secret_type": record["RuleID"]},
        "source_type": "commit" if record.get("Commit") else "repo",
        "source_url": link,
        "repo_full_name": repository_name(link),
        "file_path": to_relative(record.get("File")),
        "line_number": record.get("StartLine"),
    }
    return [finding]
