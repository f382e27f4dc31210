"""A command starts fast: it imports no library that it does not use, and compiles few expressions."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.rulesets import cached_in

# Prints what was imported in the process of the command, and how many of our expressions were compiled.
CODE = """
import sys
from outcrop.cli import main
sys.argv = ["outcrop", *sys.argv[1:]]
try:
    main()
except SystemExit:
    pass
from outcrop import lazy_regex
print(sum(one.is_compiled for one in lazy_regex._all), *sys.modules, file=sys.stderr)
"""
HEAVY = {"aiohttp", "attr", "fastapi", "psycopg_pool", "pydantic", "pygments", "rich", "structlog"}


def started(*arguments: str, environment: dict[str, str]) -> tuple[int, set[str]]:
    """Run a command; return the number of compiled expressions and the names of the imported modules."""
    ran = subprocess.run(
        [sys.executable, "-c", CODE, *arguments],
        env={"PATH": "/usr/bin:/bin"} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    count, *modules = ran.stderr.splitlines()[-1].split()
    return int(count), set(modules)


def test_a_scan_of_a_small_folder_compiles_and_imports_little(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(100):
        (folder / f"{number}.py").write_text(f"value = {number}\n")
    environment = {"XDG_CACHE_HOME": str(cached_in(tmp_path / "cache"))}
    count, modules = started("scan", str(folder), environment=environment)
    assert count < 20
    assert not (HEAVY | {"typer"}) & modules


@pytest.mark.parametrize("command", [["settings", "--json"], ["settings"]])
def test_settings_are_read_without_pydantic(tmp_path: Path, command: list[str]) -> None:
    _, modules = started(*command, environment={"OUTCROP_DATA_DIR": str(tmp_path)})
    assert not HEAVY & modules


def test_a_command_with_the_database_imports_no_library_of_the_service(
    database_url: str, tmp_path: Path
) -> None:
    environment = {"OUTCROP_DATABASE_URL": database_url, "OUTCROP_DATA_DIR": str(tmp_path)}
    _, modules = started("account", "list", environment=environment)
    assert "psycopg" in modules
    assert not (HEAVY - {"psycopg_pool"}) & modules
