"""The API's reference, drawn from the description that `/openapi.json` gives, with `curl` lines that are ready to run."""

from typing import Any

from starlette.responses import Response

from outcrop.portal.request import Visit, get


async def show_reference(visit: Visit) -> Response:
    document = visit.house.document
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            groups.setdefault(operation["tags"][0], []).append(_operation(document, method, path, operation))
    return visit.render("reference.html", groups=groups, server=visit.house.base_url)


def _operation(document: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> dict[str, Any]:
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
    schema = parameter["schema"]
    named = {"minimum": "at least", "maximum": "at most", "maxLength": "at most"}
    bounds = [f"{word} {schema[key]}" for key, word in named.items() if key in schema]
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
    content = response.get("content", {}).get("application/json")
    return None if content is None else _shape(document, content.get("schema", {}), 0)


def _shape(document: dict[str, Any], schema: dict[str, Any], depth: int) -> Any:
    """Write what a schema describes as a value with the types' names in it."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    if "const" in schema or "enum" in schema:
        return schema.get("const", " | ".join(map(str, schema.get("enum", []))))
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return _shape(
                document,
                next((one for one in schema[key] if one.get("type") != "null"), schema[key][0]),
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
