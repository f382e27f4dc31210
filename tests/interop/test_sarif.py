"""Test the SARIF of `outcrop scan` with Microsoft's Multitool: GitHub's rules for code scanning."""

import json
import platform
import re
import subprocess
from pathlib import Path

import pytest

from tests.interop.node import Node
from tests.support.command import run
from tests.support.rulesets import cached_in, github_token

PROGRAM = "node_modules/@microsoft/sarif-multitool-linux/Sarif.Multitool"


def test_the_multitool_finds_no_error_in_a_log_for_code_scanning(node: Node, tmp_path: Path) -> None:
    program = node.folder / PROGRAM
    if platform.machine() != "x86_64" or not program.exists():
        pytest.skip("SARIF Multitool: a program for x86-64 Linux")
    place, log, report = tmp_path / "place", tmp_path / "log.sarif", tmp_path / "report.sarif"
    (place / "a b").mkdir(parents=True)
    (place / "a b" / "c.py").write_text(f"x = '{github_token('multitool')}'\npassword = 'Juni-9-Bergen!'\n")
    (place / "bad.zip").write_bytes(b"PK\3\4 rubbish")
    cache = cached_in(tmp_path / "cache")
    assert run("scan", "-q", "--no-validate", "-o", log, ".", folder=place, cache=cache).code == 1
    assert len(json.loads(log.read_text())["runs"][0]["results"]) == 2
    program.chmod(0o755)  # npm runs no scripts of packages here
    command = [
        program,
        "validate",
        log,
        "--rule-kind",
        "Sarif;Ghas",
        "--level",
        "Error;Warning",
        "-o",
        report,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert "1 files scanned" in done.stdout, done.stdout + done.stderr
    assert re.findall(r": (?:error|warning) \w+: .*", done.stdout) == []
