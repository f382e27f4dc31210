"""The threat model names every attacker, and tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()
ATTACKERS = {
    "scanned repository",
    "scanned site",
    "code host",
    "issuer",
    "webhook receiver",
    "another account",
    "member",
    "stranger",
}


def read_rows() -> list[list[str]]:
    """Return the cells of each row of the threat model."""
    section = PAGE.partition("## Threat model\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


@cache
def functions_of(file: str) -> set[str]:
    """Return the functions of a test module."""
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_threat_model_has_every_attacker_and_only_tests_that_exist() -> None:
    rows = read_rows()
    assert {row[0] for row in rows} == ATTACKERS
    for row in rows:
        assert len(row) == 4
        assert all(row)
        tests = re.findall(r"`([\w/]+\.py)::(test_\w+)`", row[3])
        assert tests
        assert "<br>".join(f"`{file}::{name}`" for file, name in tests) == row[3]
        for file, name in tests:
            assert name in functions_of(file), f"{file} has no {name}"
