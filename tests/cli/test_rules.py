"""`outcrop rules`: what is there, what is well formed, what holds."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from outcrop.scanner.rules.model import BUILT_IN_RULES
from tests.support.command import Ran, run
from tests.support.rulesets import cached_in, github_token, replace_built_in_rules, ruleset

GOOD = """issuer = "Acme"

[[rule]]
id = "acme_key"
name = "Acme key"
secret_type = "acme"
pattern = 'acme_[0-9a-f]{16}'
examples = ["key = «acme_{{hex 16}}»", "«acme_{{hex 16}}»"]
counterexamples = ["acme_{{hex 15}}", "nothing"]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """Return a cache with all built-in rules, in which the tests keep what they compile."""
    return cached_in(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def all_rules(tmp_path, home) -> Callable[..., Ran]:
    (tmp_path / "good.toml").write_text(GOOD)
    (tmp_path / "bad.toml").write_text(GOOD.replace("{16}'", "'").replace("[0-9a-f]", "[0-9"))
    return lambda *arguments: run("rules", *arguments, folder=tmp_path, cache=home)


@pytest.fixture
def rules(all_rules, only_github_rules) -> Callable[..., Ran]:
    return all_rules


MARK = "\x1b[31m"
GITLEAKS = '[[rules]]\nid = "a\\u001b[31mb"\nregex = "ev(il"\n'


class TestNothingMovesTheCursorOfATerminal:
    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("id", GOOD.replace("acme_key", "a\\u001b[31mb").replace("'acme_", "'acme_(")),
            ("value", GOOD.replace("secret_type = ", 'impact = "a\\u001b[31mb"\nsecret_type = ')),
            ("key", GOOD + '"a\\u001b[31m" = 1\n'),
            ("pattern", GOOD.replace("'acme_[0-9a-f]{16}'", '"acme_\\u001b[31m("')),
            (f"file{MARK}", "[[rule]"),
            (f"away{MARK}", None),
        ],
    )
    def test_no_fault_of_a_rule_does(self, rules, tmp_path, name, text):
        if text is not None:
            (tmp_path / f"{name}.toml").write_text(text)
        for ran in (rules("check", f"{name}.toml"), rules("list", "--rules", f"{name}.toml")):
            assert ran.code == 2
            assert "\x1b" not in ran.out + ran.err
            assert ran.err.count("\n") == 1

    def test_none_of_a_configuration_of_gitleaks_does(self, tmp_path):
        (tmp_path / "g.toml").write_text(GITLEAKS)
        ran = run(
            "scan",
            "--no-validate",
            "--gitleaks-config",
            "g.toml",
            ".",
            folder=tmp_path,
            cache=tmp_path / "cache",
        )
        assert (ran.code, ran.err.partition(": pattern")[0]) == (2, "outcrop: g.toml:1: rule a\\x1b[31mb")

    def test_no_name_of_a_rule_does(self, rules, tmp_path):
        (tmp_path / "name.toml").write_text(GOOD.replace("Acme key", "Acme\\u001b[31m key"))
        ran = rules("list", "--rules", "name.toml")
        assert ran.code == 0
        assert "\x1b" not in ran.out
        assert "Acme\\x1b[31m key\n" in ran.out

    def test_no_example_that_does_not_hold_does(self, rules, tmp_path):
        (tmp_path / "name.toml").write_text(GOOD.replace('"nothing"', '"a\\u001b[31m acme_{{hex 16}}"'))
        ran = rules("test", "name.toml")
        assert ran.code == 2
        assert "\x1b" not in ran.out


class TestList:
    def test_every_rule_by_its_id(self, all_rules):
        ran = all_rules("list")
        ids = [line.split()[0] for line in ran.out.splitlines()]
        assert (ran.code, ran.err) == (0, "")
        assert ids == sorted(rule.id for rule in ruleset().rules)

    def test_json(self, all_rules):
        records = all_rules("list", "--json").json
        assert {
            "id": "github_pat_classic",
            "name": "GitHub personal access token (classic)",
            "secret_type": "github",
            "issuer": "GitHub",
            "impact": "critical",
        } in records
        assert len(records) == len(ruleset().rules)

    def test_own_rules_beside_them(self, all_rules):
        assert "acme_key" in [
            record["id"] for record in all_rules("list", "--rules", "good.toml", "--json").json
        ]

    def test_own_rules_that_are_wrong(self, all_rules):
        ran = all_rules("list", "--rules", "bad.toml")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("outcrop: bad.toml:7: rule acme_key: pattern unterminated character set")


