"""Allowlists of a gitleaks configuration drop the same values as in gitleaks."""

from pathlib import Path

import pytest

from outcrop.domain.finding import Confidence
from outcrop.scanner.engine.load import compile_ruleset, load_ruleset
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.scan import scan_content
from outcrop.scanner.rules.allowlist import Allowlist, is_allowed_at
from outcrop.scanner.rules.gitleaks_config import load_gitleaks_config
from outcrop.sources.located import applicable_hits
from tests.support.rulesets import values


def config_with(*allowlists: str) -> str:
    """Return a configuration with one rule that has these allowlists."""
    return "[[rules]]\nid = 'tok'\nregex = '''tok_([a-z]{8})'''\n" + "".join(
        f"[[rules.allowlists]]\n{allowlist}\n" for allowlist in allowlists
    )


def compile_config(text: str, path: Path) -> RuleSet:
    """Return the compiled rules of a configuration that is written to a path."""
    path.write_text(text)
    return compile_ruleset(load_gitleaks_config(path).rules)


# Description -> configuration, and the number of values found in each text.
VALUE_CONDITIONS = {
    "one of two conditions": (
        config_with("regexes = ['abc']\nstopwords = ['xyz']"),
        {"tok_abcqwert": 0, "tok_xyzqwert": 0, "tok_plmqwert": 1},
    ),
    "both conditions": (
        config_with("condition = 'and'\nregexes = ['abc']\nstopwords = ['XYZ']"),
        {"tok_abcqwert": 1, "tok_xyzqwert": 1, "tok_xyzabcqw": 0},
    ),
    "the match": (
        config_with("regexTarget = 'match'\nregexes = ['^tok_q']"),
        {"tok_qlmdwert": 0, "tok_plmdwert": 1},
    ),
    "not the match": (config_with("regexes = ['tok_']"), {"tok_qlmdwert": 1}),
    "the line": (
        config_with("regexTarget = 'line'\nregexes = ['^# ']"),
        {"# tok_qlmdwert": 0, "x\n# a tok_qlmdwert b\n": 0, "# x\ntok_qlmdwert\n# y": 1},
    ),
    "the line, far away": (
        config_with("regexTarget = 'line'\nregexes = ['sample']"),
        {f"sample{' ' * 3000}tok_qlmdwert": 0},
    ),
    "the line and the value": (
        config_with("condition = '&&'\nregexTarget = 'line'\nregexes = ['sample']\nstopwords = ['qlm']"),
        {"sample tok_qlmdwert": 0, "sample tok_plmdwert": 1, "tok_qlmdwert": 1},
    ),
    "keys in other cases": (
        config_with("RegexTarget = 'line'\nregexes = ['sample']\nStopWords = ['plm']"),
        {"sample tok_qlmdwert": 0, "tok_plmdwert": 0},
    ),
    "the first group that matches something": (
        "[[rules]]\nid = 'tok'\nregex = '''aa_([a-z]{8})|bb_(?P<secret>[a-z]{8})|cc_[a-z]{8}'''\n",
        {"aa_qlmdwert": 1, "bb_qlmdwert": 1, "cc_qlmdwert": 1},
    ),
    "non-ASCII letters": (
        "[[rules]]\nid = 'tok'\nregex = '''(?i)schl\u00fc?ssel=([a-z]{8})'''\n",
        {"Schl\u00fcssel=qlmdwert": 1, "schlssel=qlmdwert": 1, "schl=qlmdwert": 0},
    ),
}


@pytest.mark.parametrize(("text", "cases"), VALUE_CONDITIONS.values(), ids=VALUE_CONDITIONS)
def test_an_allowlist_drops_values_by_its_conditions(tmp_path, text, cases):
    rules = compile_config(text, tmp_path / "g.toml")
    assert {case: len(values(case, rules=rules)) for case in cases} == cases


