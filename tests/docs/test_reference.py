"""The documents name every setting, command, event, error code, route and field, and none that does not exist."""

import re
import shlex
from typing import Any

import pytest

from outcrop.cli import metrics_server
from outcrop.domain.events import EventType
from tests.docs import inventory
from tests.docs.inventory import FILE_SETTINGS, ROOT, SETTINGS
from tests.docs.pages import ALL_PAGES, GUIDES, PAGES, code, first_column, names, rows, section

COMMANDS = inventory.commands()
GROUPS = {name.split()[0] for name in COMMANDS if " " in name}
GLOBAL_OPTIONS = {"--help", "--version", "--env-file"}
# Options of other programs that the guides name, with the program.
FOREIGN_OPTIONS = {
    "--all-files": "pre-commit",
    "--connect-to": "curl",
    "--data-binary": "curl",
    "--json": "trufflehog",
    "--password": "an example in a scanned file",
    "--token": "an example in a scanned file",
}


# --- settings


def test_the_table_of_settings_has_every_setting_and_no_other() -> None:
    assert first_column(section("operating.md", "Settings")) == list(SETTINGS)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_default_of_a_setting_is_the_real_one(name: str) -> None:
    default = SETTINGS[name].default
    (shown,) = [cells[1] for cells in rows(section("operating.md", "Settings")) if name in names(cells[0])]
    if default in {None, ()}:
        assert "`" not in shown, "a setting without a default is described in words"
    else:
        assert shown == f"`{str(default).lower() if isinstance(default, bool) else default}`"


def test_the_example_file_has_every_setting_and_no_other() -> None:
    example = (ROOT / ".env.example").read_text()
    assert re.findall(r"^#?(OUTCROP_\w+)=", example, re.MULTILINE) == list(SETTINGS)


def test_no_document_names_a_setting_that_does_not_exist() -> None:
    for text in (*ALL_PAGES.values(), (ROOT / ".env.example").read_text()):
        assert set(re.findall(r"OUTCROP_[A-Z_]*[A-Z]", text)) <= {*SETTINGS, *FILE_SETTINGS, "OUTCROP"}


def test_the_guide_lists_the_secrets_that_a_file_can_contain() -> None:
    (sentence,) = re.findall(
        r"as containers mount it: (.*?)\. Line\s+breaks", PAGES["operating.md"], re.DOTALL
    )
    assert {f"{name}_FILE" for name in names(sentence)} == FILE_SETTINGS


# --- commands


def test_every_command_has_a_section_and_no_other() -> None:
    headings = re.findall(r"^### `outcrop ([^`]+)`$", PAGES["commands.md"], re.MULTILINE)
    assert sorted(headings) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_a_command_has_its_arguments_and_options(name: str) -> None:
    options = inventory.options_of(COMMANDS[name])
    table = section("commands.md", f"`outcrop {name}`")
    expected = {*inventory.arguments_of(COMMANDS[name]), *options} - {"--json"}
    assert set(first_column(table)) == expected
    has_json = name not in {"serve", "worker", "demo", "export", "completion"}
    assert has_json is ("--json" in options), "the table of all commands lists those without --json"
    assert ("`--json`" in table) is has_json
    for cells in rows(table):
        check_default(cells[1], options.get(names(cells[0])[0]))


def check_default(shown: str, option: Any) -> None:
    """Assert that a default in the table is the option's."""
    if option is None:  # an argument
        return
    assert (shown == "required") is option.required
    if shown.startswith("`") and option.default is not None:
        assert shown == f"`{option.default}`"


def test_no_document_names_a_command_that_does_not_exist() -> None:
    for page, text in ALL_PAGES.items():
        for words in outcrop_calls(text):
            assert command_of(words) is not None, f"{page}: outcrop {' '.join(words)}"


def test_no_document_gives_a_command_an_option_that_it_does_not_have() -> None:
    for page, text in ALL_PAGES.items():
        for words in outcrop_calls(text):
            given = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
            name = command_of(words) or ""
            known = inventory.options_of(COMMANDS[name]) if name in COMMANDS else {}
            assert given <= {*known, *GLOBAL_OPTIONS}, f"{page}: outcrop {' '.join(words)}"


def test_no_guide_names_an_option_that_does_not_exist() -> None:
    known = {option for command in COMMANDS.values() for option in inventory.options_of(command)}
    for page, text in GUIDES.items():
        for span in code(text):
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", span):
                assert option in known | GLOBAL_OPTIONS | set(FOREIGN_OPTIONS), f"{page}: {span}"


def outcrop_calls(text: str) -> list[list[str]]:
    """Return the words after `outcrop` of every call of the command in a page's code."""
    calls = []
    for span in code(text):
        match = re.match(r"(?:\$ )?(?:[^|`]*\| )?(?:\.venv/bin/)?outcrop (.+)$", span)
        if match and not match[1].startswith(("scan   ", "0.")):
            call = re.sub(r"[\[\]]", "", re.sub(r"\s[|>&].*|\s{2,}#.*", "", match[1]))
            calls.append(shlex.split(call))
    return calls


def command_of(words: list[str]) -> str | None:
    """Return the command or group that a call begins with, `` for one that is left open, or None."""
    if words[0].isupper() or words[0].startswith("-"):
        return ""
    if words[0] in COMMANDS:
        return words[0]
    if words[0] in GROUPS and len(words) == 1:
        return ""
    name = " ".join(words[:2])
    return name if name in COMMANDS else None


