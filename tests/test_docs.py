"""The papers say what the code does: every setting, route, error code and command appears in them."""

import re
from pathlib import Path

import pytest
import typer.main
from fastapi import FastAPI

from outcrop.api import findings, scans
from outcrop.api.errors import STATUS
from outcrop.cli.commands import tree
from outcrop.domain.errors import OutcropError
from outcrop.settings import Settings

ROOT = Path(__file__).parents[1]
DOCS = "\n".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))
SETTINGS = [
    str(field.validation_alias or f"OUTCROP_{name.upper()}") for name, field in Settings.model_fields.items()
]


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_is_documented_and_in_the_example(name: str) -> None:
    assert f"| `{name}` |" in DOCS
    assert re.search(rf"^#?{name}=", (ROOT / ".env.example").read_text(), re.MULTILINE)


def test_nothing_else_is_documented_as_a_setting() -> None:
    for text in (DOCS, (ROOT / ".env.example").read_text(), (ROOT / "README.md").read_text()):
        assert set(re.findall(r"OUTCROP_[A-Z_]+[A-Z]", text)) <= set(SETTINGS)


def test_every_route_and_its_parameters_are_documented() -> None:
    api = FastAPI()
    api.include_router(findings.router, prefix="/api/v1")
    api.include_router(scans.router, prefix="/api/v1")
    for path, methods in api.openapi()["paths"].items():
        for method, operation in methods.items():
            (row,) = [line for line in DOCS.splitlines() if line.startswith(f"| `{method.upper()} {path}` |")]
            for parameter in operation["parameters"]:
                assert f"`{parameter['name']}`" in row or parameter["in"] == "path"


def test_every_error_code_is_documented() -> None:
    codes = {kind.code for kind in STATUS} | {
        "missing_authorization",
        "invalid_token",
        "revoked_token",
        "plan_required",
        "rate_limited",
    }
    for code in codes | {"internal_error", "method_not_allowed"}:
        assert code in DOCS
    assert all(issubclass(kind, OutcropError) for kind in STATUS)


def test_every_command_is_documented() -> None:
    def names(group: object, prefix: str = "") -> list[str]:
        found: list[str] = []
        for name, command in getattr(group, "commands", {}).items():
            found += names(command, f"{prefix}{name} ") or [f"{prefix}{name}"]
        return found

    commands = names(typer.main.get_command(tree()))
    assert len(commands) > 15
    for command in commands:
        group, _, rest = command.partition(" ")
        assert re.search(
            rf"`(outcrop )?{command}\b|outcrop {command}\b|`{group}[^`]*`[^|]*`{rest}`|`{group} [^|]*`{rest}",
            DOCS,
        ), command


def test_no_file_names_a_registry_or_a_link_that_leads_nowhere() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"
