"""The pages can be read: no dead links, no long lines, a list of sections on long pages, plain words."""

import re

import pytest

from tests.docs.inventory import ROOT
from tests.docs.pages import GUIDES, anchor, headings, path_of, rows
from tests.structure.readability import check_prose

MAX_LINE = 110
MAX_TERMS = 25  # of our own that a newcomer must learn
LONG_PAGE = 120  # lines; a longer page begins with a list of its sections
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target, fragment in _LINK.findall(path.read_text()):
            file = path.parent / target if target else path
            assert file.exists(), f"{path.name}: {target}"
            if fragment:
                anchors = {anchor(title) for _, title in headings(file.read_text())}
                assert fragment in anchors, f"{path.name}: {target}#{fragment}"


@pytest.mark.parametrize("name", GUIDES)
def test_no_line_of_text_is_too_long(name: str) -> None:
    text = re.sub(r"^```.*?^```$", "", GUIDES[name], flags=re.MULTILINE | re.DOTALL)
    is_text = re.compile(r"(?!\||    |<img)")  # a row of a table and a line of code cannot be broken
    long = [line for line in text.splitlines() if is_text.match(line) and len(line) > MAX_LINE]
    assert long == []


@pytest.mark.parametrize("name", [name for name, text in GUIDES.items() if text.count("\n") > LONG_PAGE])
def test_a_long_page_begins_with_links_to_all_its_sections(name: str) -> None:
    text = path_of(name).read_text()
    sections = [title for level, title in headings(text) if level == 2]
    before = text[: text.index(f"\n## {sections[0]}\n")]
    linked = re.findall(r"\]\(#([^)]+)\)", before)
    expected = [anchor(title) for title in sections]
    assert linked == expected or name in {"CHANGELOG.md", "ARCHITECTURE.md", "README.md"}


@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_uses_plain_words(name: str) -> None:
    text = re.sub(r"^```.*?^```$|^    .*$", "", GUIDES[name], flags=re.MULTILINE | re.DOTALL)
    assert [str(violation) for violation in check_prose(path_of(name), 1, text)] == []


def test_the_glossary_is_short_and_sorted_and_its_terms_are_used() -> None:
    terms = [cells[0] for cells in rows(GUIDES["glossary.md"])]
    assert len(terms) <= MAX_TERMS
    assert terms == sorted(terms)
    others = [text for name, text in GUIDES.items() if name != "glossary.md"]
    code = [path.read_text() for path in (ROOT / "src").rglob("*.py")]
    used = " ".join("\n".join([*others, *code]).lower().split())
    assert [term for term in terms if term not in used] == []
