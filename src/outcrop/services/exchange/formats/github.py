"""Translate secret scanning alerts of GitHub, as its REST API lists them."""

from typing import Any
from urllib.parse import urlsplit

from outcrop.domain.secret import MASK
from outcrop.services.exchange.formats.fields import get_dict, get_text, to_relative
from outcrop.services.exchange.json_array import ITEM

# Alerts of one page, of several pages that were joined to a list of lists, and single ones.
PATHS = ((ITEM,), (ITEM, ITEM), ())
_VALIDATION = {"active": "valid", "inactive": "invalid"}
_VISIBILITY = {"True": "private", "False": "public"}  # of older servers, by `private`


def translate(record: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return an alert as our own fields; None if it is not an alert."""
    type_, number = record.get("secret_type"), record.get("number")
    if not isinstance(type_, str) or not isinstance(number, int):
        return None
    status = _VALIDATION.get(str(record.get("validity")).lower(), "unvalidated")
    secret = record.get("secret")
    return [
        {
            "secret": None if not secret or str(secret).lower() == "hidden" else secret,
            "matched_text": MASK,
            "fingerprint": f"alert {number}",
            "pattern": {"name": get_text(record, "secret_type_display_name") or type_, "secret_type": type_},
            "validation_status": status,
            "validation_confidence": "low" if status == "unvalidated" else "high",
            **_place(record),
        }
    ]


def _place(record: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an alert's place: its repository, and the first location if the alert has it."""
    repository = get_dict(record, "repository")
    page, api = get_text(record, "html_url"), get_text(record, "url")
    address = page or api or ""
    name = get_text(repository, "full_name") or _name_of(page, "/") or _name_of(api, "/repos/")
    host = (urlsplit(address).hostname or "github.com").removeprefix("api.")
    visibility = repository.get("visibility") or _VISIBILITY.get(str(repository.get("private")))
    location = get_dict(record, "first_location_detected")
    location = get_dict(location, "details") or location
    commit = get_text(location, "commit_sha")
    return {
        "source_type": "commit" if commit else "repo",
        "source_visibility": visibility or "unknown",
        "source_url": get_text(location, "html_url") or address or None,
        "repo": get_text(repository, "html_url") or (f"https://{host}/{name}" if name else None),
        "repo_full_name": name,
        "file_path": to_relative(location.get("path")),
        "line_number": location.get("start_line"),
        "commit": commit,
    }


def _name_of(address: str | None, before: str) -> str | None:
    """Return OWNER/NAME from the address of an alert; they follow the first `before` of the path."""
    path, found, _ = urlsplit(address or "").path.partition("/secret-scanning/")
    parts = path.partition(before)[2].split("/")
    return "/".join(parts[:2]) if found and len(parts) >= 2 else None
