"""`outcrop scan` as users and CI systems call it."""

import io
import json
import os
import pty
import select
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from outcrop.domain.reports.sarif import fingerprints
from outcrop.services import local_scan
from tests.support.calls import before_call
from tests.support.command import Ran, run
from tests.support.rulesets import cached_in, drawn, github_token
from tests.support.sarif import VALIDATOR

TOKEN, OTHER = github_token("scan"), github_token("other")
WRONG = TOKEN[:-6] + "000000"
OWN = (
    "issuer = 'Acme'\n[[rule]]\nid = 'acme'\nname = 'Acme key'\n"
    "secret_type = 'acme'\npattern = 'acme_[0-9a-f]{16}'\n"
)
ACME = "acme_0f1e9d3c7b5a2846"

Scan = Callable[..., Ran]


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return cached_in(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def place(tmp_path) -> Path:
    folder = tmp_path / "place"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text(f"# one\nx = '{TOKEN}'\n")
    (folder / "clean.txt").write_text("nothing here\n")
    return folder


@pytest.fixture
def scan(place, cache) -> Scan:
    def call(*arguments: str | Path, stdin: bytes = b"") -> Ran:
        return run("scan", *arguments, folder=place, cache=cache, stdin=stdin)

    return call


def commit(folder: Path, message: str = "x") -> None:
    options = ["-c", "user.name=A", "-c", "user.email=a@corp.io", "-c", "commit.gpgsign=false"]
    if not (folder / ".git").exists():
        subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "add", "-A"], check=True)
    subprocess.run(["git", "-C", str(folder), *options, "commit", "-q", "-m", message], check=True)


class TestExitCodes:
    def test_nothing_found(self, scan):
        ran = scan("clean.txt")
        assert (ran.code, ran.err) == (0, "")

    def test_something_found(self, scan):
        assert scan(".").code == 1

    def test_a_target_that_is_not_there_and_the_others_are_still_scanned(self, scan):
        ran = scan("--json", "none", "src", "clean.txt")
        assert ran.code == 2
        assert [finding["file_path"] for finding in ran.json] == ["a.py"]
        assert ran.err == "outcrop: none: no such file or directory\n"

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--format", "xml"], "'xml' is not one of"),
            (["--confidence", "sure"], "'sure' is not one of"),
            (["--type", "svn"], "'svn' is not one of"),
            (["--jobs", "-1"], "-1 is not in the range"),
            (["--jobs", "many"], "'many' is not a valid"),
            (["--nonsense"], "No such option"),
            (["--staged", "--since", "HEAD", "."], "--staged and --since exclude each other"),
            (["--rules", "none.toml", "."], "none.toml: No such file or directory"),
            (["--gitleaks-config", "none.toml", "."], "none.toml: No such file or directory"),
            (["--baseline", "none.json", "."], "--baseline none.json: No such file or directory"),
            (["--staged", "src"], "src: is not a git repository"),
            (["--since", "HEAD", "src"], "src: is not a git repository"),
            (["--type", "git", "src"], "src: is not a git repository"),
            (["git@github.com:a/b.git"], "only https addresses can be cloned"),
            (["http://user:pw@host/a"], "without user name and password"),
            (["https://["], "an https address was given whose host cannot be read"),
            (["https://me:pw@[::1"], "an https address was given whose host cannot be read"),
            (["--since", "", "."], "--since is empty: give a revision"),
            (["--since", "", "--account", "acme"], "--since is empty: give a revision"),
            (["ftp://user:pw@host/a"], "ftp://host/a: only https addresses can be cloned"),
        ],
    )  # fmt: skip
    def test_a_wrong_call_is_reported_on_standard_error_only(self, scan, arguments, message):
        ran = scan(*arguments)
        assert ran.code == 2
        assert message in " ".join(ran.err.replace("│", " ").split())
        assert "Traceback" not in ran.err
        assert ran.out in {"", "0 findings in 0 files, 0.0 MB\n"}

    @pytest.mark.parametrize("address", ["https://[", "https://[::1", "https://me:hunter2@[x]/"])
    def test_an_address_that_cannot_be_read_is_one_line_and_the_others_are_still_scanned(self, scan, address):
        ran = scan("--json", address, "src")
        assert (ran.code, len(ran.json), ran.err.count("\n")) == (2, 1, 1)
        assert ran.err.startswith("outcrop: ")
        assert "hunter2" not in ran.err

    def test_a_fault_of_ours_is_not_taken_for_a_finding_and_shows_no_value(self, scan):
        def broken(*_: object) -> None:
            try:
                {}[TOKEN]
            except KeyError as error:
                raise ExceptionGroup(TOKEN, [ValueError(TOKEN)]) from error

        with before_call(local_scan.scan, broken):
            ran = scan("--json", ".")
        assert (ran.code, ran.out) == (2, "")
        assert TOKEN not in ran.err
        assert [line for line in ran.err.splitlines() if line.endswith("in broken")]
        assert [
            line for line in ran.err.splitlines() if line in {"KeyError", "ValueError", "ExceptionGroup"}
        ] == [
            "KeyError",
            "ValueError",
            "ExceptionGroup",
        ]
        assert (
            ran.err.splitlines()[-1] == "outcrop: internal error (ExceptionGroup); the lines above show where"
        )


