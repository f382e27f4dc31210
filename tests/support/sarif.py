"""A JSON schema for the parts of SARIF 2.1.0 that we write. It allows no other properties.

Written by hand: none of sarif-tools, sarif-om, sarif-pydantic and check-jsonschema includes the schema of
OASIS, and its licence does not clearly allow copies. Ours is stricter, since it knows only what we write.
"""

from typing import Any

import jsonschema_rs


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    """Return the schema of an object with exactly these properties."""
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


TEXT = {"type": "string", "minLength": 1}
MESSAGE = closed(["text"], text=TEXT)
LEVEL = {"enum": ["none", "note", "warning", "error"]}
TAGS = {"type": "array", "items": TEXT, "uniqueItems": True}
BAG = {"type": "object", "properties": {"tags": TAGS, "security-severity": TEXT}}
URI = {"type": "string", "format": "uri"}
RULE = closed(
    ["id"], id=TEXT, name=TEXT, shortDescription=MESSAGE, fullDescription=MESSAGE,
    help=closed(["text"], text=TEXT, markdown=TEXT), helpUri=URI, properties=BAG,
)  # fmt: skip
DRIVER = closed(
    ["name"],
    name=TEXT,
    semanticVersion=TEXT,
    informationUri=URI,
    rules={"type": "array", "items": RULE, "uniqueItems": True},
)
REGION = closed(
    ["startLine"], startLine={"type": "integer", "minimum": 1}, startColumn={"type": "integer", "minimum": 1}
)
LOCATION = closed(
    ["physicalLocation"],
    physicalLocation=closed(
        ["artifactLocation"],
        artifactLocation=closed(["uri"], uri={"type": "string", "format": "uri-reference"}),
        region=REGION,
    ),
)
RELATED = LOCATION | {
    "properties": LOCATION["properties"] | {"id": {"type": "integer", "minimum": -1}, "message": MESSAGE}
}
RESULT = closed(
    ["message", "ruleId", "locations"],
    ruleId=TEXT, ruleIndex={"type": "integer", "minimum": 0}, level=LEVEL, message=MESSAGE,
    locations={"type": "array", "items": LOCATION, "minItems": 1},
    relatedLocations={"type": "array", "items": RELATED, "uniqueItems": True},
    partialFingerprints={"type": "object", "additionalProperties": TEXT},
    rank={"type": "number", "minimum": 0, "maximum": 100}, properties=BAG,
    suppressions={"type": "array", "items": closed(["kind"], kind={"enum": ["inSource", "external"]},
                                                   status={"enum": ["accepted", "underReview", "rejected"]}, justification=TEXT)},
)  # fmt: skip
INVOCATION = closed(
    ["executionSuccessful"],
    executionSuccessful={"type": "boolean"},
    toolExecutionNotifications={"type": "array", "items": closed(["message"], level=LEVEL, message=MESSAGE)},
)
RUN = closed(
    ["tool"],
    tool=closed(["driver"], driver=DRIVER), invocations={"type": "array", "items": INVOCATION},
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]}, results={"type": "array", "items": RESULT},
)  # fmt: skip
LOG = closed(
    ["version", "runs"],
    **{
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "items": RUN},
    },
)
VALIDATOR = jsonschema_rs.Draft7Validator(LOG, validate_formats=True)
