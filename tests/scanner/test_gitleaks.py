"""A configuration of gitleaks finds here what it finds there."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcrop.scanner.gitleaks import _scoped_flags, load_gitleaks, translate
from outcrop.scanner.rule import RuleError
from outcrop.scanner.ruleset import RuleSet, make
from tests.rulesets import values

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
    return make(load_gitleaks(path))


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
    assert _scoped_flags(given) == meant


@given(st.text("ab|()[]?i:\\^", max_size=12))
def test_whatever_is_no_pattern_is_no_crash(text):
    translate(text)


def test_escapes_and_classes_of_go_are_written_as_both_engines_read_them():
    assert translate(r"\x{41}[[:alpha:]_]\\z\z") == r"\x41[A-Za-z_]\\z$"
    assert re.fullmatch(translate("caf\u00e9").encode("latin-1"), "caf\u00e9".encode())


def test_the_last_rule_of_an_id_counts(tmp_path):
    path = tmp_path / "g.toml"
    path.write_text("[[rules]]\nid='a'\nregex='xx1'\n[[rules]]\nid='A'\nregex='yy2'\n")
    assert values("xx1 yy2", rules=make(load_gitleaks(path))) == ["yy2"]


FAULTS = {
    "syntax": ("[[rules]\n", "Expected"),
    "rules": ("rules = 'x'\n", "rules: is not a list of tables"),
    "pattern": ("[[rules]]\nid='a'\nregex='('\n", "rule a: pattern missing )"),
    "group": ("[[rules]]\nid='a'\nregex='(ab)c'\nsecretGroup=3\n", "rule a: has no group 3"),
    "too little": ("[[rules]]\nid='a'\nregex='a*'\n", "rule a: pattern matches fewer than two characters"),
    "entropy": ("[[rules]]\nid='a'\nregex='abc'\nentropy='x'\n", "rule a: could not convert"),
    "allowlist": ("[[rules]]\nid='a'\nregex='abc'\nallowlist.regexes=['[']\n", "rule a: is not taken"),
}


@pytest.mark.parametrize(("text", "message"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_told_with_file_and_rule(tmp_path, text, message):
    path = tmp_path / "g.toml"
    path.write_text(text)
    with pytest.raises(RuleError) as raised:
        load_gitleaks(path)
    assert raised.value.message.startswith(f"{path}: {message}")


def test_a_file_that_is_not_there_or_no_text_is_told(tmp_path):
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    with pytest.raises(RuleError, match="is not UTF-8"):
        load_gitleaks(tmp_path / "latin.toml")
    with pytest.raises(RuleError, match="No such file"):
        load_gitleaks(tmp_path / "none.toml")
