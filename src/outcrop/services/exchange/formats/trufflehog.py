"""Translate the output of `trufflehog --json`: one finding per line, mixed with log lines."""

from typing import Any

from outcrop.domain.secret import MASK
from outcrop.services.exchange.formats.fields import get_dict, to_relative, to_type
from outcrop.sources.repository_address import repository_name


def translate(record: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return a record as our own fields; [] for a line of the log, None if it is not a finding."""
    name, metadata = record.get("DetectorName"), _metadata(record)
    if not isinstance(name, str) or not (record.get("Raw") or metadata):
        return [] if "level" in record and "msg" in record else None
    raw, joined = record.get("Raw") or None, record.get("RawV2")
    return [
        {
            "secret": raw,
            "parts": _parts(raw, joined),
            "matched_text": MASK,
            "pattern": {"name": name, "secret_type": to_type(name)},
            **_validation(record),
            **_place(metadata),
        }
    ]


def _parts(raw: Any, joined: Any) -> list[str]:
    """Return the other parts of a credential: all of `RawV2`, and what it has beside `Raw`."""
    if not isinstance(raw, str) or not isinstance(joined, str) or not joined or joined == raw:
        return []
    before, found, after = joined.partition(raw)
    rests = [rest.strip(" :;,|\t\n") for rest in (before, after)] if found else []
    return [joined, *(rest for rest in rests if rest)]


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
        "repo": repository,
        "repo_full_name": repository_name(repository) or repository_name(link),
        "file_path": to_relative(metadata.get("file")),
        "line_number": metadata.get("line") or None,
        "commit": metadata.get("commit") or None,
        "author": metadata.get("email") or None,
    }


def _metadata(record: dict[str, Any]) -> dict[str, Any]:
    """Return the source metadata, which is nested under the kind of the source."""
    nested = list(get_dict(record, "SourceMetadata", "Data").values())
    return nested[0] if len(nested) == 1 and isinstance(nested[0], dict) else {}
