"""The parser for right calls of `outcrop scan` understands what Typer does, and leaves the rest to Typer."""

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer.main

from outcrop.cli import scan as declaration
from outcrop.cli.commands import tree
from outcrop.cli.scan_arguments import _FLAGS, _VALUES, ScanArguments, parse_call

COMMAND: Any = typer.main.get_command(tree("scan")).commands["scan"]  # type: ignore[attr-defined]
OPTIONS = [parameter for parameter in COMMAND.params if parameter.param_type_name == "option"]
RIGHT = [
    [],
    ["."],
    ["-"],
    ["a", "--json", "b", "-q"],
    ["--format", "sarif", "-o", "a.sarif", "--output=html=b.html", "-o", "c.json"],
    ["--format=jsonl", "--format", "json"],
    ["--confidence", "low", "--jobs", "4", "--type", "folder"],
    ["--rules", "a.toml", "--rules=b.toml", "--gitleaks-config", "g.toml", "--baseline", "known.json"],
    [
        "--include",
        "*.py",
        "--exclude",
        "!x",
        "--rule",
        "a",
        "--no-rule",
        "b",
        "--allow",
        "f",
        "--allow-all=g",
    ],
    ["--since", "main", "--from-ref", "a", "--to-ref", "b", "--account", "acme", "--host-url=https://h"],
    ["--report-to", "https://outcrop.example.com", "--report-wait", "--no-tests", "--no-cache", "--staged"],
    ["--pre-commit", "--gitignore", "--ignore-marks", "--reveal", "--only-valid", "--no-validate", "x"],
    ["--discussions", "--quiet", "--since="],
]


def read_by_typer(arguments: list[str]) -> ScanArguments:
    """Return what the command passes on when Typer reads these arguments."""
    with mock.patch.object(declaration, "run_scan") as run:
        COMMAND.main(arguments, standalone_mode=False)
    (given,) = run.call_args.args
    assert isinstance(given, ScanArguments)
    return given


def test_every_option_is_known_with_its_field() -> None:
    declared = {name: parameter for parameter in OPTIONS for name in parameter.opts if name != "--help"}
    declared = {name: parameter for name, parameter in declared.items() if parameter.name != "help"}
    fields = _FLAGS | {name: field for name, (field, _, _) in _VALUES.items()}
    assert {name: parameter.name for name, parameter in declared.items()} == fields
    assert {name for name, parameter in declared.items() if parameter.is_flag} == set(_FLAGS)
    repeatable = {name for name, parameter in declared.items() if parameter.multiple}
    assert repeatable == {name for name, (_, _, is_list) in _VALUES.items() if is_list}
    assert [parameter.name for parameter in COMMAND.params if parameter.name != "help"] == list(
        ScanArguments._fields
    )


@pytest.mark.parametrize("arguments", RIGHT, ids=" ".join)
def test_a_right_call_is_read_as_typer_reads_it(arguments: list[str]) -> None:
    read = parse_call(arguments)
    assert read is not None
    expected = read_by_typer(arguments)
    # Typer gives an empty list where nothing was given; all code treats it as None.
    assert [value or None for value in read] == [value or None for value in expected]
    assert [type(value) for value in read if value] == [type(value) for value in expected if value]
    if read.rules:
        assert all(isinstance(path, Path) for path in read.rules)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["-h"],
        ["--"],
        ["--since"],
        ["--since", "--json"],
        ["--jso"],
        ["--json=1"],
        ["-oa.json"],
        ["-qq"],
        ["--format", "JSON"],
        ["--jobs", "257"],
        ["--jobs", "x"],
        ["--type", "y"],
        ["--confidence", ""],
    ],
    ids=" ".join,
)
def test_any_other_call_is_left_to_typer(arguments: list[str]) -> None:
    assert parse_call(arguments) is None