class TestFormats:
    def test_json_is_one_list_and_nothing_else(self, scan):
        ran = scan("--json", ".")
        assert (ran.code, ran.err) == (1, "")
        (finding,) = ran.json
        assert ran.out.count("\n") == 1
        shown = {
            name: finding[name]
            for name in (
                "rule",
                "confidence",
                "file_path",
                "line_number",
                "column",
                "source_type",
                "encoding",
                "parts",
            )
        }
        assert shown == {
            "rule": "github_pat_classic",
            "confidence": "high",
            "file_path": "src/a.py",
            "line_number": 2,
            "column": 6,
            "source_type": "repo",
            "encoding": [],
            "parts": {},
        }
        assert "secret" not in finding
        assert scan("--json", "clean.txt").out == "[]\n"

    def test_json_and_format_json_are_the_same_bytes(self, scan):
        assert scan("--json", ".").out == scan("--format", "json", ".").out

    def test_jsonl_is_one_finding_per_line(self, scan, place):
        (place / "b.txt").write_text(OTHER)
        ran = scan("--format", "jsonl", ".")
        assert [json.loads(line)["file_path"] for line in ran.out.splitlines()] == ["b.txt", "src/a.py"]
        assert [json.loads(line) for line in ran.out.splitlines()] == scan("--json", ".").json
        assert scan("--format", "jsonl", "clean.txt").out == ""

    def test_the_table_has_a_line_for_each_and_a_sum(self, scan):
        head, row, total = scan(".").out.splitlines()
        assert head.split() == ["score", "rule", "place", "commit", "credential"]
        assert row.split()[1:] == ["github_pat_classic", "src/a.py:2", f"{TOKEN[:4]}********{TOKEN[-4:]}"]
        assert total == "1 finding in 2 files, 0.0 MB"
        assert scan("clean.txt").out == "0 findings in 1 files, 0.0 MB\n"

    def test_sarif_is_a_valid_log(self, scan):
        log = scan("--format", "sarif", ".").json
        VALIDATOR.validate(log)
        (result,) = log["runs"][0]["results"]
        assert result["locations"][0]["physicalLocation"] == {
            "artifactLocation": {"uri": "src/a.py"},
            "region": {"startLine": 2, "startColumn": 6},
        }
        VALIDATOR.validate(scan("--format", "sarif", "clean.txt").json)

    @pytest.mark.parametrize(
        ("name", "uri"),
        [
            (b"a b#?.txt", "a%20b%23%3F.txt"),
            (b"a\nb", "a%0Ab"),
            (b"a\xffb", "a%FFb"),
            (b"a\\nb", "a%5Cnb"),
            ("\u00e9".encode(), "%C3%A9"),
        ],
    )
    def test_sarif_names_the_file_as_it_is(self, scan, place, name, uri):
        (place / os.fsdecode(name)).write_text(OTHER)
        log = scan("--format", "sarif", ".").json
        VALIDATOR.validate(log)
        uris = [
            result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
            for result in log["runs"][0]["results"]
        ]
        assert sorted(uris) == sorted([uri, "src/a.py"])

    @pytest.mark.parametrize("output", ["table", "json", "jsonl", "sarif"])
    def test_no_format_shows_a_credential_unless_requested(self, scan, place, output):
        (place / f"{OTHER}.txt").write_text(f"a {OTHER}")
        ran = scan("--format", output, ".")
        assert ran.code == 1
        assert TOKEN not in ran.out + ran.err
        assert OTHER not in ran.out + ran.err

    @pytest.mark.parametrize("output", ["table", "json", "jsonl", "sarif"])
    def test_a_credential_that_is_only_in_a_path_is_masked_too(self, scan, place, output):
        (place / OTHER).mkdir()
        (place / OTHER / "a.py").write_text(f"token = {TOKEN}")
        ran = scan("--format", output, OTHER)
        assert ran.code == 1
        assert OTHER not in ran.out + ran.err

    @pytest.mark.parametrize("output", ["table", "json", "jsonl", "sarif"])
    def test_a_file_whose_path_has_the_password_in_it_can_be_found(self, scan, place, output):
        (place / "production").mkdir()
        (place / "production" / "db.env").write_text("DATABASE_URL=postgres://crm:production@pg.corp/crm\n")
        ran = scan("--confidence", "low", "--format", output, "production", ".")
        assert "production/db.env" in ran.out

    def test_reveal_also_shows_a_credential_in_a_path(self, scan, place):
        (place / f"{OTHER}.txt").write_text(f"a {OTHER}")
        (shown,) = scan("--json", "--reveal", f"{OTHER}.txt").json
        (masked,) = scan("--json", f"{OTHER}.txt").json
        assert shown["file_path"] == f"{OTHER}.txt"
        assert OTHER not in shown["matched_text"]
        assert shown == masked | {"file_path": shown["file_path"], "secret": OTHER}

    def test_reveal_shows_it(self, scan):
        assert scan("--reveal", "--json", ".").json[0]["secret"] == TOKEN
        assert TOKEN in scan("--reveal", ".").out

    @pytest.mark.usefixtures("only_github_rules")
    def test_a_value_never_moves_the_cursor_of_a_terminal(self, scan, place, tmp_path):
        (tmp_path / "own.toml").write_text(OWN.replace("acme_[0-9a-f]{16}", "acme_(?P<secret>[^ ]{8,40})"))
        (place / "src" / "a.py").write_text("acme_\x1b[2J0f1e\n9d3c\x1b]0;x\x07 \n")
        for more in ([], ["--reveal"]):
            ran = scan("--rules", tmp_path / "own.toml", *more, "src")
            assert ran.code == 1
            assert "\x1b" not in ran.out
            assert len(ran.out.splitlines()) == 3

    def test_the_same_input_gives_the_same_bytes(self, scan, place):
        for n in range(30):
            (place / f"{n}.txt").write_text(f"{github_token(n)}\n{TOKEN}\n")
        outputs = {scan("--json", "--jobs", jobs, ".").out for jobs in ("1", "2", "3", "0")}
        assert len(outputs) == 1


