"""The lock files pin every package with its hash, agree with each other, and name no registry."""

import ast
import json
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.txt", "requirements-dev.txt", "requirements-interop.txt", "requirements-lowest.txt")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ENTRY = re.compile(
    r"(?P<name>[a-z0-9-]+)(\[[a-z0-9,-]+\])?==(?P<version>[^\s;]+)( ; [^\\]+)? \\\n"
    r"(    --hash=sha256:[0-9a-f]{64} \\\n)*    --hash=sha256:[0-9a-f]{64}\n"
)


def _normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\[ <>=!~;]", name)[0]).lower()


def _entries(lock: str) -> dict[str, str]:
    """Return the entries of a lock file by package; an entry is its version and hashes, as written."""
    return {match["name"]: match[0] for match in ENTRY.finditer((ROOT / lock).read_text())}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_line_is_a_version_or_a_hash(lock: str) -> None:
    entries = _entries(lock)
    assert entries
    assert "".join(entries.values()) == (ROOT / lock).read_text()


def test_the_development_lock_contains_the_run_lock() -> None:
    run, dev = _entries("requirements.txt"), _entries("requirements-dev.txt")
    assert run.items() < dev.items()
    assert {_normalise(name) for name in [*PROJECT["dependencies"], "flit_core"]} <= run.keys()
    assert {_normalise(name) for name in PROJECT["optional-dependencies"]["dev"]} <= dev.keys()


def test_the_service_imports_nothing_that_only_developers_have() -> None:
    imported = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.partition(".")[0])
    installed = packages_distributions()
    packages = {
        _normalise(installed[module][0]): module
        for module in imported - sys.stdlib_module_names - {"outcrop"}
    }
    assert len(packages) > 20
    assert packages.keys() <= _entries("requirements.txt").keys()


def test_the_javascript_lock_has_hashes_and_no_other_registry() -> None:
    lock = json.loads((ROOT / "tests/interop/package-lock.json").read_text())
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert packages
    for name, package in packages.items():
        assert package["integrity"].startswith("sha512-"), name
        assert package.get("resolved", "https://registry.npmjs.org/").startswith(
            "https://registry.npmjs.org/"
        )
