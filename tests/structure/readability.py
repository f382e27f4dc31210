"""Check the rules that keep the code readable: words, names, branches of a function, size of a folder."""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

MAX_BRANCHES = 15
MAX_MODULES = 20

_BANNED_WORDS = Path(__file__).with_name("banned_words.toml")
_NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# Strings and comments; what looks like a comment in a string is in a match of a string.
_STRING_OR_COMMENT = re.compile(
    r'''#[^\n]*|"""(?:[^\\]|\\.)*?"""|\'\'\'(?:[^\\]|\\.)*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'''',
    re.DOTALL,
)
_QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|https?://\S+")  # names of other programs, quoted data, addresses
_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_BRANCHES = (
    ast.If
    | ast.For
    | ast.AsyncFor
    | ast.While
    | ast.ExceptHandler
    | ast.IfExp
    | ast.comprehension
    | ast.match_case
)


@dataclass(frozen=True)
class Violation:
    """One place that breaks a rule."""

    path: Path
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}"


class _Definition(NamedTuple):
    """A function, or a class, which has no branches of its own."""

    name: str
    line: int
    branches: int


@cache
def _definitions(path: Path) -> list[_Definition]:
    """Return the functions and classes of one file; the trees of all files would be much garbage to look through."""
    return [
        _Definition(node.name, node.lineno, 0 if isinstance(node, ast.ClassDef) else count_branches(node))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, _DEFINITIONS)
    ]


@cache
def banned() -> dict[str, dict[str, str]]:
    """Return the tables of `banned_words.toml`: table -> word -> reason."""
    return tomllib.loads(_BANNED_WORDS.read_text())


@cache
def _any_phrase() -> re.Pattern[str]:
    """Return a pattern that matches each of the banned phrases."""
    return re.compile("|".join(rf"\b(?:{phrase})\b" for phrase in banned()["phrases"]))


def python_files(*folders: Path) -> list[Path]:
    """Return all Python files below the folders, sorted."""
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def check_words(path: Path) -> Iterator[Violation]:
    """Yield every banned word in the docstrings, comments and names of one file."""
    source = path.read_text()
    nodes = list(ast.walk(ast.parse(source)))
    for line, docstring in _docstrings(nodes):
        yield from _check_first_word(path, line, docstring)
        yield from check_prose(path, line, docstring)
    for line, comment in comments(source):
        yield from check_prose(path, line, comment)
    for line, name in _defined_names(nodes):
        yield from (Violation(path, line, problem) for problem in _name_problems(name))


def check_prose(path: Path, line: int, text: str) -> Iterator[Violation]:
    """Yield every banned word or phrase in a text that begins at this line."""
    plain = _QUOTED.sub(" ", text).lower()
    words = set(re.findall(r"[a-z']+(?:-[a-z]+)*", plain))
    flat = " ".join(plain.split())
    for word in words & banned()["everywhere"].keys():
        yield Violation(path, line, f"“{word}” in a text. {banned()['everywhere'][word]}")
    if not _any_phrase().search(flat):  # as for most texts
        return
    for phrase, reason in banned()["phrases"].items():
        if re.search(rf"\b{phrase}\b", flat):
            yield Violation(path, line, f"“{phrase}” in a text. {reason}")


def count_branches(function: ast.AST) -> int:
    """Return 1 plus the branches of a function: statements, expressions, comprehensions and boolean operands.

    Functions and classes that are defined inside it are counted by themselves.
    """
    branches = 1
    pending = list(ast.iter_child_nodes(function))
    while pending:
        node = pending.pop()
        if isinstance(node, _DEFINITIONS):
            continue
        if isinstance(node, _BRANCHES):
            branches += 1
        elif isinstance(node, ast.BoolOp):
            branches += len(node.values) - 1
        pending.extend(ast.iter_child_nodes(node))
    return branches


def check_branches(path: Path) -> Iterator[Violation]:
    """Yield every function of one file that has more than MAX_BRANCHES branches."""
    for name, line, branches in _definitions(path):
        if branches > MAX_BRANCHES:
            yield Violation(path, line, f"`{name}` has {branches} branches")


def check_class_names(paths: Iterable[Path]) -> Iterator[Violation]:
    """Yield every public class whose name another class of these files has too."""
    first: dict[str, Path] = {}
    for path in paths:
        for name, line, branches in _definitions(path):
            if branches or name.startswith("_"):
                continue
            if name in first:
                yield Violation(path, line, f"class `{name}` exists in {first[name]} too")
            first.setdefault(name, path)


def _check_first_word(path: Path, line: int, docstring: str) -> Iterator[Violation]:
    first = re.match(r"[A-Za-z]+", docstring)
    reason = banned()["first_words"].get(first[0].lower()) if first else None
    if first and reason:
        yield Violation(path, line, f"a docstring begins with “{first[0]}”. {reason}")


@cache
def _name_problems(name: str) -> list[str]:
    problems = []
    if reason := banned()["names"].get(name.strip("_").lower()):
        problems.append(f"the name `{name}`. {reason}")
    parts = {part.lower() for part in _NAME_PART.findall(name)}
    for word in parts & banned()["everywhere"].keys():
        problems.append(f"“{word}” in the name `{name}`. {banned()['everywhere'][word]}")
    return problems


def _docstrings(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.Module | _DEFINITIONS) and (docstring := ast.get_docstring(node)):
            yield node.body[0].lineno, docstring


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield each comment with its line; comments of consecutive lines are one text.

    Python's own tokenizer takes twenty times as long.
    """
    start, last, lines = 0, -1, list[str]()
    row, counted = 1, 0
    for found in _STRING_OR_COMMENT.finditer(source):
        if source[found.start()] != "#":
            continue
        row += source.count("\n", counted, found.start())
        counted = found.start()
        if lines and row != last + 1:
            yield start, " ".join(lines)
            lines = []
        start = row if not lines else start
        lines.append(found[0].lstrip("# "))
        last = row
    if lines:
        yield start, " ".join(lines)


def _defined_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield every name that the file defines: classes, functions, parameters, variables, attributes."""
    for node in nodes:
        if isinstance(node, _DEFINITIONS):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.lineno, node.name