class TestCheck:
    def test_a_good_file(self, rules):
        assert rules("check", "good.toml") == Ran(0, "1 rules are valid\n", "")
        assert rules("check", "good.toml", "--json").json == {"rules": 1}

    def test_a_bad_file_is_reported_with_its_line(self, rules):
        for more in ([], ["--json"]):
            ran = rules("check", "bad.toml", *more)
            assert (ran.code, ran.out) == (2, "")
            assert ran.err.startswith(
                "outcrop: bad.toml:7: rule acme_key: pattern unterminated character set"
            )
            assert ran.err.count("\n") == 1

    def test_a_folder(self, rules, tmp_path):
        ran = rules("check", ".")
        assert ran.code == 2
        (tmp_path / "bad.toml").unlink()
        assert rules("check", ".").out == "1 rules are valid\n"

    def test_what_is_not_there(self, rules):
        assert rules("check", "none.toml").err == "outcrop: none.toml: No such file or directory\n"
        assert rules("check").code == 2

    @pytest.mark.parametrize("command", ["check", "test"])
    def test_an_empty_path_is_not_the_current_folder(self, rules, command):
        assert rules(command, "") == Ran(2, "", "outcrop: the path is empty\n")

    @pytest.mark.parametrize("command", ["check", "test"])
    def test_the_id_of_a_built_in_rule_is_reported_as_a_scan_does(self, rules, tmp_path, command):
        (tmp_path / "same.toml").write_text(GOOD.replace("acme_key", "github_pat_classic"))
        ran = rules(command, "same.toml")
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert ran.err.startswith("outcrop: same.toml:7: rule github_pat_classic: is already defined in ")

    def test_a_built_in_file_is_well_formed(self, rules):
        assert rules("check", BUILT_IN_RULES / "github.toml").code == 0

    @pytest.mark.parametrize("command", ["check", "test"])
    def test_what_is_nested_too_deeply_is_reported_in_one_line(self, rules, tmp_path, command):
        (tmp_path / "deep.toml").write_text("x=" + "[" * 100_000)
        assert rules(command, "deep.toml") == Ran(2, "", "outcrop: deep.toml: is nested too deeply\n")


class TestTest:
    def test_good_examples(self, rules):
        assert rules("test", "good.toml") == Ran(0, "4 of 4 cases passed\n", "")
        assert rules("test", "good.toml", "--json").json == {"cases": 4, "failed": []}

    FAULTS = (
        ('"nothing"]', '"acme_{{hex 16}}"]', "counterexample is found: acme_{{hex 16}}"),
        (
            '"key = «acme_{{hex 16}}»"',
            '"key = «acme_{{hex 17}}»"',
            "example is not found: key = «acme_{{hex 17}}»",
        ),
        (
            '"key = «acme_{{hex 16}}»"',
            '"«key = acme_{{hex 16}}»"',
            "example is found with other values: «key = acme_{{hex 16}}»",
        ),
        (
            '"key = «acme_{{hex 16}}»"',
            '"key = acme_{{hex 16}}"',
            "example marks no value with «»: key = acme_{{hex 16}}",
        ),
        (
            '"key = «acme_{{hex 16}}»"',
            '"{{hex 99999999999}}"',
            "example cannot be filled in: 99999999999 is more than 100,000",
        ),
        (
            '"key = «acme_{{hex 16}}»"',
            '"{{nonsense 3}}"',
            "example cannot be filled in: {{nonsense 3}} is unknown in an example",
        ),
    )

    @pytest.mark.parametrize(("old", "new", "reason"), FAULTS)
    def test_what_does_not_hold_is_reported(self, rules, tmp_path, old, new, reason):
        (tmp_path / "f.toml").write_text(GOOD.replace(old, new))
        ran = rules("test", "f.toml")
        assert ran.code == 2
        assert ran.out.startswith(f"acme_key: {reason}")
        assert ran.out.endswith("\n3 of 4 cases passed\n")
        assert ran.err == "outcrop: 1 cases of f.toml failed\n"
        ran = rules("test", "f.toml", "--json")
        assert ran.code == 2
        (failed,) = json.loads(ran.out)["failed"]
        assert failed["rule"] == "acme_key"
        assert failed["reason"].startswith(reason)

    def test_a_built_in_file_holds_beside_the_others(self, all_rules):
        assert all_rules("test", BUILT_IN_RULES / "slack.toml").code == 0


