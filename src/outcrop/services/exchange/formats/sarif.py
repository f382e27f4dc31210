"""Translate SARIF 2.1.0 of any tool. Its results have a place and a rule, but no credential."""

from typing import Any
from urllib.parse import unquote
from uuid import UUID, uuid5

from outcrop.domain.secret import MASK
from outcrop.services.exchange.json_array import ITEM

PATH = ("runs", ITEM, "results", ITEM)
# Namespace of the ids. It never changes, so that importing a result again updates the same finding.
_NAMESPACE = UUID("4f5b8c7e-41f6-5d0f-9d3e-6e2f2b8a7c11")


def translate(record: dict[str, Any]) -> dict[str, Any] | None:
    """Return a record as our own fields; None if it is not a finding."""
    rule = record.get("ruleId") or _as_dict(record.get("rule")).get("id")
    locations = record.get("locations")
    if "message" not in record or not (rule or locations):
        return None
    rule = rule or "unknown"
    location = _as_dict(locations[0] if isinstance(locations, list) and locations else {})
    physical = _as_dict(location.get("physicalLocation"))
    uri = _as_dict(physical.get("artifactLocation")).get("uri")
    region = _as_dict(physical.get("region"))
    fingerprints = sorted(
        str(item)
        for name in ("fingerprints", "partialFingerprints")
        for item in _as_dict(record.get(name)).items()
    )
    place = [str(rule), str(uri), str(region.get("startLine")), str(region.get("startColumn")), *fingerprints]
    address = str(uri) if str(uri).startswith(("https://", "http://")) else None
    return {
        "id": str(uuid5(_NAMESPACE, "\0".join(place))),
        "matched_text": MASK,  # not the message or the snippet, which may contain the credential
        "pattern": {"name": str(rule), "secret_type": str(rule)},
        "source_url": address,
        "file_path": None if uri is None or address else unquote(str(uri)),
        "line_number": region.get("startLine"),
    }


def _as_dict(value: Any) -> dict[str, Any]:
    """Return the value if it is a dict, else an empty one."""
    return value if isinstance(value, dict) else {}
