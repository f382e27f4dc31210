"""A configuration of gitleaks finds here what it finds there."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcrop.domain.finding import Confidence
from outcrop.scanner.engine.load import compile_ruleset, load_ruleset
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.scan import scan_content
from outcrop.scanner.patterns.go_regex import _scope_flags, translate_go_regex
from outcrop.scanner.rules.allowlist import Allowlist, is_allowed_at
from outcrop.scanner.rules.gitleaks_config import load_gitleaks_config
from outcrop.scanner.rules.model import RuleError
from outcrop.sources.located import hits_at_path
from tests.support.rulesets import hits, values

CONFIG = r"""
title = "our own"

[extend]
useDefault = true
disabledRules = ["generic-api-key"]

[allowlist]
description = "everywhere"
paths = ['''vendor/''']
regexes = ['''^acme_0000''']

[[rules]]
id = "Acme Token"
description = "Acme's token"
regex = '''(?i)\b(acme_[[:xdigit:]]{16})(?:['|\"|\n|\r|\s|\x60|;]|$)'''
entropy = 2.5
keywords = ["ACME_"]
tags = ["key"]

[[rules]]
id = "middle"
description = "a flag in the middle"
regex = '''tok_(?i)[a-f]{4}-([[:alnum:]]{8})\z'''
secretGroup = 1

[[rules]]
id = "group-two"
regex = '''(user|admin):(?P<pw>[^\s@]{8,40})@corp'''
secretGroup = 2
    [rules.allowlist]
    regexes = ['''^spam''']
    stopwords = ["Changed"]

[[rules]]
id = "several-lists"
regex = '''lst_[a-z]{12}'''
[[rules.allowlists]]
regexes = ['''abc''']
[[rules.allowlists]]
stopwords = ["zzz"]
[[rules.allowlists]]
condition = "AND"
paths = ['''test/''']
regexes = ['''lst_q''']

[[rules]]
id = "keyed"
regex = '''[0-9a-f]{32}'''
keywords = ["widget"]

