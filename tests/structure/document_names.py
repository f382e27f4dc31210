"""Find what documents name: modules and functions of the code, files, and the targets of links.

A document may shorten a path as long as it fits one module: `packs/pack` is `sources/git/packs/pack`.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "outcrop"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

_INLINE_CODE = re.compile(r"`([^`\n]+)`")
_LINK_TARGET = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
_PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b")  # `portal/PAGE.py`: any file of the folder
_FILE_SUFFIX = re.compile(r"\.(?:json|py|toml|sql|md|html|txt|ya?ml|service)$")
_MODULE_AND_NAMES = re.compile(r"`([\w/]+\.py)`: ((?:`\w+`(?:, )?)+)")
_PATH = re.compile(r"[\w*.-]+(?:/[\w*.-]+)+/?|[\w-]+/")


def inline_code(text: str) -> list[str]:
    """Return every text between backticks, once, sorted; indented and fenced blocks are not read."""
    lines = [line for line in text.splitlines() if not line.startswith("    ")]
    return sorted(set(_INLINE_CODE.findall("\n".join(lines))))


def link_targets(text: str) -> list[str]:
    """Return the relative targets of all links, without their anchors."""
    return _LINK_TARGET.findall(text)


def names_after_module(text: str) -> list[tuple[str, str]]:
    """Return (module, name) of each name in "`path/module.py`: `NAME`, `NAME`"."""
    return [
        (module, name)
        for module, names in _MODULE_AND_NAMES.findall(text)
        for name in _INLINE_CODE.findall(names)
    ]


@cache
def modules() -> dict[str, frozenset[str]]:
    """Return the names that each module defines; a module is its path without `.py`, a package its folder."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        relative = path.relative_to(PACKAGE).with_suffix("")
        module = relative.parent if relative.name == "__init__" else relative
        found[module.as_posix()] = frozenset(_defined_names(ast.parse(path.read_text()).body))
    return found


def find_modules(path: str, name: str = "") -> list[str]:
    """Return the modules at `path` that define `name`, if one is given.

    `path` is relative to the package; if no module has exactly this path, it is the end of a path.
    """
    path = _FILE_SUFFIX.sub("", path.removeprefix("src/").removeprefix("outcrop/")).rstrip("/")
    found = [path] if path in modules() else [module for module in modules() if module.endswith(f"/{path}")]
    return [module for module in found if not name or name in modules()[module]]


def find_files(path: str, base: Path) -> list[Path]:
    """Return the files and folders at `path`; a word in capitals or `*` stands for any name.

    `path` is relative to the repository, to the package or to the folder `base`.
    """
    pattern = _PLACEHOLDER.sub("*", path).rstrip("/")
    return [found for folder in (ROOT, PACKAGE, base) for found in folder.glob(pattern)]


def code_problem(code: str, base: Path) -> str:
    """Return what is wrong with an inline code that names a module, a function or a file; "" if nothing is.

    A name must be defined in the module that the document names; importing it is not enough.
    """
    if _FILE_SUFFIX.search(code) or code.endswith("/"):
        return "" if find_files(code, base) or len(find_modules(code)) == 1 else "there is no such file"
    path, _, name = code.partition(".")
    found = find_modules(path, name)
    if len(found) == 1 or (not name and find_files(code, base)):
        return ""
    if found:
        return f"it fits {', '.join(found)}"
    return f"`{path}` does not define `{name}`" if name and find_modules(path) else "there is no such module"


def is_defined(name: str) -> bool:
    """Whether a module of the package, or a class in it, defines this name."""
    return any(name in names or f".{name}" in names for names in modules().values())


def is_name_of_module(code: str) -> bool:
    """Whether an inline code is `module.name` with the name of one of our modules."""
    module, _, name = code.partition(".")
    return (
        bool(re.fullmatch(r"\w+\.\w+", code))
        and not _FILE_SUFFIX.search(code)
        and bool(name and find_modules(module))
    )


def is_our_path(code: str) -> bool:
    """Whether an inline code is a path whose first part is a folder of the repository or of the package."""
    first = code.partition("/")[0]
    return (
        bool(_PATH.fullmatch(code))
        and first not in {".", "..", "", ".git", "dist"}  # what git and `make wheel` write is not ours
        and bool((ROOT / first).is_dir() or (PACKAGE / first).is_dir())
    )


def _defined_names(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """Yield the names that statements of a module define, and `.name` for each member of a class."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from _defined_names(node.body, ".")
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        for target in targets:
            yield from (prefix + name.id for name in ast.walk(target) if isinstance(name, ast.Name))
