"""Test `outcrop report`: merging, masking, escaping, and the page without a network."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SECRET = "s3cr3t" + "-Value-4711"
COMMIT = "0123456789abcdef" * 2 + "01234567"


def report(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": "/usr/bin:/bin",
        "OUTCROP_DATA_DIR": str(folder / "none"),
        "PYTHONPATH": ":".join(sys.path),
    }
    return subprocess.run(
        [sys.executable, "-m", "outcrop", "report", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=folder,
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    gitleaks = {
        "RuleID": "generic-api-key",
        "Description": "Generic <b>key</b>",
        "StartLine": 3,
        "File": "src/pay.py",
        "Secret": SECRET,
        "Commit": COMMIT,
        "Link": f"https://github.com/acme/shop/blob/{COMMIT}/src/pay.py#L3",
    }
    trufflehog = {
        "DetectorName": "Generic",
        "Raw": SECRET,
        "Verified": True,
        "SourceMetadata": {
            "Data": {
                "Git": {
                    "commit": COMMIT,
                    "file": "src/pay.py",
                    "repository": "https://github.com/acme/shop.git",
                    "line": 3,
                }
            }
        },
    }
    other = {"matched_text": "ab********yz", "source_url": "javascript:alert(1)", "file_path": "</script>.py"}
    (tmp_path / "gitleaks.json").write_text(json.dumps([gitleaks]))
    (tmp_path / "trufflehog.jsonl").write_text(json.dumps(trufflehog) + "\n")
    (tmp_path / "outcrop.jsonl").write_text(json.dumps(other) + "\n")
    return tmp_path


def test_reports_are_merged_into_one_page_with_masked_values(files: Path) -> None:
    names = ("gitleaks.json", "trufflehog.jsonl", "outcrop.jsonl")
    done = report(files, *names, "-o", "report.html", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"findings": 2, "files": 3, "output": "report.html"}
    page = (files / "report.html").read_text()
    assert SECRET not in page
    assert page.count("<tr data-") == 2
    assert "gitleaks.json, trufflehog.jsonl</td>" in page
    assert '<span class="valid">valid</span>' in page
    assert "Generic &lt;b&gt;key&lt;/b&gt;" in page
    assert page.count("</script>") == 1
    assert 'href="javascript' not in page
    assert "default-src &#x27;none&#x27;" in page
    assert not (files / "none").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "line 1"), ('[{"RuleID": 7}]', "record 1"), (None, "no such file"), ("<html>", "")],
)
def test_a_file_that_is_no_report_leaves_nothing_behind(
    files: Path, content: str | None, message: str
) -> None:
    if content is not None:
        (files / "bad.json").write_text(content)
    before = sorted(files.iterdir())
    done = report(files, "gitleaks.json", "bad.json", "-o", "report.html")
    assert done.returncode == 2
    assert message in done.stderr
    assert (done.stderr.count("\n"), SECRET in done.stderr) == (1, False)
    assert sorted(files.iterdir()) == before
