"""Every module, function, file and link that a document names exists."""

import re
from pathlib import Path

import pytest

from tests.structure.document_names import (
    ARCHITECTURE,
    DOCUMENTS,
    PACKAGE,
    ROOT,
    code_problem,
    find_modules,
    inline_code,
    is_defined,
    is_name_of_module,
    is_our_path,
    link_targets,
    modules,
    names_after_module,
)

# Inline code of ARCHITECTURE.md that is not a name of our package.
NOT_OURS = {"OUTCROP_*", "lint-imports", "outcrop scan", "re"}


def document_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("code", sorted(set(inline_code(ARCHITECTURE.read_text())) - NOT_OURS))
def test_the_architecture_names_code_that_exists(code: str) -> None:
    if re.fullmatch(r"\w+", code) and is_defined(code):
        return
    assert not code_problem(code, ROOT)


@pytest.mark.parametrize(("module", "name"), names_after_module(ARCHITECTURE.read_text()))
def test_the_architecture_names_the_module_that_defines_a_name(module: str, name: str) -> None:
    assert len(find_modules(module, name)) == 1


def test_the_architecture_lists_every_package() -> None:
    block = ARCHITECTURE.read_text().partition("## Packages")[2].partition("\nImports point")[0]
    listed = {name for line in block.splitlines() for name in re.findall(r"\w+", line[:26])}
    packages = {module.partition("/")[0] for module in modules()} - {".", "__main__"}
    assert packages - listed == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=document_id)
def test_documents_name_paths_that_exist(path: Path) -> None:
    codes = [code for code in inline_code(path.read_text()) if is_our_path(code)]
    assert {code: problem for code in codes if (problem := code_problem(code, path.parent))} == {}


@pytest.mark.parametrize(
    "path", [path for path in DOCUMENTS if path.parent.name in {"adr", "measurements"}], ids=document_id
)
def test_decisions_name_functions_that_exist(path: Path) -> None:
    codes = [code for code in inline_code(path.read_text()) if is_name_of_module(code)]
    assert {code: problem for code in codes if (problem := code_problem(code, path.parent))} == {}


@pytest.mark.parametrize("path", DOCUMENTS, ids=document_id)
def test_links_lead_to_files(path: Path) -> None:
    targets = link_targets(path.read_text())
    assert [target for target in targets if not (path.parent / target).exists()] == []


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("store/findings/listing.select_page", ""),
        ("listing.select_page", "it fits"),
        ("packs/pack", ""),
        ("portal/PAGE.py", ""),
        ("store/migrations/*.sql", ""),
        ("store/", ""),
        ("api/no_such_module", "there is no such module"),
        ("store/findings/listing.no_such_name", "does not define"),
        ("services/exchange.import_findings", "does not define"),
        ("findings", "it fits"),
        ("store/no_such_file.py", "no such file"),
    ],
)
def test_names_are_resolved(code: str, problem: str) -> None:
    result = code_problem(code, PACKAGE)
    assert problem in result
    assert bool(problem) == bool(result)


def test_paths_of_other_programs_are_not_checked() -> None:
    assert not is_our_path("objects/info/alternates")
    assert not is_our_path("application/json")
    assert is_our_path("scanner/patterns/prefilter.py")
