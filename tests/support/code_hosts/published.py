"""Compare what a stand-in answers with the OpenAPI description that its host has published.

Reads OpenAPI 3 and Swagger 2. Checked are the path, the names of query parameters, the status, and the names and
types of the fields of a request and a response. Fields that only the description has are no difference: stand-ins are small.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

Json = Mapping[str, Any]
_PLACEHOLDER = re.compile(r"/[A-Z][A-Z-]+(?=/)")  # of the path below which an instance is installed
_SERVER = re.compile(r"^[^/]*//[^/]*")  # its scheme and host may be placeholders
_MAX_DEPTH = 12  # of nested objects
_TYPES: dict[type, set[str]] = {
    bool: {"boolean"},
    int: {"integer", "number"},
    float: {"number"},
    str: {"string"},
    list: {"array"},
    dict: {"object"},
}


@dataclass(frozen=True)
class Exchange:
    """A request to a stand-in, and its answer."""

    method: str
    path: str  # percent-encoded, without the query
    query: str
    status: int
    body: bytes
    sent: bytes = b""


class Description:
    """A published description of an API."""

    def __init__(self, document: Json) -> None:
        self._document = document
        servers = document.get("servers") or [{"url": document.get("basePath", "")}]
        base = _SERVER.sub("", str(servers[0].get("url", ""))).rstrip("/")
        base = _PLACEHOLDER.sub("", base)
        paths = document.get("paths", {}) | document.get("x-ms-paths", {})  # the second are of Microsoft
        self._routes = [(_pattern(f"{base}{path}"), item) for path, item in paths.items()]

    def differences(self, exchange: Exchange) -> Iterator[str]:
        """Yield what an exchange has that the description does not."""
        item = self._find(exchange.path)
        operation = None if item is None else item.get(exchange.method.lower())
        at = f"{exchange.method} {exchange.path}"
        if item is None or operation is None:
            yield f"{at}: is not described"
            return
        parameters = [
            self._resolve(raw) for raw in (*item.get("parameters", ()), *operation.get("parameters", ()))
        ]
        known = {raw["name"] for raw in parameters if raw.get("in") == "query"}
        for name, _ in parse_qsl(exchange.query):
            if name not in known:
                yield f"{at}: the parameter {name} is not described"
        if exchange.sent and (schema := self._sent_schema(operation, parameters)) is not None:
            yield from self._compare(json.loads(exchange.sent), schema, f"{at} sends", 0)
        responses = {
            str(status): raw for status, raw in operation.get("responses", {}).items()
        }  # YAML: numbers
        response = responses.get(str(exchange.status), responses.get("default"))
        if response is None:
            yield f"{at}: the status {exchange.status} is not described"
            return
        schema = self._schema(self._resolve(response))
        if schema is not None and exchange.status < 300 and exchange.body:
            yield from self._compare(json.loads(exchange.body), schema, at, 0)

    def _find(self, path: str) -> Json | None:
        """Return the described path that fits best: the one with the fewest parameters."""
        for known in (path, unquote(path)):
            fitting = [(pattern, item) for pattern, item in self._routes if pattern.fullmatch(known)]
            if fitting:
                found: Json = min(fitting, key=lambda route: route[0].groups)[1]
                return found
        return None

    def _sent_schema(self, operation: Json, parameters: list[Json]) -> Json | None:
        """Return the schema of a request's JSON; None if there is none."""
        body = next((raw for raw in parameters if raw.get("in") == "body"), operation.get("requestBody"))
        return None if body is None else self._schema(self._resolve(body))

    def _schema(self, response: Json) -> Json | None:
        """Return the schema of a response's JSON; None if there is none."""
        content = response.get("content", {})
        described = next((value for name, value in content.items() if "json" in name), response)
        schema = described.get("schema")
        return None if schema is None else self._resolve(schema)

    def _resolve(self, raw: Json) -> Json:
        """Return what a reference within the document leads to."""
        for _ in range(_MAX_DEPTH):
            if "$ref" not in raw:
                break
            value: Any = self._document
            for part in str(raw["$ref"]).removeprefix("#/").split("/"):
                value = value.get(part.replace("~1", "/").replace("~0", "~"), {})
            raw = value
        return raw

    def _compare(self, value: Any, schema: Json, at: str, depth: int) -> Iterator[str]:
        """Yield the differences between a value and a schema."""
        schema = self._resolve(schema)
        parts = [self._resolve(part) for word in ("allOf", "anyOf", "oneOf") for part in schema.get(word, ())]
        kinds = schema.get("type")
        allowed = {kinds} if isinstance(kinds, str) else set(kinds or ())
        if value is None or depth > _MAX_DEPTH:
            return
        if allowed and allowed.isdisjoint(_TYPES[type(value)]):
            yield f"{at}: is {type(value).__name__}, described as {', '.join(sorted(allowed))}"
        elif isinstance(value, list):
            for item in value:
                yield from self._compare(item, schema.get("items", {}), f"{at}[]", depth + 1)
        elif isinstance(value, dict):
            known = self._properties([schema, *parts])
            for name, inner in value.items():
                if name in known:
                    yield from self._compare(inner, known[name], f"{at}.{name}", depth + 1)
                elif known and not schema.get("additionalProperties"):
                    yield f"{at}: the field {name} is not described"

    def _properties(self, schemas: list[Json]) -> dict[str, Json]:
        """Return the fields of schemas and of those that they are made of."""
        found: dict[str, Json] = {}
        for schema in schemas:
            found |= schema.get("properties", {})
            parts = [
                self._resolve(part) for word in ("allOf", "anyOf", "oneOf") for part in schema.get(word, ())
            ]
            found |= self._properties(parts) if parts else {}
        return found


def _pattern(path: str) -> re.Pattern[str]:
    """Return a pattern of a path with parameters in braces. A parameter may have encoded slashes.

    `latest` means any version of the API.
    """
    parts = re.split(r"\{[^{}]*\}|(?<=/api/)latest(?=/)", path)
    return re.compile("([^/]+)".join(map(re.escape, parts)) + "/?")
