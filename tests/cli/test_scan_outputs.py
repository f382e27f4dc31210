"""The formats of `outcrop scan`, its output files, and the options that choose what is reported."""

import csv
import io
import json
import re
import stat
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema_rs
import pytest

from tests.support.command import run
from tests.support.rulesets import cached_in, github_token
from tests.support.sarif import TEXT, VALIDATOR, closed

TOKEN, OTHER = github_token("outputs"), github_token("outputs other")
NAME = "=a<b>&'\"\x07.py"  # a formula, markup, and a character that XML does not allow
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$"}
TOOL = closed(
    ["id", "name", "version", "vendor"], id=TEXT, name=TEXT, version=TEXT, vendor=closed(["name"], name=TEXT)
)
# What GitLab's schema of secret detection (15.0.7) requires of the parts that we write.
GITLAB = jsonschema_rs.Draft7Validator(
    closed(
        ["version", "scan", "vulnerabilities"],
        version={"const": "15.0.7"},
        scan=closed(
            ["analyzer", "scanner", "type", "start_time", "end_time", "status"],
            analyzer=TOOL, scanner=TOOL, type={"const": "secret_detection"}, start_time=TIME, end_time=TIME,
            status={"enum": ["success", "failure"]},
            messages={"type": "array", "items": closed(["level", "value"], level={"enum": ["info", "warn", "fatal"]}, value=TEXT)},
        ),
        vulnerabilities={"type": "array", "items": closed(
            ["id", "location", "identifiers"],
            id=TEXT, category=TEXT, name=TEXT | {"maxLength": 255}, description=TEXT, raw_source_code_extract=TEXT,
            severity={"enum": ["Info", "Unknown", "Low", "Medium", "High", "Critical"]},
            confidence={"enum": ["Low", "Medium", "High"]},
            location={"type": "object", "required": ["commit"], "properties": {
                "commit": {"type": "object", "required": ["sha"], "properties": {"sha": TEXT}},
                "start_line": {"type": "integer"}}},
            identifiers={"type": "array", "minItems": 1, "items": closed(["type", "name", "value"], type=TEXT, name=TEXT, value=TEXT)},
        )},
    )
)  # fmt: skip


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return cached_in(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def place(tmp_path) -> Path:
    folder = tmp_path / "place"
    (folder / "src" / "vendor").mkdir(parents=True)
    (folder / "src" / "a.py").write_text(f"x = '{TOKEN}'\n")
    (folder / "src" / "vendor" / "v.py").write_text(f"x = '{OTHER}'\n")
    (folder / "b.txt").write_text("password = 'Juni-9-Bergen!'\n")
    return folder


@pytest.fixture
def scan(place, cache):
    return lambda *arguments, stdin=b"": run(
        "scan", "--no-validate", *arguments, folder=place, cache=cache, stdin=stdin
    )


def git(folder: Path, *arguments: str) -> str:
    options = [
        "-c",
        "user.name=A",
        "-c",
        "user.email=a@corp.io",
        "-c",
        "commit.gpgsign=false",
        "-c",
        "init.defaultBranch=main",
    ]
    ran = subprocess.run(
        ["git", "-C", str(folder), *options, *arguments], check=True, capture_output=True, text=True
    )
    return ran.stdout.strip()


def paths(ran) -> list[str]:
    return [finding["file_path"] for finding in ran.json]


class TestFiles:
    def test_one_run_writes_all_formats_and_each_can_be_read(self, scan, place, tmp_path):
        (place / NAME).write_text(f"y = '{OTHER}'\n")
        (place / "bad.zip").write_bytes(b"PK\x03\x04 rubbish")
        names = {
            name: tmp_path / f"out.{name}"
            for name in ("sarif", "csv", "junit", "gitlab", "html", "json", "jsonl", "table")
        }
        ran = scan("-q", *(f"-o{name}={path}" for name, path in names.items()), ".")
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith("not scanned: bad.zip")
        content = {name: path.read_text() for name, path in names.items()}
        for text in content.values():
            assert TOKEN not in text
            assert OTHER not in text
        records = json.loads(content["json"])
        assert len(records) == 4
        assert [json.loads(line) for line in content["jsonl"].splitlines()] == records
        VALIDATOR.validate(json.loads(content["sarif"]))
        rows = list(csv.DictReader(io.StringIO(content["csv"])))
        assert [row["fingerprint"].removeprefix("'") for row in rows] == [
            record["fingerprint"] for record in records
        ]
        assert "'=a<b>&'\"\\x07.py" in {row["file_path"] for row in rows}
        suite = ET.fromstring(content["junit"])[0]
        assert (suite.get("tests"), suite.get("failures"), len(suite.findall("testcase/failure"))) == (
            "4",
            "4",
            4,
        )
        assert "bad.zip" in suite.findtext("system-err", "")
        gitlab = json.loads(content["gitlab"])
        GITLAB.validate(gitlab)
        assert [entry["location"]["file"] for entry in gitlab["vulnerabilities"]] == [
            record["file_path"] for record in records
        ]
        assert "<script" not in content["html"]
        assert "=a&lt;b&gt;&amp;&#x27;&quot;\\x07.py:1" in content["html"]
        assert content["table"].splitlines()[-1].startswith("4 findings in 5 files")

    def test_a_result_without_findings_is_a_report_in_every_format(self, scan, place):
        (place / "clean.txt").write_text("nothing\n")
        for name in ("csv", "junit", "gitlab", "html"):
            ran = scan("--format", name, "clean.txt")
            assert (ran.code, ran.err) == (0, "")
            assert ran.out
        GITLAB.validate(scan("--format", "gitlab", "clean.txt").json)
        assert ET.fromstring(scan("--format", "junit", "clean.txt").out).get("failures") == "0"

    def test_the_suffix_names_the_format_and_standard_output_stays(self, scan, tmp_path):
        ran = scan("--json", "-o", tmp_path / "a.sarif", "-o", tmp_path / "report", ".")
        VALIDATOR.validate(json.loads((tmp_path / "a.sarif").read_text()))
        assert (tmp_path / "report").read_text() == ran.out

    def test_a_file_with_credentials_is_for_its_owner_and_others_keep_their_mode(self, scan, tmp_path):
        old = tmp_path / "old.json"
        old.write_text("old")
        old.chmod(0o640)
        link = tmp_path / "link.json"
        link.symlink_to(old)
        assert scan("-q", "-o", link, "-o", tmp_path / "new.json", ".").code == 1
        assert link.is_symlink()
        assert stat.S_IMODE(old.stat().st_mode) == 0o640
        assert len(json.loads(old.read_text())) == 3
        scan("-q", "--reveal", "-o", tmp_path / "secret.csv", "-o", old, ".")
        assert stat.S_IMODE((tmp_path / "secret.csv").stat().st_mode) == 0o600
        assert stat.S_IMODE(old.stat().st_mode) == 0o600
        assert TOKEN in (tmp_path / "secret.csv").read_text()

    def test_a_file_that_cannot_be_written_is_one_line_and_the_others_are_written(self, scan, tmp_path):
        ran = scan("-q", "-o", "sarif=/dev/full", "-o", tmp_path / "b.json", ".")
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert "-o /dev/full: cannot be written: no space left on device" in ran.err
        assert len(json.loads((tmp_path / "b.json").read_text())) == 3
        assert sorted(path.name for path in tmp_path.iterdir()) == ["b.json", "place"]

    def test_a_device_is_written_to_and_not_replaced(self, scan):
        assert scan("-q", "-o", "json=/dev/null", ".").code == 1
        assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (["-o", "xml=a.txt"], "'xml' is not one of table, json, jsonl, sarif, csv, junit, gitlab, html"),
            (["-o", "report"], "name the format, as in json=report"),
            (["-o", "json="], "is no file"),
            (["-o", "-"], "is no file"),
            (["-o", "json=none/a.json"], "its folder does not exist"),
            (["-o", "json=src"], "is a folder"),
            (["-o", f"json={'n' * 300}"], "file name too long"),
            (["-o", "a.json", "-o", "sarif=./a.json"], "the file is given twice"),
            (["--rule", "no_such_rule"], "--rule no_such_rule: no such rule"),
            (["--no-rule", ""], "--no-rule : no such rule"),
            (["--from-ref", "HEAD"], "--from-ref and --to-ref belong together"),
            (["--from-ref", "", "--to-ref", "HEAD"], "--from-ref is empty: give a revision"),
            (["--from-ref", "A", "--to-ref", "B", "--since", "C"], "--since and --from-ref exclude each other"),
            (["--pre-commit", "--staged"], "--pre-commit reads from pre-commit what to scan"),
            (["--account", "acme", "-q"], "--quiet cannot be combined with --account"),
        ],
    )  # fmt: skip
    def test_a_wrong_call_is_one_line_and_nothing_is_scanned(self, scan, given, message):
        ran = scan(*given)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert message in ran.err