@pytest.fixture(scope="module")
def github_and_generic(tmp_path_factory) -> Path:
    """Return a folder with two of the built-in rule files."""
    folder: Path = tmp_path_factory.mktemp("rules")
    for name in ("github.toml", "generic.toml"):
        shutil.copy(BUILT_IN_RULES / name, folder)
    return folder


class TestFindings:
    @pytest.fixture
    def look(self, rules, tmp_path, monkeypatch, github_and_generic) -> Callable[..., Ran]:
        replace_built_in_rules(monkeypatch, github_and_generic)
        folder = tmp_path / "project"
        folder.mkdir()
        (folder / "a.env").write_text(
            f"TOKEN={github_token('rules')}\nDB_PASSWORD=Wint3r!Oslo\nOLD_TOKEN={github_token('rules')[:-6]}000000\n"
        )
        (folder / "b.py").write_text("password = 'Leopard42!'\nkey = 'acme_0123456789abcdef'\n")
        return lambda *more: rules("test", "project", *more)

    def test_every_finding_and_counts_by_rule_and_confidence(self, look):
        ran = look()
        assert ran.code == 0
        assert ran.out.splitlines()[-3:] == [
            "5 findings in 2 files, 0.0 MB",
            "generic_password: 0 high, 2 medium, 1 low",
            "github_pat_classic: 1 high, 0 medium, 1 low",
        ]
        assert "a.env:2: generic_password (medium) ********" in ran.out.splitlines()

    def test_one_rule(self, look):
        found = look("--rule", "github_pat_classic", "--json").json
        assert (found["files"], found["rules"]) == (
            2,
            [{"id": "github_pat_classic", "high": 1, "medium": 0, "low": 1}],
        )
        assert [
            (finding["file_path"], finding["line_number"], finding["confidence"])
            for finding in found["findings"]
        ] == [
            ("a.env", 1, "high"),
            ("a.env", 3, "low"),
        ]

    def test_own_rules(self, look):
        ran = look("--rules", "good.toml", "--rule", "acme_key")
        assert ran.out.endswith("1 findings in 2 files, 0.0 MB\nacme_key: 0 high, 0 medium, 1 low\n")

    def test_what_is_wrong_is_reported(self, look, rules):
        assert look("--rule", "none").err == "outcrop: --rule none: no such rule\n"
        assert rules("test", "nowhere").err == "outcrop: nowhere: no such file or directory\n"

    def test_no_credential_is_printed(self, look):
        assert github_token("rules") not in look().out + look("--json").out


def test_the_built_in_folder_is_part_of_the_package():
    assert Path(BUILT_IN_RULES).is_dir()


def test_compile_writes_the_rules_once_and_removes_other_versions(rules, tmp_path):
    folder = tmp_path / "compiled"
    folder.mkdir()
    (folder / "rules-old.db").write_bytes(b"x")
    first = json.loads(rules("compile", "--output", folder, "--json").out)
    assert first["compiled"]
    assert first["folder"] == str(folder)
    assert {file.name for file in folder.iterdir()} == {
        f"rules-{first['version']}{end}" for end in (".db", ".json")
    }
    second = rules("compile", "--output", folder)
    assert second.out == f"{first['rules']} rules were compiled already: {folder}\n"


def test_compile_into_a_folder_that_cannot_be_written_says_so(rules, tmp_path):
    (tmp_path / "file").touch()
    ran = rules("compile", "--output", tmp_path / "file" / "compiled")
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "cannot be written" in ran.err
