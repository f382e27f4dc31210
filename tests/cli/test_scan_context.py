"""`outcrop scan` says what the file of each finding is for, and leaves out tests on request."""

import json
from pathlib import Path

import pytest

from tests.support.command import Ran, run
from tests.support.rulesets import cached_in, github_token
from tests.support.sarif import VALIDATOR

TOKENS = [github_token(f"context {n}") for n in range(6)]
FILES = {
    "app/config.py": "production",
    "app/test_config.py": "test",
    "docs/setup.md": "documentation",
    "examples/run.sh": "example",
    "vendor/x/y.go": "vendored",
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return cached_in(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def place(tmp_path) -> Path:
    for name, token in zip(FILES, TOKENS, strict=False):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"key = '{token}'\n")
    (tmp_path / "app/named.py").write_text(f"TEST_KEY = '{TOKENS[5]}'\n")
    return tmp_path


def scan(place: Path, cache: Path, *arguments: str) -> Ran:
    return run("scan", "--no-validate", *arguments, ".", folder=place, cache=cache)


def test_every_format_has_the_context(place: Path, cache: Path) -> None:
    expected = FILES | {"app/named.py": "test"}
    found = json.loads(scan(place, cache, "--json").out)
    assert {finding["file_path"]: finding["context"] for finding in found} == expected
    log = json.loads(scan(place, cache, "--format", "sarif").out)
    VALIDATOR.validate(log)
    assert sorted(result["properties"]["context"] for result in log["runs"][0]["results"]) == sorted(
        expected.values()
    )
    table = scan(place, cache).out
    assert all(context in table for context in FILES.values())
    assert "context" in table.splitlines()[0]


def test_no_tests_leaves_out_all_but_production_and_prints_how_many(place: Path, cache: Path) -> None:
    ran = scan(place, cache, "--json", "--no-tests")
    assert [finding["file_path"] for finding in json.loads(ran.out)] == ["app/config.py"]
    assert ran.err == "left out by --no-tests: 1 documentation, 1 example, 2 test, 1 vendored\n"
    assert ran.code == 1
    (place / "app/config.py").unlink()
    ran = scan(place, cache, "--no-tests")
    assert (ran.code, "0 findings" in ran.out) == (0, True)
    for file in place.rglob("*.*"):
        if file.is_file():
            file.unlink()
    assert scan(place, cache, "--no-tests").err == "left out by --no-tests: none\n"


def test_a_value_on_several_lines_is_one_finding_with_all_its_lines(tmp_path: Path, cache: Path) -> None:
    token, other = TOKENS[0], TOKENS[1]
    allowed = f"k = '{token}'  # outcrop:" + "allow\n"
    (tmp_path / "a.py").write_text(f"k = '{token}'\n\nk = '{token}' or '{token}'\n{allowed}x = '{other}'\n")
    (tmp_path / "many.py").write_text(f"k = '{token}'\n" * 120)
    found = json.loads(scan(tmp_path, cache, "--json").out)
    lines = {(f["file_path"], f["line_number"]): (f["lines"], f["lines_total"]) for f in found}
    assert lines == {
        ("a.py", 1): ([1, 3], 2),
        ("a.py", 5): ([5], 1),
        ("many.py", 1): (list(range(1, 101)), 120),
    }
    assert all(finding["current_lines"] == [] for finding in found)
    log = json.loads(scan(tmp_path, cache, "--format", "sarif").out)
    VALIDATOR.validate(log)
    first, second, _ = log["runs"][0]["results"]
    places = [place["physicalLocation"] for place in first["relatedLocations"]]
    assert [(p["artifactLocation"]["uri"], p["region"]["startLine"]) for p in places] == [("a.py", 3)]
    assert "relatedLocations" not in second
