"""Read the documents: pages, their sections, tables and code."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.inventory import ROOT

# Records of measurements and decisions are written once and name options of other programs.
_RECORDS = {"accuracy.md", "benchmarks.md", "dependencies.md", "evidence.md"}
PAGES = {path.name: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}
TOP_PAGES = {path.name: path.read_text() for path in sorted(ROOT.glob("*.md"))}
ALL_PAGES = TOP_PAGES | PAGES
GUIDES = {name: text for name, text in ALL_PAGES.items() if name not in _RECORDS}
PATHS = {
    **{path.name: path for path in ROOT.glob("*.md")},
    **{path.name: path for path in (ROOT / "docs").glob("*.md")},
}
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)


def section(page: str, heading: str) -> str:
    """Return the text below a heading of a page, up to the next heading of its level or above."""
    text = PAGES[page]
    match = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    assert match is not None, f"{page} has no section {heading!r}"
    rest = text[match.end() :]
    end = re.search(rf"^#{{1,{len(match[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def headings(text: str) -> list[tuple[int, str]]:
    """Return the headings of a page with their levels; a line in a code block is no heading."""
    return [(len(marks), title) for marks, title in _HEADING.findall(_FENCE.sub("", text))]


def anchor(heading: str) -> str:
    """Return the anchor that a code host gives to a heading."""
    plain = re.sub(r"[^\w\- ]", "", heading.lower())
    return plain.replace(" ", "-")


def rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of every row of the tables in a text, without the first row and the line below it."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        is_head = number + 1 < len(lines) and lines[number + 1].startswith("|---")
        if line.startswith("|") and not is_head and not line.startswith("|---"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def names(cell: str) -> list[str]:
    """Return the first word of every code span in a cell: `--jobs N` is `--jobs`."""
    return [span.split()[0] for span in re.findall(r"`([^`]+)`", cell)]


def first_column(text: str) -> list[str]:
    """Return the names in the first cells of the tables in a text."""
    return [name for cells in rows(text) for name in names(cells[0])]


def code(text: str) -> Iterator[str]:
    """Yield every code span, and every line of the code blocks of a page."""
    for block in _FENCE.findall(text):
        yield from block.splitlines()[1:-1]
    rest = _FENCE.sub("", text)
    yield from re.findall(r"^ {4}(.+)$", rest, re.MULTILINE)
    yield from (re.sub(r"\s+", " ", span) for span in re.findall(r"`([^`]+)`", rest))


def path_of(name: str) -> Path:
    """Return the file of a page."""
    return PATHS[name]
