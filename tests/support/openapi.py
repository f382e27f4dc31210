"""Walk the schemas of an OpenAPI document."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

Json = dict[str, Any]


def reachable(document: Json, schema: Json, at: str) -> Iterator[tuple[str, Json]]:
    """Yield a schema and every schema that it contains or refers to, each once, with its place."""
    pending, seen = [(at, schema)], set()
    while pending:
        place, current = pending.pop()
        if "$ref" in current:
            place = current["$ref"].removeprefix("#/components/schemas/")
            current = document["components"]["schemas"][place]
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield place, current
        pending += [(f"{place}.{name}", inner) for name, inner in current.get("properties", {}).items()]
        for keyword in ("items", "additionalProperties"):
            if isinstance(current.get(keyword), dict):
                pending.append((place, current[keyword]))
        for keyword in ("allOf", "anyOf", "oneOf", "prefixItems"):
            pending += [(place, inner) for inner in current.get(keyword, [])]


def operations(document: Json) -> Iterator[tuple[tuple[str, str], Json]]:
    """Yield every operation with its method and path."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield (method, path), operation


def response_schemas(document: Json) -> Iterator[tuple[str, Json]]:
    """Yield every schema that a response body can contain, with its place."""
    for (method, path), operation in operations(document):
        for status, response in operation["responses"].items():
            for content in response.get("content", {}).values():
                yield from reachable(document, content["schema"], f"{method} {path} {status}")


def request_schemas(document: Json) -> Iterator[tuple[str, Json]]:
    """Yield every schema that a request body can contain, with its place."""
    for (method, path), operation in operations(document):
        for content in operation.get("requestBody", {}).get("content", {}).values():
            yield from reachable(document, content["schema"], f"{method} {path} body")


def allow_only_described_fields(document: Json) -> Json:
    """Return a copy whose objects allow no other field, to find fields in answers that nobody described.

    Objects that say themselves what else they contain stay as they are.
    """
    closed = deepcopy(document)
    for schema in closed["components"]["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return closed
