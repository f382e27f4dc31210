"""List what the program has: settings, commands, events, error codes, routes, fields, log events, actions."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import typer.main
from starlette.routing import Route

from outcrop import portal
from outcrop.api.describe import describe
from outcrop.asgi import api_router, api_v2_router
from outcrop.cli.commands import tree
from outcrop.domain.errors import OutcropError
from outcrop.domain.events import EventType
from outcrop.domain.finding import TriageAction
from outcrop.settings import Settings
from outcrop.settings_sources import variable

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/outcrop"

SETTINGS = {variable(field.name): field for field in fields(Settings)}
# A secret setting can also be read from a file, which such a variable names.
FILE_SETTINGS = {f"OUTCROP_{name.upper()}_FILE" for name in Settings.SECRET}
# The groups of actions in the audit trail; the name of an action is `group.verb`.
ACTION_GROUPS = (
    "assignment_rule",
    "bulk",
    "account",
    "user",
    "session",
    "view",
    "key",
    "webhook",
    "hook",
    "target",
    "scan",
    "finding",
    "findings",
    "incident",
    "suppression",
    "secrets",
    "database",
)


def commands() -> dict[str, Any]:
    """Return every command, such as `target add`, with its Click command."""
    return dict(_walk_commands(typer.main.get_command(tree()), ""))


def _walk_commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the commands below this one, or this one if it has none."""
    children = getattr(command, "commands", None)
    if children is None:
        yield name, command
        return
    for child, below in children.items():
        yield from _walk_commands(below, f"{name} {child}".strip())


def options_of(command: Any) -> dict[str, Any]:
    """Return the visible options of a command by name; `--help` is left out."""
    return {
        name: parameter
        for parameter in command.params
        if parameter.param_type_name == "option" and not parameter.hidden and parameter.name != "help"
        for name in (*parameter.opts, *parameter.secondary_opts)
    }


def arguments_of(command: Any) -> list[str]:
    """Return the names of a command's arguments, as its help shows them."""
    return [
        parameter.metavar or parameter.name.upper()
        for parameter in command.params
        if parameter.param_type_name == "argument"
    ]


@cache
def openapi() -> dict[str, Any]:
    """Return the description of version 1 of the API."""
    return describe(api_router(), "http://127.0.0.1:8000")


@cache
def openapi_v2() -> dict[str, Any]:
    """Return the description of version 2 of the API."""
    return describe(api_v2_router(), "http://127.0.0.1:8000", "v2")


def api_routes() -> dict[tuple[str, str], set[str]]:
    """Return the query parameters of every route of version 1 and outside of versions, by method and path."""
    return _described_routes(openapi()) | {route: set() for route in _open_routes() if "v2" not in route[1]}


def api_v2_routes() -> dict[tuple[str, str], set[str]]:
    """Return the query parameters of every route of version 2, by method and path."""
    return _described_routes(openapi_v2()) | {route: set() for route in _open_routes() if "v2" in route[1]}


def _described_routes(document: dict[str, Any]) -> dict[tuple[str, str], set[str]]:
    """Return the query parameters of every route of a document."""
    return {
        (method.upper(), path): {
            parameter["name"] for parameter in operation.get("parameters", ()) if parameter["in"] == "query"
        }
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }


def _open_routes() -> set[tuple[str, str]]:
    """Return the routes that need no key and are in no description."""
    return {("GET", path) for path in re.findall(r'Route\("(/[^"]+)"', (SOURCE / "asgi.py").read_text())}


def portal_routes() -> set[tuple[str, str]]:
    """Return the method and path of every page and form of the portal."""
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(portal.__path__, "outcrop.portal.")
    ]
    routes = [
        route for module in modules for route in getattr(module, "ROUTES", ()) if isinstance(route, Route)
    ]
    return {
        (method, route.path) for route in routes for method in (route.methods or ()) if method != "HEAD"
    } | {("GET", "/static/{address:path}")}


def api_error_codes(document: dict[str, Any] | None = None) -> set[str]:
    """Return every value of `error` in the error responses of a document, by default that of version 1."""
    codes: set[str] = set()
    for name, schema in (document or openapi())["components"]["schemas"].items():
        error = {} if name == "ImportShape" else schema.get("properties", {}).get("error", {})
        codes |= {error["const"]} if "const" in error else set(error.get("enum", ()))
    return codes


def error_codes() -> set[str]:
    """Return the codes of all errors that services raise."""
    return {kind.code for kind in _subclasses(OutcropError)}


def _subclasses(kind: type[OutcropError]) -> Iterator[type[OutcropError]]:
    """Yield all classes below `kind`."""
    for below in kind.__subclasses__():
        yield below
        yield from _subclasses(below)


def schema_fields(name: str, document: dict[str, Any] | None = None) -> list[str]:
    """Return the fields of a resource in a description of the API, by default that of version 1."""
    return list((document or openapi())["components"]["schemas"][name]["properties"])


def audit_actions() -> set[str]:
    """Return the actions that services and the store write to the audit trail."""
    name = re.compile(rf"[\"']((?:{'|'.join(ACTION_GROUPS)})\.[a-z_]+)[\"']")
    files = [path for folder in ("services", "store") for path in (SOURCE / folder).rglob("*.py")]
    written = {action for path in files for action in name.findall(path.read_text())}
    # A run writes the event of a new or vanished finding as the action.
    return written | {f"finding.{action}" for action in TriageAction} | {EventType.NEW, EventType.RESOLVED}


def log_events() -> set[str]:
    """Return the names of all log events: the first argument of `log.info(…)` and the like."""
    call = re.compile(rf'\b(?:_?log\.(?:{"|".join(_LEVELS)})|write)\(\s*(?:#.*\s*)?"([a-z_]+)"')
    sources = [path.read_text() for path in SOURCE.rglob("*.py")]
    return {
        event
        for text in sources
        if "get_logger" in text or "getLogger" in text
        for event in call.findall(text)
    }


_LEVELS = ("debug", "info", "warning", "error", "exception")


def make_targets() -> set[str]:
    """Return the targets of the Makefile."""
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
