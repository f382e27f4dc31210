"""The whole tree follows the readability rules: words, names, branches, size of folders."""

from pathlib import Path

import pytest

from tests.structure.readability import (
    MAX_MODULES,
    banned,
    check_branches,
    check_class_names,
    check_words,
    python_files,
)

ROOT = Path(__file__).parents[2]
SOURCE = python_files(ROOT / "src")
TOOLS = sorted(path for path in (ROOT / "tools").iterdir() if "python" in path.read_text().partition("\n")[0])
EXEMPT_FROM_MAX_MODULES = {"cli", "rules"}  # one module per group of commands; one file per issuer


def report(violations: object) -> str:
    return "\n".join(map(str, violations))  # type: ignore[call-overload]


def test_every_banned_word_has_a_reason() -> None:
    for table in banned().values():
        assert all(len(reason) > 8 for reason in table.values())


@pytest.mark.parametrize("folder", ["src", "bench", "tests"])
def test_no_banned_words(folder: str) -> None:
    paths = [path for path in python_files(ROOT / folder) if path.parent != Path(__file__).parent]
    assert not report(violation for path in paths for violation in check_words(path))


def test_no_banned_words_in_tools() -> None:
    assert not report(violation for path in TOOLS for violation in check_words(path))


def test_no_function_has_too_many_branches() -> None:
    assert not report(violation for path in SOURCE for violation in check_branches(path))


def test_every_public_class_name_exists_once() -> None:
    assert not report(check_class_names(SOURCE))


def test_no_folder_has_too_many_modules() -> None:
    folders = {path.parent for path in SOURCE if path.parent.name not in EXEMPT_FROM_MAX_MODULES}
    sizes = {
        folder: len([path for path in folder.glob("*.py") if path.stem != "__init__"]) for folder in folders
    }
    assert {str(folder): size for folder, size in sizes.items() if size > MAX_MODULES} == {}
