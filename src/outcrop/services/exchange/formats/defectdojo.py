"""Translate generic findings of DefectDojo. They have a place and a title, and sometimes the credential."""

from typing import Any

from outcrop.domain.secret import MASK
from outcrop.services.exchange.formats.fields import get_text, to_relative, to_type
from outcrop.services.exchange.json_array import ITEM

PATHS = (("findings", ITEM),)


def translate(record: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return a finding as our own fields; None if it is not a finding."""
    title = record.get("title")
    if not isinstance(title, str) or not title:
        return None
    rule = get_text(record, "vuln_id_from_tool")
    line = record.get("line")
    return [
        {
            "snippet": get_text(record, "description"),
            "matched_text": MASK,
            "fingerprint": get_text(record, "unique_id_from_tool", "hash_code") or f"{title}:{line}",
            "pattern": {"name": title, "secret_type": to_type(rule or title)[:100]},
            "source_type": "repo",
            "file_path": to_relative(get_text(record, "file_path")),
            "line_number": line or None,
        }
    ]
