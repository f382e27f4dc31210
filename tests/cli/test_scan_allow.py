"""What leaves findings out of `outcrop scan`: marks, allow files, files and reports of other tools."""

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from tests.support.command import Ran, run
from tests.support.rulesets import cached_in, drawn, github_token

TOKEN, OTHER = github_token("allow"), github_token("allow other")
MARKS = ["outcrop:allow", "gitleaks:allow", "trufflehog:ignore", "pragma: allowlist secret", "ggignore", "kingfisher:ignore"]  # fmt: skip


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return cached_in(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def place(tmp_path) -> Path:
    folder = tmp_path / "place"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text(f"# one\nx = '{TOKEN}'\n")
    return folder


@pytest.fixture
def scan(place, cache):
    return lambda *arguments: run("scan", "--no-validate", "--json", *arguments, folder=place, cache=cache)


def git(folder: Path, *arguments: str) -> str:
    options = ["-c", "user.name=A", "-c", "user.email=a@corp.io", "-c", "commit.gpgsign=false", "-c", "init.defaultBranch=main"]  # fmt: skip
    ran = subprocess.run(["git", "-C", str(folder), *options, *arguments], check=True, capture_output=True, text=True)  # fmt: skip
    return ran.stdout.strip()


def commit(folder: Path) -> str:
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "x")
    return git(folder, "rev-parse", "HEAD")


def paths(ran: Ran) -> list[str]:
    return sorted({finding["file_path"] for finding in ran.json})


class TestMarks:
    def test_marks_of_all_tools_leave_a_line_out_and_can_be_ignored(self, scan, place):
        lines = [f"{github_token(mark)}  # {mark}" for mark in MARKS]
        (place / "marked.txt").write_text("\n".join([*lines, f"{OTHER} ggignored"]))
        ran = scan(".")
        assert [(finding["file_path"], finding["line_number"]) for finding in ran.json] == [("marked.txt", 7), ("src/a.py", 2)]  # fmt: skip
        assert ran.err == f"left out: 6: {', '.join(f'1 by {mark}' for mark in sorted(MARKS))}\n"
        assert scan("-q", ".").err == ""
        (place / ".outcropignore").write_text("src/\n")
        everything = scan("--ignore-marks", ".")
        assert (len(everything.json), everything.err) == (8, "")
        commit(place)
        assert (len(scan(".").json), len(scan("--ignore-marks", ".").json)) == (1, 8)
        assert scan(".").err.splitlines()[-1].startswith("left out: 7: 1 by .outcropignore, ")

    def test_an_older_version_without_the_mark_is_still_reported(self, scan, place):
        commit(place)
        (place / "src" / "a.py").write_text(f"# one\nx = '{TOKEN}'  # gitleaks:allow\n")
        git(place, "commit", "-q", "-a", "-m", "marked")
        assert paths(scan(".")) == ["src/a.py"]
        assert paths(scan("--type", "folder", "--exclude", ".git", ".")) == []


class TestAllowFile:
    def test_an_entry_survives_whatever_moves_the_value(self, scan, place, tmp_path):
        allow = tmp_path / "allow"
        first = scan("--allow-all", allow, ".")
        assert first.code == 1
        (entry,) = [line for line in allow.read_text().splitlines() if not line.startswith("#")]
        digest = hashlib.sha256(TOKEN.encode()).hexdigest()[:5]
        assert entry == f"github_pat_classic {digest}  # src/a.py:2  reason: "
        assert first.json[0]["fingerprint"] == f"src/a.py:{digest}:1"
        assert TOKEN not in allow.read_text()

        ran = scan("--allow", allow, ".")
        assert (ran.code, ran.json, ran.err) == (0, [], "left out: 1: 1 by --allow\n")
        commit(place)
        git(place, "mv", "src/a.py", "moved.py")
        (place / "moved.py").write_text(f"# one\n# two\n# three\ny = {{'{TOKEN}'}}\n")
        git(place, "add", "-A")
        (place / "staged.py").write_text(TOKEN)
        git(place, "add", "staged.py")
        assert paths(scan("--staged", ".")) == ["staged.py"]
        assert paths(scan("--staged", "--allow", allow, ".")) == []
        git(place, "commit", "-q", "-m", "moved")
        git(place, "reset", "-q", "--soft", git(place, "commit-tree", "-m", "squashed", "HEAD^{tree}"))
        assert paths(scan("--allow", allow, ".")) == []
        (place / "new.py").write_text(OTHER)
        assert paths(scan("--allow", allow, "--type", "folder", "--exclude", ".git", ".")) == ["new.py"]

    def test_entries_and_reasons_stay_when_the_file_is_written_again(self, scan, place, tmp_path):
        allow = tmp_path / "allow"
        scan("--allow-all", allow, ".")
        allow.write_text(allow.read_text().replace("reason: ", "reason: an example"))
        before = allow.read_text()
        scan("--allow-all", allow, ".")
        assert allow.read_text() == before
        (place / "b.py").write_text(f"{OTHER}\n{OTHER}\n")
        scan("--allow-all", allow, "--allow", allow, ".")
        assert allow.read_text().startswith(before)
        assert len(allow.read_text().splitlines()) == len(before.splitlines()) + 1
        assert scan("--allow", allow, ".").code == 0

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (b"github_pat_classic", ":1: an entry is a rule and 5 hexadecimal digits"),
            (b"# fine\n\ngithub_pat_classic 12345 6\n", ":3: an entry is"),
            (b"github_pat_classic 1234g\n", ":1: an entry is"),
            (b"\xff\xfe\n", ": is not UTF-8"),
        ],
    )
    def test_another_file_is_refused_before_anything_is_scanned(self, scan, tmp_path, text, message):
        file = tmp_path / "file"
        file.write_bytes(text)
        for option in ("--allow", "--allow-all"):
            ran = scan(option, file, ".")
            assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
            assert f"{option} {file}{message}" in ran.err
        assert file.read_bytes() == text
        assert "No such file" in scan("--allow", tmp_path / "none", ".").err
        assert "its folder does not exist" in scan("--allow-all", tmp_path / "none" / "x", ".").err


