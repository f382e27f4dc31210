"""A gitleaks configuration finds the same values as in gitleaks; the rest is noted or refused."""

from pathlib import Path

import pytest

from outcrop.scanner.engine.load import compile_ruleset, load_ruleset
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.rules.gitleaks_config import load_gitleaks_config
from outcrop.scanner.rules.model import RuleError
from tests.support.calls import recorded_calls
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
def test_the_rules_of_the_configuration_find_their_values(rules, text, found):
    assert values(text, rules=rules) == found


def test_names_come_from_the_configuration_and_rules_with_only_a_path_are_dropped(rules):
    assert [(rule.id, rule.name) for rule in rules.rules] == [
        ("acme-token", "Acme's token"),
        ("middle", "a flag in the middle"),
        ("group-two", "group-two"),
        ("several-lists", "several-lists"),
        ("keyed", "keyed"),
    ]


def test_the_last_rule_with_the_same_id_is_used(tmp_path):
    path = tmp_path / "g.toml"
    path.write_text("[[rules]]\nid='a'\nregex='xx1'\n[[rules]]\nid='a'\nregex='yy2'\n")
    assert values("xx1 yy2", rules=compile_ruleset(load_gitleaks_config(path).rules)) == ["yy2"]


def test_rules_with_similar_ids_get_different_ids(tmp_path):
    path = tmp_path / "g.toml"
    long = "n" * 90
    ids = ["My Rule", "my-rule", "my.rule", "my-rule-2", "MY RULE", long, f"{long}n"]
    path.write_text(
        "".join(f"[[rules]]\nid='{id_}'\nregex='tok{n}_[a-z]{{8}}'\n" for n, id_ in enumerate(ids))
    )
    config = load_gitleaks_config(path)
    rule_ids = ["my-rule", "my-rule-3", "my-rule-4", "my-rule-2", "my-rule-5", "n" * 80, "n" * 78 + "-2"]
    assert [rule.id for rule in config.rules] == rule_ids
    found = hits(" ".join(f"tok{n}_qlmdwert" for n in range(len(ids))), rules=compile_ruleset(config.rules))
    assert [hit.rule.id for hit in found] == rule_ids


def test_an_entropy_that_is_not_a_number_is_noted_and_ignored(tmp_path):
    path = tmp_path / "g.toml"
    path.write_text("[[rules]]\nid='a'\nregex='tok_[a-z]{8}'\nentropy=nan\n")
    config = load_gitleaks_config(path)
    assert config.notes == [f"{path}:1: rule a: entropy: is not a number and is ignored"]
    assert values("tok_qlmdwert", rules=compile_ruleset(config.rules)) == ["tok_qlmdwert"]


ERRORS = {
    "syntax": ("[[rules]\n", ": Expected"),
    "rules": ("rules = 'x'\n", ": rules: Input should be a valid list"),
    "pattern": ("title = 'x'\n[[rules]]\nid='a'\nregex='('\n", ":2: rule a: pattern missing )"),
    "group": ("[[rules]]\nid='a'\nregex='(ab)c'\nsecretGroup=3\n", ":1: rule a: has no group 3"),
    "too short": (
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
    "pattern is not a list": (
        "[allowlist]\nregexes='abc'\n",
        ": allowlist.regexes: Input should be a valid list",
    ),
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
    "long number": ("x = " + "1" * 5_000, ": has a number with too many digits"),
    "path and default": (
        "[extend]\nuseDefault=true\npath='x'\n",
        ": extend.path and extend.useDefault cannot be used together",
    ),
}


@pytest.mark.parametrize(("text", "message"), ERRORS.values(), ids=ERRORS)
def test_an_error_names_file_and_rule(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "g.toml"
    path.write_text(text)
    (tmp_path / "x").write_text("")
    with pytest.raises(RuleError) as raised:
        load_gitleaks_config(path)
    assert raised.value.message.startswith(f"{path}{message}")


EXTENDED = """
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
EXTENDING = """
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


def test_a_configuration_can_extend_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.toml").write_text(EXTENDED)
    (tmp_path / "deep").mkdir()
    path = tmp_path / "deep" / "g.toml"
    path.write_text("\ufeff" + EXTENDING)
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


WITHOUT_EFFECT = """
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


def test_keys_without_effect_are_noted_and_the_cache_has_the_notes(tmp_path):
    path = tmp_path / "g.toml"
    path.write_text(WITHOUT_EFFECT)
    notes = [
        f"{path}:16: rule pair: entropies: unknown key, ignored",
        f"{path}: colour: unknown key, ignored",
        (
            f"{path}: extend.disabledRules: ignored, "
            "the built-in rules replace those of gitleaks and are all enabled"
        ),
        (
            f"{path}: its allowlists apply to its own rules, not to the built-in ones; "
            ".outcropignore excludes paths for all rules"
        ),
        f"{path}:9: rule gitlab-pat: changes a rule of gitleaks that is not here: it finds nothing",
        f"{path}:13: rule by-name: has a path but no regex: it finds nothing",
        f"{path}:16: rule pair: required: is ignored, the rule reports its matches alone",
    ]
    with recorded_calls(load_gitleaks_config) as reads:
        for _ in range(2):
            loaded = load_ruleset(built_in=False, gitleaks=path, cache=tmp_path / "cache")
            assert [rule.id for rule in loaded.rules] == ["pair"]
            assert loaded.notes == notes
    assert len(reads) == 1


def test_cached_rules_have_the_same_allowlists_and_depend_on_the_extended_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.toml").write_text(EXTENDED)
    (tmp_path / "g.toml").write_text(EXTENDING)
    for _ in range(2):
        loaded = load_ruleset(built_in=False, gitleaks=Path("g.toml"), cache=tmp_path / "cache")
        assert values("one_qlmdwert one_plmdwert four_zzzdwert", rules=loaded) == ["one_plmdwert"]
    (tmp_path / "base.toml").write_text(EXTENDED.replace("one_", "five_"))
    assert values(
        "one five_qlmdwert",
        rules=load_ruleset(built_in=False, gitleaks=Path("g.toml"), cache=tmp_path / "cache"),
    ) == ["five_qlmdwert"]


def test_a_rule_with_an_id_that_exists_gets_a_prefix(tmp_path):
    (tmp_path / "own.toml").write_text("issuer = 'A'\n[[rule]]\nid = 'tok'\npattern = 'kot_[a-z]{8}'\n")
    (tmp_path / "g.toml").write_text("[[rules]]\nid = 'tok'\nregex = '''tok_([a-z]{8})'''\n")
    loaded = load_ruleset([tmp_path / "own.toml"], built_in=False, gitleaks=tmp_path / "g.toml")
    assert [hit.rule.id for hit in hits("tok_qlmdwert kot_qlmdwert", rules=loaded)] == ["gitleaks-tok", "tok"]


def test_a_file_that_is_missing_or_not_utf8_is_refused(tmp_path):
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    with pytest.raises(RuleError, match="is not UTF-8"):
        load_gitleaks_config(tmp_path / "latin.toml")
    with pytest.raises(RuleError, match="No such file"):
        load_gitleaks_config(tmp_path / "none.toml")
