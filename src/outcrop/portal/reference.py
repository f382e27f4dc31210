"""The API reference page, generated from the OpenAPI document, with `curl` commands."""

import asyncio
from typing import Any

from starlette.responses import Response

from outcrop.portal.request import PortalRequest, get


async def show_reference(request: PortalRequest) -> Response:
    document = await asyncio.to_thread(request.context.document)
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            groups.setdefault(operation["tags"][0], []).append(_operation(document, method, path, operation))
    return request.render("reference.html", groups=groups, server=request.context.base_url)


def _operation(document: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> dict[str, Any]:
    """Return an operation as the template needs it."""
    responses = [
        {"status": status, "description": response["description"], "body": _example(document, response)}
        for status, response in operation["responses"].items()
    ]
    return {
        "id": f"{method}-{path.strip('/').replace('/', '-').replace('{', '').replace('}', '')}",
        "method": method.upper(),
        "path": path,
        "summary": operation.get("description") or operation.get("summary", ""),
        "parameters": [_parameter(parameter) for parameter in operation.get("parameters", [])],
        "responses": responses,
    }


def _parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter as the template needs it."""
    schema = parameter["schema"]
    limits = {"minimum": "at least", "maximum": "at most", "maxLength": "at most"}
    bounds = [f"{phrase} {schema[key]}" for key, phrase in limits.items() if key in schema]
    kind = schema.get("format") or schema.get("type") or "date"
    return {
        "name": parameter["name"],
        "in": parameter["in"],
        "required": parameter["required"],
        "kind": kind,
        "choices": schema.get("enum", []),
        "default": schema.get("default"),
        "bounds": ", ".join(bounds),
        "description": parameter.get("description", ""),
    }


def _example(document: dict[str, Any], response: dict[str, Any]) -> Any:
    """Return an example body of a response; None if it has no JSON body."""
    content = response.get("content", {}).get("application/json")
    return None if content is None else _shape(document, content.get("schema", {}), 0)


def _shape(document: dict[str, Any], schema: dict[str, Any], depth: int) -> Any:
    """Return an example value of a JSON schema, with type names in place of values."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    if "const" in schema or "enum" in schema:
        return schema.get("const", " | ".join(map(str, schema.get("enum", []))))
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return _shape(
                document,
                next((option for option in schema[key] if option.get("type") != "null"), schema[key][0]),
                depth,
            )
    if schema.get("type") == "object" or "properties" in schema:
        return (
            {name: _shape(document, inner, depth + 1) for name, inner in schema.get("properties", {}).items()}
            if depth < 6
            else {}
        )
    if schema.get("type") == "array":
        return [_shape(document, schema.get("items", {}), depth + 1)]
    return schema.get("format") or schema.get("type") or "any"


ROUTES = [get("/reference", show_reference)]
