"""Modules compile no regular expression while they are imported."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import outcrop
from outcrop import lazy_regex
from outcrop.lazy_regex import compile_all, regex
from tests.structure.readability import python_files

SOURCE = Path(outcrop.__file__).parent


def compiled_at_import(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of calls of `re.compile` that are not in a function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "re.compile":
            yield node.lineno
        yield from compiled_at_import(node)


def test_a_call_outside_of_functions_is_found() -> None:
    source = "X = re.compile('a')\ndef f():\n    re.compile('b')\nY = {1: re.compile('c')}\n"
    assert list(compiled_at_import(ast.parse(source))) == [1, 4]


def test_no_module_compiles_an_expression_while_it_is_imported() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in python_files(SOURCE)
        for line in compiled_at_import(ast.parse(path.read_text()))
    ]
    assert found == [], "use outcrop.lazy_regex.regex"


def test_a_scan_that_finds_nothing_compiles_few() -> None:
    code = (
        "import outcrop.cli.run_scan, outcrop.lazy_regex as lazy;"
        "print(len(lazy._all), sum(one.is_compiled for one in lazy._all))"
    )
    count, compiled = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert int(count) > 150
    assert int(compiled) == 0


def test_every_expression_of_the_package_is_valid() -> None:
    for module in pkgutil.walk_packages([str(SOURCE)], "outcrop."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    compile_all()
    assert all(expression.is_compiled for expression in lazy_regex._all)


def test_a_lazy_expression_behaves_like_a_compiled_one() -> None:
    lazy, compiled = (make(r"(?P<a>x)+", re.IGNORECASE) for make in (regex, re.compile))
    assert (lazy.pattern, lazy.flags, lazy.groups) == (compiled.pattern, compiled.flags, compiled.groups)
    assert lazy.groupindex == compiled.groupindex
    assert lazy.fullmatch("xX")
    assert lazy.sub("-", "axb") == "a-b"
    assert [found.span() for found in lazy.finditer("xaX")] == [(0, 1), (2, 3)]
    assert regex(rb"a|b").split(b"1a2b3") == [b"1", b"2", b"3"]