# --- events


def test_the_page_of_webhooks_has_every_event_and_no_other() -> None:
    headings = re.findall(r"^### `([a-z_.]+)`$", PAGES["webhooks.md"], re.MULTILINE)
    assert headings == list(EventType)


def test_the_table_of_audit_actions_has_every_action_and_no_other() -> None:
    table = section("accounts.md", "Actions in the audit trail")
    assert sorted(first_column(table)) == sorted(inventory.audit_actions())


def test_no_document_names_an_event_or_action_that_does_not_exist() -> None:
    known = {*EventType, *inventory.audit_actions()}
    event = re.compile(rf"(?:{'|'.join(inventory.ACTION_GROUPS)})\.[a-z_]+")
    for page, text in GUIDES.items():
        spans = set(re.findall(r"`([^`\n]+)`", text))
        assert {span for span in spans if event.fullmatch(span)} <= known, page


def test_the_table_of_log_events_has_every_event_and_no_other() -> None:
    assert sorted(first_column(section("operating.md", "Logs"))) == sorted(inventory.log_events())


# --- the API and the portal


def test_the_table_of_api_routes_has_every_route_and_no_other() -> None:
    assert documented_routes("api.md", "Routes") == set(inventory.api_routes())
    assert documented_routes("api-v2.md", "Routes") == set(inventory.api_v2_routes())


def test_the_tables_of_parameters_have_every_parameter_and_no_other() -> None:
    routes = inventory.api_routes()
    for heading, route in {
        "Parameters of the list of findings": ("GET", "/api/v1/findings"),
        "Parameters of the list of incidents": ("GET", "/api/v1/incidents"),
        "Parameters of the list of scan runs": ("GET", "/api/v1/scans"),
    }.items():
        assert set(first_column(section("api.md", heading))) == routes[route]
    v2 = inventory.api_v2_routes()
    post = v2["POST", "/api/v2/imports"]
    assert set(first_column(section("api-v2.md", "Parameters of an import"))) == post
    assert (
        set(first_column(section("api-v2.md", "Parameters of the list of imports")))
        == (v2["GET", "/api/v2/imports"])
    )
    for cells in rows(section("api.md", "Routes")):
        method, path = span_route(cells[0])
        assert ("`note`" in cells[1]) is ("note" in routes[method, path])


def test_the_table_of_portal_addresses_has_every_page_and_form_and_no_other() -> None:
    assert documented_routes("portal.md", "Addresses") == inventory.portal_routes()


def test_no_document_names_a_route_that_does_not_exist() -> None:
    known = {*inventory.api_routes(), *inventory.api_v2_routes(), *inventory.portal_routes()}
    known.add(("GET", metrics_server.PATH))
    paths = [re.sub(r"\\\{[^/]+\\\}", "[^/?]+", re.escape(path)) for _, path in known]
    for page, text in GUIDES.items():
        for span in code(text):
            if re.fullmatch(r"(GET|POST) /\S*", span):
                assert span_route(f"`{span}`") in known, f"{page}: {span}"
            for address in re.findall(r"/api/v[12]/[^\s'\"`?]+", span):
                assert any(re.fullmatch(path, address) for path in paths), f"{page}: {address}"


def documented_routes(page: str, heading: str) -> set[tuple[str, str]]:
    """Return the method and path of every route in the first column of a section's table."""
    spans = [span for cells in rows(section(page, heading)) for span in re.findall(r"`([^`]+)`", cells[0])]
    return {span_route(f"`{span}`") for span in spans}


def span_route(cell: str) -> tuple[str, str]:
    """Return the method and path of a cell such as `GET /healthz`."""
    method, path = cell.strip("`").split()
    return method, path


def test_the_table_of_api_errors_has_every_code_and_no_other() -> None:
    assert sorted(first_column(section("api.md", "Error codes"))) == sorted(inventory.api_error_codes())
    v2_only = inventory.api_error_codes(inventory.openapi_v2()) - inventory.api_error_codes()
    assert sorted(first_column(section("api-v2.md", "Error codes"))) == sorted(v2_only)


def test_the_table_of_portal_errors_has_every_other_code() -> None:
    portal = set(first_column(section("portal.md", "Error codes")))
    # OperatorError ends a command, and a request never raises it. Some errors occur in version 2 of the API only.
    others = {"operator"} | set(first_column(section("api-v2.md", "Error codes")))
    assert portal == inventory.error_codes() - others | {"internal_error", "method_not_allowed"}


@pytest.mark.parametrize(
    ("heading", "schema"),
    [
        ("Fields of a finding", "FindingShape"),
        ("Fields of an incident", "IncidentShape"),
        ("Fields of a scan run", "ScanRunShape"),
    ],
)
def test_the_table_of_a_resource_has_every_field_and_no_other(heading: str, schema: str) -> None:
    assert first_column(section("api.md", heading)) == inventory.schema_fields(schema)


def test_the_table_of_an_import_has_every_field_and_no_other() -> None:
    fields = inventory.schema_fields("ImportShape", inventory.openapi_v2())
    assert first_column(section("api-v2.md", "Fields of an import")) == fields


# --- other files


def test_no_document_names_a_make_target_that_does_not_exist() -> None:
    targets = inventory.make_targets()
    for page, text in ALL_PAGES.items():
        for span in code(text):
            if match := re.match(r"(?:\$ )?make ([a-z][a-z-]*)", span):
                assert match[1] in targets, f"{page}: {span}"