# Description -> configuration, and the number of values found in a file of each path.
PATH_CONDITIONS = {
    "path of a rule": (
        "[[rules]]\nid='t'\nregex='tok_[a-z]{8}'\npath='(?i)\\.TF$'\n",
        {b"a.tf": 1, b"a.tf.txt": 0, b"z.zip!b.tf": 1},
    ),
    "allowlist of the file": (
        "[allowlist]\npaths=['vendor/','[.]md$']\n[[rules]]\nid='t'\nregex='tok_[a-z]{8}'\n",
        {b"vendor/a": 0, b"a": 1, b"a.md": 0},
    ),
    "allowlist of a rule": (config_with("paths = ['^test/']"), {b"test/a": 0, b"a/test/a": 1}),
    "path and value": (
        config_with("condition = 'AND'\npaths = ['^test/']\nregexes = ['^q']"),
        {b"test/a": 0, b"a": 1},
    ),
    "path and another value": (
        config_with("condition = 'AND'\npaths = ['^test/']\nregexes = ['^p']"),
        {b"test/a": 1, b"a": 1},
    ),
    "for another rule": ("[[allowlists]]\ntargetRules=['u']\npaths=['a']\n" + config_with(), {b"a": 1}),
    "for this rule": (
        "[[allowlists]]\ntargetRules=['tok']\npaths=['a']\n" + config_with(),
        {b"a": 0, b"b": 1},
    ),
    "path alone": (config_with("condition = 'AND'\npaths = ['a']"), {b"a": 0, b"b": 1}),
}


@pytest.mark.parametrize(("text", "cases"), PATH_CONDITIONS.values(), ids=PATH_CONDITIONS)
def test_an_allowlist_drops_values_by_their_path(tmp_path, text, cases):
    rules = compile_config(text, tmp_path / "g.toml")
    result = scan_content(rules, b"tok_qlmdwert\n", Confidence.MEDIUM)
    assert {name: len(applicable_hits(result, name)) for name in cases} == cases


def test_a_rule_that_allows_a_value_does_not_hide_it_from_another_rule(tmp_path):
    (tmp_path / "own.toml").write_text(
        "issuer = 'A'\n[[rule]]\nid = 'own'\npattern = 'tok_(?P<secret>[a-z]{8})'\nstrength = 'generic'\n"
    )
    for text in (
        config_with("paths = ['^test/']"),
        config_with("regexes = ['^q']"),
        config_with() + "path = '^src/'\n",
    ):
        (tmp_path / "g.toml").write_text(text)
        rules = load_ruleset([tmp_path / "own.toml"], built_in=False, gitleaks=tmp_path / "g.toml")
        found = applicable_hits(scan_content(rules, b"tok_qlmdwert\n", Confidence.MEDIUM), b"test/a")
        assert [hit.rule.id for _, hit in found] == ["own"]


@pytest.mark.parametrize(("name", "found"), [(b"a.tf", ["wide"]), (b"a.txt", ["narrow"]), (b"a.md", [])])
def test_of_two_rules_for_certain_paths_the_matching_one_reports_the_value(tmp_path, name, found):
    wide = "[[rules]]\nid = 'wide'\npath = 'tf$'\nregex = 'tok=(.[a-z]{8}.)'\n"
    narrow = "[[rules]]\nid = 'narrow'\npath = 't(f|xt)$'\nregex = 'tok=.([a-z]{8})'\n"
    rules = compile_config(wide + narrow, tmp_path / "g.toml")
    hits = applicable_hits(scan_content(rules, b"tok='qlmdwert'\n", Confidence.MEDIUM), name)
    assert [hit.rule.id for _, hit in hits] == found


def test_an_allowlist_drops_values_by_their_commit():
    by_commit = Allowlist(commits=("c1",))
    by_both = Allowlist(needs_all=True, commits=("c1",), path_regex="a")
    assert [is_allowed_at((by_commit,), (), b"a", commit) for commit in ("c1", "c2", "")] == [
        True,
        False,
        False,
    ]
    assert [
        is_allowed_at((by_both,), (0,), path, commit)
        for path, commit in ((b"a", "c1"), (b"a", "c2"), (b"b", "c1"))
    ] == [True, False, False]
    assert not is_allowed_at((by_both,), (), b"a", "c1")
