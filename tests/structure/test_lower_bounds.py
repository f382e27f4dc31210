"""Every direct dependency has a lower bound, and `make test-lowest` tests with exactly these versions."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LISTS = {"outcrop": PROJECT["dependencies"]} | PROJECT["optional-dependencies"]
LOWEST = "requirements-lowest.txt"
PINS = dict(re.findall(r"^([a-z0-9-]+)(?:\[.*?\])?==([^\s;]+)", (ROOT / LOWEST).read_text(), re.MULTILINE))


@pytest.mark.parametrize("extra", LISTS)
def test_every_dependency_has_a_lower_bound_and_is_tested_at_it(extra: str) -> None:
    for text in LISTS[extra]:
        requirement = Requirement(text)
        (bound,) = requirement.specifier
        assert bound.operator == ">=", text
        assert Version(PINS[requirement.name.replace("_", "-")]) == Version(bound.version), text


def test_the_locked_versions_are_not_below_the_bounds() -> None:
    locked = dict(
        re.findall(
            r"^([a-z0-9-]+)(?:\[.*?\])?==([^\s;]+)", (ROOT / "requirements-dev.txt").read_text(), re.MULTILINE
        )
    )
    assert all(
        Version(locked[name]) >= Version(version) for name, version in PINS.items() if name in direct()
    )


def direct() -> set[str]:
    return {Requirement(text).name.replace("_", "-") for texts in LISTS.values() for text in texts}


def test_the_target_installs_that_file_and_is_documented() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^test-lowest: .*\n\t.*pytest", makefile, re.MULTILINE)
    assert f"--require-hashes -r {LOWEST}\n" in makefile
    page = (ROOT / "docs" / "dependencies.md").read_text()
    assert f"| `{LOWEST}` |" in page
    assert "| `make test-lowest` |" in page