class TestOptions:
    def test_confidence(self, scan, place):
        (place / "w.txt").write_text(f"{WRONG}\npassword = 'Juni-9-Bergen!'\n")
        found = {
            level: [finding["rule"] for finding in scan("--json", "--confidence", level, ".").json]
            for level in ("high", "medium", "low")
        }
        assert found["high"] == ["github_pat_classic"]
        assert sorted(found["medium"]) == ["generic_password", "github_pat_classic"]
        assert sorted(found["low"]) == ["generic_password", "github_pat_classic", "github_pat_classic"]

    def test_several_targets(self, scan, place):
        (place / "b.txt").write_text(OTHER)
        assert [finding["file_path"] for finding in scan("--json", "src", "b.txt", "clean.txt").json] == [
            "a.py",
            "b.txt",
        ]

    def test_the_current_folder_unless_requested(self, scan):
        assert scan("--json").json == scan("--json", ".").json

    def test_standard_input(self, scan):
        ran = scan("--json", "-", stdin=f"a\nb {TOKEN}\n".encode())
        assert [
            (finding["file_path"], finding["line_number"], finding["column"]) for finding in ran.json
        ] == [("-", 2, 3)]
        assert ran.code == 1
        assert scan("-", stdin=b"").code == 0
        assert scan("-", stdin=b"x" * 1_500_000).out == "0 findings in 1 files, 1.5 MB\n"

    def test_archives_are_opened_and_gaps_are_reported(self, scan, place):
        with zipfile.ZipFile(place / "a.zip", "w") as archive:
            archive.writestr("b/c.txt", f"x\n{OTHER}\n")
        (place / "bad.zip").write_bytes(b"PK\x03\x04 rubbish")
        ran = scan("--json", ".")
        assert ("a.zip!b/c.txt", 2) in [
            (finding["file_path"], finding["line_number"]) for finding in ran.json
        ]
        assert ran.err == "not scanned: bad.zip: archive: cannot be unpacked (BadZipFile)\n"
        assert scan(".").out.endswith("; 1 not scanned\n")
        notes = scan("--format", "sarif", ".").json["runs"][0]["invocations"][0]["toolExecutionNotifications"]
        assert len(notes) == 1

    @pytest.mark.parametrize("output", ["table", "json", "jsonl", "sarif"])
    def test_whatever_a_member_of_an_archive_on_standard_input_is_called_its_gap_is_one_line(
        self, scan, output
    ):
        made = io.BytesIO()
        with tarfile.open(
            fileobj=made, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape"
        ) as archive:
            for name in (os.fsdecode(b"a\xffb"), "c\x1b[31m\x07\nd"):
                member = tarfile.TarInfo(name)
                content = b"7z\xbc\xaf\x27\x1c" + bytes(100)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        ran = scan("--format", output, "-", stdin=made.getvalue())
        assert ran.code == 0, ran.err
        first, second = ran.err.splitlines()
        assert "a\\xffb" in first
        assert "c\\x1b[31m\\x07\\nd" in second
        assert not {"\x1b", "\x07"} & {*ran.out, *ran.err}

    def test_a_target_never_moves_the_cursor_of_a_terminal(self, scan):
        ran = scan("ssh://\x1b[31mfoo")
        assert (ran.code, ran.err) == (2, "outcrop: ssh://\\x1b[31mfoo: only https addresses can be cloned\n")

    @pytest.mark.usefixtures("only_github_rules")
    def test_a_note_on_a_configuration_is_one_line(self, scan, tmp_path):
        (tmp_path / "g.toml").write_text('"a\\u001b[31m\\nb" = 1\n')
        ran = scan("--gitleaks-config", tmp_path / "g.toml", "clean.txt")
        assert (ran.code, ran.err) == (
            0,
            f"outcrop: {tmp_path / 'g.toml'}: a\\x1b[31m\\nb: unknown key, ignored\n",
        )

    @pytest.mark.parametrize("option", ["--rules", "--gitleaks-config"])
    def test_rules_that_are_nested_too_deeply_are_one_line(self, scan, tmp_path, option):
        (tmp_path / "deep.toml").write_text("x=" + "[" * 100_000)
        ran = scan(option, tmp_path / "deep.toml", ".")
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert ran.err.endswith("deep.toml: is nested too deeply\n")

    @pytest.mark.usefixtures("only_github_rules")
    def test_own_rules_beside_the_built_in_ones(self, scan, place, tmp_path):
        (tmp_path / "own.toml").write_text(OWN)
        (place / "b.txt").write_text(ACME)
        assert [
            finding["rule"] for finding in scan("--json", "--rules", tmp_path / "own.toml", ".").json
        ] == [
            "acme",
            "github_pat_classic",
        ]

    def test_a_rule_with_the_id_of_a_built_in_one_is_refused(self, scan, tmp_path):
        (tmp_path / "own.toml").write_text(OWN.replace("'acme'", "'github_pat_classic'", 1))
        ran = scan("--json", "--rules", tmp_path / "own.toml", ".")
        assert (ran.code, ran.out) == (2, "")
        assert "own.toml:6: rule github_pat_classic: is already defined in" in ran.err

    @pytest.mark.usefixtures("only_github_rules")
    def test_a_gitleaks_configuration(self, scan, place, tmp_path):
        (tmp_path / "g.toml").write_text(
            "[[rules]]\nid = 'acme'\ndescription = 'Acme'\nregex = '''acme_[0-9a-f]{16}'''\n"
        )
        (place / "b.txt").write_text(ACME)
        assert [
            finding["rule"] for finding in scan("--json", "--gitleaks-config", tmp_path / "g.toml", ".").json
        ] == ["acme", "github_pat_classic"]

    @pytest.mark.usefixtures("only_github_rules")
    def test_what_a_gitleaks_configuration_lets_pass_and_what_of_it_is_not_done(self, scan, place, tmp_path):
        (place / "src" / "a.py").write_text(f"{ACME}\n")
        (place / "b.txt").write_text(f"{ACME}\n")
        commit(place)
        first = subprocess.run(
            ["git", "-C", str(place), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        config = tmp_path / "g.toml"
        rule = "[[rules]]\nid = 'acme'\nregex = 'acme_[0-9a-f]{16}'\n[[rules.allowlists]]\n"
        for text, found in (
            (rule + "paths = ['^src/']\n", ["b.txt"]),
            (rule + f"commits = ['{first.upper()}']\n", []),
            (rule + f"commits = ['{first[::-1]}']\n", ["b.txt", "src/a.py"]),
        ):
            config.write_text(text)
            ran = scan("--json", "--gitleaks-config", config, ".")
            assert ([finding["file_path"] for finding in ran.json], ran.err) == (found, "")
        config.write_text("[[rules]]\nid = 'named'\npath = 'x'\n")
        ran = scan("--json", "--gitleaks-config", config, ".")
        assert (ran.code, ran.json) == (0, [])
        assert ran.err == f"outcrop: {config}:1: rule named: has a path but no regex: it finds nothing\n"

    def test_a_marked_line_and_ignored_paths_are_left_out(self, scan, place):
        (place / "b.txt").write_text(f"{OTHER} outcrop:allow\n")
        assert len(scan("--json", ".").json) == 1
        (place / ".outcropignore").write_text("src/\n")
        assert scan("--json", ".").json == []

    def test_gitignore(self, scan, place):
        (place / ".gitignore").write_text("*.py\n")
        assert len(scan("--json", ".").json) == 1
        assert scan("--json", "--gitignore", ".").json == []

    def test_type_folder_scans_the_files_of_a_repository(self, scan, place):
        commit(place)
        (place / "new.txt").write_text(OTHER)
        assert [finding["file_path"] for finding in scan("--json", ".").json] == ["src/a.py"]
        files = {finding["file_path"] for finding in scan("--json", "--type", "folder", ".").json}
        assert {"new.txt", "src/a.py"} <= files

    def test_staged_and_since(self, scan, place):
        commit(place)
        (place / "new.txt").write_text(OTHER)
        subprocess.run(["git", "-C", str(place), "add", "new.txt"], check=True)
        assert [finding["file_path"] for finding in scan("--json", "--staged", ".").json] == ["new.txt"]
        commit(place)
        assert [finding["file_path"] for finding in scan("--json", "--since", "HEAD~1", ".").json] == [
            "new.txt"
        ]
        ran = scan("--json", "--since", "no-such-rev", ".")
        assert (ran.code, ran.out) == (2, "[]\n")
        assert len(scan("--json", "--no-cache", "--no-validate", ".").json) == 2
        assert scan("--json", ".").out == scan("--json", "--no-cache", ".").out


class TestBaseline:
    @pytest.mark.parametrize("output", ["json", "jsonl", "sarif"])
    def test_what_an_earlier_result_holds_is_left_out_wherever_its_line_went(
        self, scan, place, tmp_path, output
    ):
        old = tmp_path / "old"
        old.write_text(scan("--format", output, ".").out)
        assert scan("--json", "--baseline", old, ".").json == []
        assert scan("--baseline", old, ".").code == 0
        (place / "src" / "a.py").write_text(f"# one\n# two\n# three\ny = ['{OTHER}', '{TOKEN}']\n")
        ran = scan("--json", "--reveal", "--baseline", old, ".")
        assert [finding["secret"] for finding in ran.json] == [OTHER]
        assert ran.code == 1

    @pytest.mark.parametrize("output", ["json", "jsonl", "sarif"])
    def test_a_result_may_be_written_otherwise_by_an_editor(self, scan, tmp_path, output):
        old = tmp_path / "old"
        old.write_text(
            "\ufeff"
            + json.dumps(json.loads(scan("--format", output, ".").out), indent=2).replace("\n", "\r\n")
            + "\n\n"
        )
        assert scan("--json", "--baseline", old, ".").json == []

    @pytest.mark.parametrize("output", ["json", "jsonl", "sarif"])
    def test_an_empty_result_is_a_baseline(self, scan, tmp_path, output):
        old = tmp_path / "old"
        old.write_text(scan("--format", output, "clean.txt").out)
        assert len(scan("--json", "--baseline", old, ".").json) == 1

    def test_a_word_in_a_result_does_not_make_it_another_format(self, scan, place, tmp_path):
        for name in ("runs", "b"):
            (place / name).write_text(github_token(name))
        old = tmp_path / "old"
        old.write_text(scan("--format", "jsonl", ".").out)
        assert scan("--json", "--baseline", old, ".").json == []

    def test_the_same_value_elsewhere_is_new(self, scan, place, tmp_path):
        old = tmp_path / "old"
        old.write_text(scan("--json", ".").out)
        (place / "b.txt").write_text(TOKEN)
        assert [finding["file_path"] for finding in scan("--json", "--baseline", old, ".").json] == ["b.txt"]

    @pytest.mark.parametrize("output", ["json", "jsonl", "sarif"])
    def test_the_same_path_and_value_in_another_target_is_new(self, scan, place, tmp_path, output):
        for name in ("first", "second"):
            (place / name).mkdir()
            (place / name / ".env").write_text(f"KEY={TOKEN}\n")
        old = tmp_path / "old"
        old.write_text(scan("--format", output, "first").out)
        assert len(scan("--json", "--baseline", old, "first", "second").json) == 1
        old.write_text(scan("--format", output, "first", "second").out)
        assert scan("--json", "--baseline", old, "first", "second").json == []

    @pytest.mark.parametrize(
        "text",
        [
            "rubbish",
            "{}",
            "[1]",
            '[{"a": 1}]',
            '{"runs": 3}',
            "[",
            "\xff",
            '{"runs": [{"results": [4]}]}',
            '[{"fingerprint": null}]',
            '[{"Fingerprint": "a:b:1"}]',
            '{"runs": [{}]}',
            '{"runs": [{"results": [{"ruleId": "x", "partialFingerprints": {"commitSha": "y"}}]}]}',
        ],
    )
    def test_another_file_is_no_baseline(self, scan, tmp_path, text):
        old = tmp_path / "old"
        old.write_bytes(text.encode("latin-1"))
        ran = scan("--json", "--baseline", old, ".")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(
            f"outcrop: --baseline {old}: not a result of outcrop scan in json, jsonl or "
        )
        assert ran.err.count("\n") == 1

    def test_fingerprints_are_those_of_the_log_and_confirm_no_password(self, scan, place):
        secret = "Juni-9-Bergen!"
        (place / "p.txt").write_text(f"password = '{secret}'\n")
        records = scan("--json", ".").json
        assert fingerprints(scan("--format", "sarif", ".").json) == [
            finding["fingerprint"] for finding in records
        ]
        assert all(len(finding["fingerprint"].split(":")[1]) == 5 for finding in records)


def test_as_a_process(place, cache):
    """Once as it is installed: the streams are those of a shell."""
    command = [sys.executable, "-m", "outcrop", "scan", "--json", "-", "src"]
    environment = {"PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(cache), "HOME": str(place)}
    value = drawn("0123456789abcdef", 32, 1)
    ran = subprocess.run(
        command,
        cwd=place,
        input=f"datadog_api_key = {value}\n".encode(),
        capture_output=True,
        env=environment,
        check=False,
    )
    assert ran.returncode == 1
    assert [finding["rule"] for finding in json.loads(ran.stdout)] == [
        "datadog_api_key",
        "github_pat_classic",
    ]
    assert ran.stderr == b""


@pytest.mark.parametrize(("term", "shown"), [("xterm", True), ("dumb", False)])
def test_progress_is_shown_where_it_can_be_taken_back(place, cache, term, shown):
    main, other = pty.openpty()
    command = [sys.executable, "-m", "outcrop", "scan", "--json", "--no-validate", "src"]
    environment = {"PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(cache), "HOME": str(place), "TERM": term}
    ran = subprocess.run(
        command,
        cwd=place,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=other,
        env=environment,
        check=False,
    )
    os.set_blocking(main, False)
    reported = os.read(main, 10_000) if select.select([main], [], [], 0)[0] else b""
    os.close(main)
    os.close(other)
    assert (b"files" in reported, bool(reported)) == (shown, shown)
    assert len(json.loads(ran.stdout)) == 1
