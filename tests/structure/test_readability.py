"""The checks of `readability.py` find what they are for."""

import ast
from pathlib import Path

import pytest

from tests.structure.readability import (
    check_branches,
    check_class_names,
    check_words,
    count_branches,
)


def write(folder: Path, text: str, name: str = "module.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "source",
    [
        '"""Whoever calls."""\n',
        "x = 1  # what was told\n",
        "def tell_all() -> None: ...\n",
        "class Told: ...\n",
        "def f(mine: int) -> None: ...\n",
        "one = 1\n",
        "self.met = 1\n",
        'def f() -> None:\n    """Give a number."""\n',
        '"""A list\nof which this is a part."""\n',
        "# The first half of\n# which is here.\n",
    ],
)
def test_a_banned_word_is_reported(tmp_path: Path, source: str) -> None:
    assert list(check_words(write(tmp_path, source)))


@pytest.mark.parametrize(
    "source",
    [
        '"""Return the `told` column of git\'s output."""\n',
        "method = 1  # a metric, metadata\n",
        "def f(number: int) -> None: ...\n",
        'text = "told"\n',
    ],
)
def test_other_words_are_not_reported(tmp_path: Path, source: str) -> None:
    assert not list(check_words(write(tmp_path, source)))


@pytest.mark.parametrize(
    ("body", "branches"),
    [
        ("return 1", 1),
        ("if a: pass", 2),
        ("if a and b or c: pass", 4),
        ("return [x for x in a if x]", 2),
        ("return 1 if a else 2", 2),
        ("for x in a:\n  while b: pass", 3),
        ("try: pass\nexcept A: pass\nexcept B: pass", 3),
        ("match a:\n  case 1: pass\n  case _: pass", 3),
        ("def g():\n  if a: pass", 1),
    ],
)
def test_branches_are_counted(body: str, branches: int) -> None:
    source = "def f():\n " + body.replace("\n", "\n ")
    (function,) = ast.parse(source).body
    assert count_branches(function) == branches


def test_a_function_with_many_branches_is_reported(tmp_path: Path) -> None:
    conditions = " and ".join(f"a{number}" for number in range(16))
    (violation,) = check_branches(write(tmp_path, f"def f():\n    return {conditions}\n"))
    assert "16 branches" in str(violation)


def test_a_class_name_that_exists_twice_is_reported(tmp_path: Path) -> None:
    paths = [write(tmp_path, "class A: ...\nclass _B: ...\n", f"{name}.py") for name in "xy"]
    (violation,) = check_class_names(paths)
    assert "class `A`" in str(violation)
