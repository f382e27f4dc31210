"""SARIF 2.1.0 of whichever tool: its results say where something is and by which rule, but not the credential itself."""

from typing import Any
from urllib.parse import unquote
from uuid import UUID, uuid5

from outcrop.domain.secret import MASK
from outcrop.services.exchange.json_array import ITEM

PATH = ("runs", ITEM, "results", ITEM)
_IDS = UUID(
    "4f5b8c7e-41f6-5d0f-9d3e-6e2f2b8a7c11"
)  # any, but always the same: the same result is the same finding again


def finding_of(record: dict[str, Any]) -> dict[str, Any] | None:
    """Give a finding in the shape of our own lines; None where it is none."""
    if "message" not in record:
        return None
    rule = record.get("ruleId") or _dict(record.get("rule")).get("id") or "unknown"
    locations = record.get("locations")
    physical = _dict(
        _dict(locations[0] if isinstance(locations, list) and locations else {}).get("physicalLocation")
    )
    uri = _dict(physical.get("artifactLocation")).get("uri")
    region = _dict(physical.get("region"))
    prints = sorted(
        str(item)
        for name in ("fingerprints", "partialFingerprints")
        for item in _dict(record.get(name)).items()
    )
    place = [str(rule), str(uri), str(region.get("startLine")), str(region.get("startColumn")), *prints]
    address = str(uri) if str(uri).startswith(("https://", "http://")) else None
    return {
        "id": str(uuid5(_IDS, "\0".join(place))),
        "matched_text": MASK,  # neither the message nor the snippet: both may hold the credential in the clear
        "pattern": {"name": str(rule), "secret_type": str(rule)},
        "source_url": address,
        "file_path": None if uri is None or address else unquote(str(uri)),
        "line_number": region.get("startLine"),
    }


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
