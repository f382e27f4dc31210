"""A result of `outcrop scan` is a report that `outcrop import` and `outcrop report` read."""

import json
from pathlib import Path
from string import ascii_letters, digits

import pytest

from tests.cli.conftest import Outcrop
from tests.support.rulesets import drawn, github_token

KEY_ID = "AKIA" + drawn("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16, "own scan")
KEY = drawn(ascii_letters + digits + "/+", 40, "own scan")
FORMATS = ("json", "jsonl", "sarif", "gitlab")


@pytest.fixture
def results(outcrop: Outcrop, tmp_path: Path) -> Path:
    """Scan a folder with two credentials; one has two parts. Return the folder of the results."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "token.txt").write_text(github_token("own scan") + "\n")
    (folder / "aws.env").write_text(f"AWS_ACCESS_KEY_ID={KEY_ID}\nAWS_SECRET_ACCESS_KEY={KEY}\n")
    outputs = [f"--output={name}={tmp_path / name}" for name in FORMATS]
    assert outcrop("scan", "--no-validate", "--reveal", *outputs, str(folder)).code == 1
    masked = [f"--output={name}={tmp_path / name}.masked" for name in FORMATS]
    assert outcrop("scan", "--no-validate", *masked, str(folder)).code == 1
    assert any(record["parts"] for record in json.loads((tmp_path / "json").read_text()))
    return tmp_path


@pytest.mark.parametrize("name", [f"{name}{masked}" for name in FORMATS for masked in ("", ".masked")])
def test_it_is_imported_once(outcrop: Outcrop, results: Path, name: str) -> None:
    outcrop("account", "create", "acme", "--plan", "growth", "--email", "a@b.example")
    arguments = ("import", "--account", "acme", "--format", "auto", str(results / name), "--json")
    first = outcrop(*arguments)
    assert first.code == 0, first.err
    assert first.json["new"] == 2
    assert outcrop(*arguments).json["new"] == 0


def test_its_formats_with_credentials_are_merged(outcrop: Outcrop, results: Path) -> None:
    files = [str(results / name) for name in ("json", "jsonl")]
    merged = outcrop("report", *files, "-o", str(results / "page.html"), "--json")
    assert merged.code == 0, merged.err
    assert merged.json["findings"] == 2