[[rules]]
id = "pkcs12"
description = "a file by its name"
path = '''(?i)(?:^|\/)[^\/]+\.p(?:12|fx)$'''
"""


@pytest.fixture(scope="module")
def rules(tmp_path_factory) -> RuleSet:
    path = tmp_path_factory.mktemp("gitleaks") / "gitleaks.toml"
    path.write_text(CONFIG)
    return compile_ruleset(load_gitleaks_config(path).rules)


HEX = "0f1e9d3c7b5a28464f1e9d3c7b5a2846"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"key = ACME_{HEX[:16]};", [f"ACME_{HEX[:16]}"]),
        (f"key = xacme_{HEX[:16]};", []),
        ("key = acme_aaaaaaaaaaaaaaaa;", []),  # too little entropy
        (f"key = acme_0000{HEX[:12]};", []),  # allowed everywhere
        ("see tok_ABcd-7qR4w9Zt", ["7qR4w9Zt"]),
        ("see TOK_ABcd-7qR4w9Zt", []),
        ("see tok_ABcd-7qR4w9Zt.", []),
        ("postgres://admin:Tr0ub4dor&3@corp", ["Tr0ub4dor&3"]),
        ("postgres://admin:spam-Tr0ub4dor@corp", []),
        ("postgres://admin:Tr0ub4dor-cHANGED@corp", []),
        ("postgres://admin:Tr0ub4dor-invented@corp", ["Tr0ub4dor-invented"]),
        ("lst_kdqwpomvbtry", ["lst_kdqwpomvbtry"]),
        ("lst_kdqabcmvbtry", []),
        ("lst_kdqwpomzzzry", []),
        ("lst_qdqwpomvbtry", ["lst_qdqwpomvbtry"]),  # allowed in test/ only
        (f"md5: {HEX}", []),  # no keyword anywhere
        (f"WIDGET\n\nid\n\n{HEX}", [HEX]),
    ],
)
def test_findings_are_those_of_the_configuration(rules, text, found):
    assert values(text, rules=rules) == found


def test_names_come_from_the_configuration_and_path_rules_are_left_out(rules):
    assert [(rule.id, rule.name) for rule in rules.rules] == [
        ("acme-token", "Acme's token"),
        ("middle", "a flag in the middle"),
        ("group-two", "group-two"),
        ("several-lists", "several-lists"),
        ("keyed", "keyed"),
    ]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("a(?i)b|c", "a(?i:b)|(?i:c)"),
        ("(?i)a|b", "(?i:a)|(?i:b)"),
        ("(x(?s).|y)z", "(x(?s:.)|(?s:y))z"),
        ("a(?i)b(?-i)c", "a(?i:b(?-i:c))"),
        (r"a(?i)[|)\]]b|\|c", r"a(?i:[|)\]]b)|(?i:\|c)"),
        ("a(?i)(b|[]|]c)|d", "a(?i:(b|[]|]c))|(?i:d)"),
        ("[(?i)]x", "[(?i)]x"),
    ],
)
def test_a_flag_holds_to_the_end_of_its_group_over_its_alternatives(given, meant):
    assert _scope_flags(given) == meant


@given(st.text("ab|()[]?i:\\^", max_size=12))
def test_whatever_is_no_pattern_is_no_crash(text):
    translate_go_regex(text)


def test_escapes_and_classes_of_go_are_written_as_both_engines_read_them():
    assert translate_go_regex(r"\x{41}[[:alpha:]_]\\z\z") == r"\x41[A-Za-z_]\\z$"
    assert re.fullmatch(translate_go_regex("caf\u00e9").encode("latin-1"), "caf\u00e9".encode())


def test_the_last_rule_of_an_id_counts(tmp_path):
    path = tmp_path / "g.toml"
    path.write_text("[[rules]]\nid='a'\nregex='xx1'\n[[rules]]\nid='a'\nregex='yy2'\n")
    assert values("xx1 yy2", rules=compile_ruleset(load_gitleaks_config(path).rules)) == ["yy2"]


def test_rules_whose_ids_are_written_alike_all_speak(tmp_path):
    path = tmp_path / "g.toml"
    long = "n" * 90
    ids = ["My Rule", "my-rule", "my.rule", "my-rule-2", "MY RULE", long, f"{long}n"]
    path.write_text(
        "".join(f"[[rules]]\nid='{id_}'\nregex='tok{n}_[a-z]{{8}}'\n" for n, id_ in enumerate(ids))
    )
    config = load_gitleaks_config(path)
    told = ["my-rule", "my-rule-3", "my-rule-4", "my-rule-2", "my-rule-5", "n" * 80, "n" * 78 + "-2"]
    assert [rule.id for rule in config.rules] == told
    found = hits(" ".join(f"tok{n}_qlmdwert" for n in range(len(ids))), rules=compile_ruleset(config.rules))
    assert [hit.rule.id for hit in found] == told


def test_an_entropy_that_is_no_number_is_noted_and_the_rule_speaks(tmp_path):
    path = tmp_path / "g.toml"
    path.write_text("[[rules]]\nid='a'\nregex='tok_[a-z]{8}'\nentropy=nan\n")
    config = load_gitleaks_config(path)
    assert config.notes == [f"{path}:1: rule a: entropy: is not a number and is ignored"]
    assert values("tok_qlmdwert", rules=compile_ruleset(config.rules)) == ["tok_qlmdwert"]


FAULTS = {
    "syntax": ("[[rules]\n", ": Expected"),
    "rules": ("rules = 'x'\n", ": rules: Input should be a valid list"),
    "pattern": ("title = 'x'\n[[rules]]\nid='a'\nregex='('\n", ":2: rule a: pattern missing )"),
    "group": ("[[rules]]\nid='a'\nregex='(ab)c'\nsecretGroup=3\n", ":1: rule a: has no group 3"),
    "too little": (
        "[[rules]]\nid='a'\nregex='a*'\n",
        ":1: rule a: pattern matches fewer than two characters",
    ),
    "entropy": (
        "[[rules]]\nid='a'\nregex='abc'\nentropy='x'\n",
        ":1: rule a: entropy: Input should be a valid number",
    ),
    "allowlist": ("[[rules]]\nid='a'\nregex='abc'\nallowlist.regexes=['[']\n", ":1: rule a: is refused by"),
    "keywords": (
        "[[rules]]\nid='a'\nregex='abc'\nkeywords='abc'\n",
        ":1: rule a: keywords: Input should be a valid list",
    ),
    "one pattern": ("[allowlist]\nregexes='abc'\n", ": allowlist.regexes: Input should be a valid list"),
    "condition": (
        "[[allowlists]]\ncondition='XOR'\npaths=['a']\n",
        ": allowlists.0.condition: String should match",
    ),
    "target": (
        "[[allowlists]]\nregexTarget='file'\nregexes=['a']\n",
        ": allowlists.0.regextarget: Input should be",
    ),
    "negated class": (
        "[[rules]]\nid='a'\nregex='ab[[:^alpha:]]c'\n",
        ":1: rule a: has an unknown character class: [:^alpha:]",
    ),
    "letters in a class": (
        "[[rules]]\nid='a'\nregex='ab[\u00e4\u00f6]c'\n",
        ":1: rule a: has a non-ASCII character in a class",
    ),
    "a long number": ("x = " + "1" * 5_000, ": has a number with too many digits"),
    "two ways to extend": (
        "[extend]\nuseDefault=true\npath='x'\n",
        ": extend.path and extend.useDefault cannot be used together",
    ),
}


@pytest.mark.parametrize(("text", "message"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_told_with_file_and_rule(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "g.toml"
    path.write_text(text)
    (tmp_path / "x").write_text("")
    with pytest.raises(RuleError) as raised:
        load_gitleaks_config(path)
    assert raised.value.message.startswith(f"{path}{message}")


def lists(*text: str) -> str:
    return "[[rules]]\nid = 'tok'\nregex = '''tok_([a-z]{8})'''\n" + "".join(
        f"[[rules.allowlists]]\n{one}\n" for one in text
    )


LISTS = {
    "one of two": (lists("regexes = ['abc']\nstopwords = ['xyz']"), {"tok_abcqwert": 0, "tok_xyzqwert": 0, "tok_plmqwert": 1}),
    "both of two": (
        lists("condition = 'and'\nregexes = ['abc']\nstopwords = ['XYZ']"),
        {"tok_abcqwert": 1, "tok_xyzqwert": 1, "tok_xyzabcqw": 0},
    ),
    "the match": (lists("regexTarget = 'match'\nregexes = ['^tok_q']"), {"tok_qlmdwert": 0, "tok_plmdwert": 1}),
    "not the match": (lists("regexes = ['tok_']"), {"tok_qlmdwert": 1}),
    "the line": (
        lists("regexTarget = 'line'\nregexes = ['^# ']"),
        {"# tok_qlmdwert": 0, "x\n# a tok_qlmdwert b\n": 0, "# x\ntok_qlmdwert\n# y": 1},
    ),
    "the line, far away": (lists("regexTarget = 'line'\nregexes = ['sample']"), {f"sample{' ' * 3000}tok_qlmdwert": 0}),
    "both, the line": (
        lists("condition = '&&'\nregexTarget = 'line'\nregexes = ['sample']\nstopwords = ['qlm']"),
        {"sample tok_qlmdwert": 0, "sample tok_plmdwert": 1, "tok_qlmdwert": 1},
    ),
    "keys in other cases": (
        lists("RegexTarget = 'line'\nregexes = ['sample']\nStopWords = ['plm']"),
        {"sample tok_qlmdwert": 0, "tok_plmdwert": 0},
    ),
    "the first group that holds anything": (
        "[[rules]]\nid = 'tok'\nregex = '''aa_([a-z]{8})|bb_(?P<secret>[a-z]{8})|cc_[a-z]{8}'''\n",
        {"aa_qlmdwert": 1, "bb_qlmdwert": 1, "cc_qlmdwert": 1},
    ),
    "letters": (
        "[[rules]]\nid = 'tok'\nregex = '''(?i)schl\u00fc?ssel=([a-z]{8})'''\n",
        {"Schl\u00fcssel=qlmdwert": 1, "schlssel=qlmdwert": 1, "schl=qlmdwert": 0},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "cases"), LISTS.values(), ids=LISTS)
def test_what_a_list_lets_pass(tmp_path, text, cases):
    path = tmp_path / "g.toml"
    path.write_text(text)
    rules = compile_ruleset(load_gitleaks_config(path).rules)
    assert {case: len(values(case, rules=rules)) for case in cases} == cases


PLACES = {
    "a rule's path": (
        "[[rules]]\nid='t'\nregex='tok_[a-z]{8}'\npath='(?i)\\.TF$'\n",
        {b"a.tf": 1, b"a.tf.txt": 0, b"z.zip!b.tf": 1},
    ),
    "everywhere": (
        "[allowlist]\npaths=['vendor/','[.]md$']\n[[rules]]\nid='t'\nregex='tok_[a-z]{8}'\n",
        {b"vendor/a": 0, b"a": 1, b"a.md": 0},
    ),
    "a rule's own": (lists("paths = ['^test/']"), {b"test/a": 0, b"a/test/a": 1}),
    "in some files": (
        lists("condition = 'AND'\npaths = ['^test/']\nregexes = ['^q']"),
        {b"test/a": 0, b"a": 1},
    ),
    "another value in these": (
        lists("condition = 'AND'\npaths = ['^test/']\nregexes = ['^p']"),
        {b"test/a": 1, b"a": 1},
    ),
    "for another rule": ("[[allowlists]]\ntargetRules=['u']\npaths=['a']\n" + lists(), {b"a": 1}),
    "for this rule": ("[[allowlists]]\ntargetRules=['tok']\npaths=['a']\n" + lists(), {b"a": 0, b"b": 1}),
    "paths alone": (lists("condition = 'AND'\npaths = ['a']"), {b"a": 0, b"b": 1}),
}


@pytest.mark.parametrize(("text", "cases"), PLACES.values(), ids=PLACES)
def test_what_passes_by_its_path(tmp_path, text, cases):
    path = tmp_path / "g.toml"
    path.write_text(text)
    rules = compile_ruleset(load_gitleaks_config(path).rules)
    found = scan_content(rules, b"tok_qlmdwert\n", Confidence.MEDIUM)
    assert {name: len(hits_at_path(found, name)) for name in cases} == cases


def test_a_rule_that_lets_a_value_pass_does_not_hide_it_from_another(tmp_path):
    (tmp_path / "own.toml").write_text(
        "issuer = 'A'\n[[rule]]\nid = 'own'\npattern = 'tok_(?P<secret>[a-z]{8})'\nstrength = 'generic'\n"
    )
    for text in (lists("paths = ['^test/']"), lists("regexes = ['^q']"), lists() + "path = '^src/'\n"):
        (tmp_path / "g.toml").write_text(text)
        rules = load_ruleset([tmp_path / "own.toml"], built_in=False, gitleaks=tmp_path / "g.toml")
        found = hits_at_path(scan_content(rules, b"tok_qlmdwert\n", Confidence.MEDIUM), b"test/a")
        assert [hit.rule.id for _, hit in found] == ["own"]


@pytest.mark.parametrize(("name", "found"), [(b"a.tf", ["wide"]), (b"a.txt", ["narrow"]), (b"a.md", [])])
def test_of_two_rules_for_certain_files_the_one_that_applies_speaks(tmp_path, name, found):
    path = tmp_path / "g.toml"
    wide = "[[rules]]\nid = 'wide'\npath = 'tf$'\nregex = 'tok=(.[a-z]{8}.)'\n"
    path.write_text(wide + "[[rules]]\nid = 'narrow'\npath = 't(f|xt)$'\nregex = 'tok=.([a-z]{8})'\n")
    hits = hits_at_path(
        scan_content(
            compile_ruleset(load_gitleaks_config(path).rules), b"tok='qlmdwert'\n", Confidence.MEDIUM
        ),
        name,
    )
    assert [hit.rule.id for _, hit in hits] == found


def test_what_passes_by_its_commit():
    one, both = Allowlist(commits=("c1",)), Allowlist(needs_all=True, commits=("c1",), path_regex="a")
    assert [is_allowed_at((one,), (), b"a", commit) for commit in ("c1", "c2", "")] == [True, False, False]
    assert [
        is_allowed_at((both,), (0,), path, commit)
        for path, commit in ((b"a", "c1"), (b"a", "c2"), (b"b", "c1"))
    ] == [True, False, False]
    assert not is_allowed_at((both,), (), b"a", "c1")


BASE = """
[[rules]]
id = "first"
description = "from below"
regex = \'\'\'one_[a-z]{8}\'\'\'
keywords = ["one"]
[[rules]]
id = "second"
regex = \'\'\'two_[a-z]{8}\'\'\'
[[rules]]
id = "third"
regex = \'\'\'three_[a-z]{8}\'\'\'
[allowlist]
stopwords = ["zzz"]
"""
UPPER = """
[extend]
path = "base.toml"
disabledRules = ["third"]
[[rules]]
id = "first"
[[rules.allowlists]]
regexes = ["one_q"]
[[rules]]
id = "fourth"
regex = \'\'\'four_[a-z]{8}\'\'\'
"""


def test_a_configuration_that_extends_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.toml").write_text(BASE)
    (tmp_path / "deep").mkdir()
    path = tmp_path / "deep" / "g.toml"
    path.write_text("\ufeff" + UPPER)
    config = load_gitleaks_config(path)
    assert [(rule.id, rule.name) for rule in config.rules] == [
        ("first", "from below"),
        ("second", "second"),
        ("fourth", "fourth"),
    ]
    text = "one_qlmdwert one_plmdwert two_qlmdwert three_qlmdwert four_qlmdwert four_zzzdwert"
    assert values(text, rules=compile_ruleset(config.rules)) == [
        "one_plmdwert",
        "two_qlmdwert",
        "four_qlmdwert",
    ]
    (tmp_path / "base.toml").unlink()
    with pytest.raises(RuleError, match=r"^base.toml: No such file"):
        load_gitleaks_config(path)


NOTED = """
title = "x"
colour = "red"
[extend]
useDefault = true
disabledRules = ["generic-api-key"]
[allowlist]
paths = ["x"]
[[rules]]
id = "gitlab-pat"
[[rules.allowlists]]
regexes = ["x"]
[[rules]]
id = "by-name"
path = "p12$"
[[rules]]
id = "pair"
regex = "tok_[a-z]{8}"
entropies = 3
required = [{ id = "helper", withinLines = 3 }]
[[rules]]
id = "helper"
regex = "hlp_[a-z]{8}"
skipReport = true
"""


def test_what_is_not_done_is_noted_and_stays_noted_in_the_cache(tmp_path, monkeypatch):
    path = tmp_path / "g.toml"
    path.write_text(NOTED)
    notes = [
        f"{path}:16: rule pair: entropies: unknown key, ignored",
        f"{path}: colour: unknown key, ignored",
        f"{path}: extend.disabledRules: ignored, the built-in rules replace those of gitleaks and are all enabled",
        f"{path}: its allowlists apply to its own rules, not to the built-in ones; .outcropignore excludes paths for all rules",
        f"{path}:9: rule gitlab-pat: changes a rule of gitleaks that is not here: it finds nothing",
        f"{path}:13: rule by-name: has a path but no regex: it finds nothing",
        f"{path}:16: rule pair: required: is ignored, the rule reports its matches alone",
    ]
    for _ in range(2):
        loaded = load_ruleset(built_in=False, gitleaks=path, cache=tmp_path / "cache")
        assert [rule.id for rule in loaded.rules] == ["pair"]
        assert loaded.notes == notes
        monkeypatch.setattr("outcrop.scanner.rules.gitleaks_config.load_gitleaks_config", None)


def test_rules_in_the_cache_pass_the_same_and_a_file_that_is_extended_counts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.toml").write_text(BASE)
    (tmp_path / "g.toml").write_text(UPPER)
    for _ in range(2):
        loaded = load_ruleset(built_in=False, gitleaks=Path("g.toml"), cache=tmp_path / "cache")
        assert values("one_qlmdwert one_plmdwert four_zzzdwert", rules=loaded) == ["one_plmdwert"]
    (tmp_path / "base.toml").write_text(BASE.replace("one_", "five_"))
    assert values(
        "one five_qlmdwert",
        rules=load_ruleset(built_in=False, gitleaks=Path("g.toml"), cache=tmp_path / "cache"),
    ) == ["five_qlmdwert"]


def test_a_rule_with_the_id_of_another_stands_beside_it(tmp_path):
    (tmp_path / "own.toml").write_text("issuer = 'A'\n[[rule]]\nid = 'tok'\npattern = 'kot_[a-z]{8}'\n")
    (tmp_path / "g.toml").write_text(lists())
    loaded = load_ruleset([tmp_path / "own.toml"], built_in=False, gitleaks=tmp_path / "g.toml")
    assert [hit.rule.id for hit in hits("tok_qlmdwert kot_qlmdwert", rules=loaded)] == ["gitleaks-tok", "tok"]


def test_a_file_that_is_not_there_or_no_text_is_told(tmp_path):
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    with pytest.raises(RuleError, match="is not UTF-8"):
        load_gitleaks_config(tmp_path / "latin.toml")
    with pytest.raises(RuleError, match="No such file"):
        load_gitleaks_config(tmp_path / "none.toml")