class TestSelection:
    def test_files_are_chosen_by_patterns_in_a_folder(self, scan, place):
        assert paths(scan("--json", "--include", "*.py", ".")) == ["src/a.py", "src/vendor/v.py"]
        assert paths(scan("--json", "--include", "src/", "--exclude", "vendor/", ".")) == ["src/a.py"]
        assert paths(scan("--json", "--include", "*.py", "--include", "!v.py", ".")) == ["src/a.py"]
        assert paths(scan("--json", "--exclude", "/src", ".")) == ["b.txt"]
        (place / "src" / "vendor" / "bad.zip").write_bytes(b"PK\x03\x04 rubbish")
        assert scan("--json", "--exclude", "vendor", ".").err == ""
        assert paths(scan("--json", "--include", "*.py", "-", stdin=TOKEN.encode())) == ["-"]

    def test_files_are_chosen_in_the_whole_history_and_the_cache_stays_complete(self, scan, place):
        (place / "old.zip").write_bytes(b"PK\x03\x04 rubbish")
        git(place, "init", "-q")
        git(place, "add", "-A")
        git(place, "commit", "-q", "-m", f"message with {TOKEN}")
        git(place, "rm", "-q", "-r", "src", "old.zip")
        git(place, "commit", "-q", "-m", "gone")
        everything = ["b.txt", "src/a.py", "src/vendor/v.py"]
        only = scan("--json", "--include", "*.py", "--exclude", "vendor", ".")
        assert (paths(only), only.err) == (["src/a.py"], "")
        ran = scan("--json", ".")
        assert sorted(set(paths(ran))) == [".git/COMMIT_EDITMSG", *everything]
        assert "old.zip" in ran.err
        assert paths(scan("--json", "--exclude", "*.py", ".")) == [".git/COMMIT_EDITMSG", "b.txt"]

    def test_rules_are_chosen(self, scan):
        assert {finding["rule"] for finding in scan("--json", "--rule", "generic_password", ".").json} == {
            "generic_password"
        }
        assert {finding["rule"] for finding in scan("--json", "--no-rule", "generic_password", ".").json} == {
            "github_pat_classic"
        }
        both = scan("--json", "--rule", "generic_password", "--no-rule", "generic_password", ".")
        assert (both.code, both.json) == (0, [])

    def test_quiet_shows_no_table_but_a_requested_format(self, scan):
        assert scan("-q", ".").out == ""
        assert len(scan("-q", "--json", ".").json) == 3


def test_the_commits_between_two_revisions_are_scanned(scan, place):
    git(place, "init", "-q")
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", "first")
    git(place, "checkout", "-q", "-b", "topic")
    third = github_token("third")
    (place / "c.txt").write_text(third)
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", "leak")
    git(place, "rm", "-q", "c.txt")
    git(place, "commit", "-q", "-m", "gone again")
    git(place, "checkout", "-q", "main")
    assert paths(scan("--json", "--from-ref", "main", "--to-ref", "topic", ".")) == ["c.txt"]
    assert paths(scan("--json", "--from-ref", "topic~1", "--to-ref", "topic", ".")) == []
    new_branch = scan("--json", "--from-ref", "0" * 40, "--to-ref", "topic", ".")
    assert len(new_branch.json) == 4
    ran = scan("--json", "--from-ref", "main", "--to-ref", "none", ".")
    assert (ran.code, ran.err) == (2, "outcrop: --to-ref none: there is no such revision\n")
    assert re.search("not a git repository", scan("--from-ref", "a", "--to-ref", "b", "src").err)