class TestFilesOfOtherTools:
    def test_a_gitleaksignore_names_places(self, scan, place):
        (place / "b.py").write_text(f"{OTHER}\n")
        first = commit(place)
        entries = ["# a comment", "rubbish", "./b.py:any-rule:1", f"{first}:src/a.py:github-pat:2"]
        for text, left in (
            ("\n".join(entries), []),
            (f"{first[::-1]}:src/a.py:github-pat:2\nb.py:x:2\n", ["b.py", "src/a.py"]),
        ):
            (place / ".gitleaksignore").write_text(text)
            assert paths(scan(".")) == left
        folder = ("--type", "folder", "--exclude", ".git", ".")
        (place / ".gitleaksignore").write_text("\n".join(entries))
        assert paths(scan(*folder)) == []
        assert paths(scan("--ignore-marks", *folder)) == ["b.py", "src/a.py"]
        assert scan(".").err == "left out: 2: 2 by .gitleaksignore\n"

    def test_a_baseline_of_detect_secrets_names_files_and_values(self, scan, place):
        record = {"type": "GitHub Token", "hashed_secret": hashlib.sha1(TOKEN.encode()).hexdigest(), "line_number": 99}  # fmt: skip
        (place / "b.py").write_text(f"{TOKEN}\n")
        baseline = place / ".secrets.baseline"
        baseline.write_text(json.dumps({"version": "1.5.0", "results": {"src/a.py": [record]}}))
        assert paths(scan("--exclude", ".secrets.baseline", ".")) == ["b.py"]
        assert paths(scan("--ignore-marks", "--exclude", ".secrets.baseline", ".")) == ["b.py", "src/a.py"]
        baseline.write_text(json.dumps({"results": {"src/a.py": [record | {"is_secret": True}]}}))
        assert "src/a.py" in paths(scan("--exclude", ".secrets.baseline", "."))
        for rubbish in ("[", "[]", '{"results": 3}', '{"results": {"a": [4]}}', '{"results": {"a": [{}]}}'):
            baseline.write_text(rubbish)
            assert "src/a.py" in paths(scan("."))


class TestReportsAsBaseline:
    def write(self, tmp_path: Path, content: object) -> Path:
        file = tmp_path / "report.json"
        file.write_text(json.dumps(content))
        return file

    def test_a_report_with_values_is_compared_by_file_and_value(self, scan, place, tmp_path):
        (place / "b.py").write_text(f"{TOKEN}\n")
        gitleaks = [{"RuleID": "github-pat", "Description": "x", "Secret": TOKEN, "Match": TOKEN, "File": "src/a.py", "StartLine": 7, "Fingerprint": "f"}]  # fmt: skip
        ran = scan("--baseline", self.write(tmp_path, gitleaks), ".")
        assert paths(ran) == ["b.py"]
        assert ran.err == "left out: 1: 1 by --baseline\n"
        trufflehog = {"SourceMetadata": {"Data": {"Filesystem": {"file": "b.py", "line": 1}}}, "DetectorName": "Github", "Raw": TOKEN, "Verified": False}  # fmt: skip
        assert paths(scan("--baseline", self.write(tmp_path, trufflehog), ".")) == ["src/a.py"]

    def test_a_report_that_hides_values_is_compared_by_file_and_line(self, scan, place, tmp_path):
        redacted = [{"RuleID": "github-pat", "Description": "x", "Secret": "REDACTED", "Match": "REDACTED", "File": "src/a.py", "StartLine": 2, "Fingerprint": "f"}]  # fmt: skip
        assert paths(scan("--baseline", self.write(tmp_path, redacted), ".")) == []
        redacted[0]["StartLine"] = 1
        assert paths(scan("--baseline", self.write(tmp_path, redacted), ".")) == ["src/a.py"]
        place_ = {"physicalLocation": {"artifactLocation": {"uri": "src/a.py"}, "region": {"startLine": 2}}}
        result = {"ruleId": "x", "message": {"text": "x"}, "locations": [place_]}
        log = {"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "other"}}, "results": [result]}]}
        assert paths(scan("--baseline", self.write(tmp_path, log), ".")) == []


@pytest.mark.usefixtures("only_github_rules")
def test_a_built_in_rule_wins_over_one_of_a_gitleaks_configuration_for_the_same_value(scan, place, tmp_path):
    body = drawn("0123456789abcdef", 16, "own")
    (place / "src" / "a.py").write_text(f"{TOKEN}\nacme_{body}\n")
    config = tmp_path / "g.toml"
    rules = [("aaa", "ghp_[0-9A-Za-z]{36}"), ("mine", "acme_[0-9a-f]{16}")]
    config.write_text("".join(f"[[rules]]\nid = '{id_}'\nregex = '{regex}'\n" for id_, regex in rules))
    found = [finding["rule"] for finding in scan("--gitleaks-config", config, ".").json]
    assert found == ["github_pat_classic", "mine"]
