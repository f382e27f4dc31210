"""Reports of gitleaks: one JSON array, a finding each."""

from typing import Any

from outcrop.domain.secret import MASK
from outcrop.services.exchange.formats.repository_name import repository_of
from outcrop.services.exchange.json_array import ITEM

PATH = (ITEM,)


def finding_of(record: dict[str, Any]) -> dict[str, Any] | None:
    """Give a finding in the shape of our own lines; None where it is none."""
    if not isinstance(record.get("RuleID"), str):
        return None
    secret = record.get("Secret")
    hidden = not secret or secret == "REDACTED" or str(secret).endswith("...")  # noqa: S105 - as --redact writes it
    link = record.get("Link") or None
    return {
        "secret": None if hidden else secret,
        "matched_text": MASK,
        "pattern": {"name": record.get("Description") or record["RuleID"], "secret_type": record["RuleID"]},
        "source_type": "commit" if record.get("Commit") else "repo",
        "source_url": link,
        "repo_full_name": repository_of(link),
        "file_path": record.get("File") or None,
        "line_number": record.get("StartLine"),
    }
