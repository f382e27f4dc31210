"""Errors in a rule file name file, line and rule; files and folders are loaded in order."""

from pathlib import Path

import pytest

from outcrop.scanner.engine.load import load_ruleset
from outcrop.scanner.rules.model import BUILT_IN_RULES, RuleError
from outcrop.scanner.rules.toml import load_rule_files, parse_rule_file
from tests.support.rulesets import own_rules, values

HEAD = 'issuer = "Acme"\n\n[[rule]]\nid = "acme_key"\nname = "Acme key"\nsecret_type = "acme"\n'
GOOD = HEAD + "pattern = 'acme_[0-9a-f]{16}'\n"

# Description -> text of a rule file, and the beginning of the error message without its file.
ERRORS = {
    "unknown key": (GOOD + 'colour = "red"\n', ":8: rule acme_key: colour: Extra inputs are not permitted"),
    "wrong type": (GOOD + "entropy = 'much'\n", ":8: rule acme_key: entropy: Input should be a valid number"),
    "out of range": (
        GOOD + "within = 0\n",
        ":8: rule acme_key: within: Input should be greater than or equal to 1",
    ),
    "wrong choice": (
        GOOD + "impact = 'huge'\n",
        ":8: rule acme_key: impact: Input should be 'critical', 'high', 'medium' or 'low'",
    ),
    "revoke over http": (
        GOOD + 'revoke = "http://acme.example/keys"\n',
        ":8: rule acme_key: revoke: String should match pattern",
    ),
    "revoke with a user": (
        GOOD + 'revoke = "https://a@acme.example/"\n',
        ":8: rule acme_key: revoke: String should match pattern",
    ),
    "long advice": (
        GOOD + f'advice = "{"x" * 301}"\n',
        ":8: rule acme_key: advice: String should have at most 300 characters",
    ),
    "advice of a file": (
        'advice = "short"\n' + GOOD,
        ": advice: String should have at least 20 characters",
    ),
    "bad id": (
        GOOD.replace("acme_key", "Acme Key"),
        ":4: rule Acme Key: id: String should match pattern",
    ),
    "missing pattern": (HEAD, ":3: rule acme_key: pattern or value is needed"),
    "missing id": (GOOD.replace('id = "acme_key"\n', ""), ":3: rule number 1: id: Field required"),
    "missing issuer": (GOOD.replace('issuer = "Acme"\n', ""), ": issuer: Field required"),
    "no rule": ('issuer = "Acme"\n', ": rule: Field required"),
    "unknown checksum": (
        GOOD + "checksum = 'md5'\n",
        ":8: rule acme_key: checksum 'md5' is unknown; use one of crc32_HEX",
    ),
    "bad pattern": (
        HEAD + "pattern = 'acme_[0-9'\n",
        ":7: rule acme_key: pattern unterminated character set",
    ),
    "lookahead": (
        HEAD + "pattern = 'acme(?=x)y'\n",
        ":7: rule acme_key: pattern uses lookahead or lookbehind",
    ),
    "reference": (HEAD + "pattern = '(acme)\\1'\n", ":7: rule acme_key: pattern uses a back-reference"),
    "possessive": (
        HEAD + "pattern = 'acme++x'\n",
        ":7: rule acme_key: pattern uses an atomic group or a possessive",
    ),
    "too many repetitions": (
        HEAD + "pattern = 'acme[0-9]{2000}'\n",
        ":7: rule acme_key: pattern is refused by the regular expression engine RE2",
    ),
    "too short": (
        HEAD + "pattern = 'a'\n",
        ":7: rule acme_key: pattern matches fewer than two characters",
    ),
    "bad exclude": (GOOD + "exclude = '('\n", ":8: rule acme_key: exclude missing ), unterminated"),
    "bad context": (GOOD + "context = ['(']\n", ":8: rule acme_key: context missing ), unterminated"),
    "context and near": (
        GOOD + "context = ['a']\nnear = ['b']\n",
        ":8: rule acme_key: context, near and after cannot be used together",
    ),
    "wide context": (
        GOOD + "context = ['a']\nwithin = 2000\n",
        ":9: rule acme_key: within must be at most 1000 with context",
    ),
    "second form": (
        GOOD + "[[rule.also]]\npattern = 'ab'\n[[rule.also]]\npattern = '['\n",
        ":11: rule acme_key: pattern unterm",
    ),
    "key of a form": (
        GOOD + "[[rule.also]]\npattern = 'ab'\nhue = 1\n",
        ":10: rule acme_key: also.0.hue: Extra inputs",
    ),
    "part": (
        GOOD + "[[rule.part]]\nname = 'id'\npattern = 'x)'\n",
        ":10: rule acme_key: pattern unbalanced parenthesis",
    ),
    "name of a part": (
        GOOD + "[[rule.part]]\nname = 'The Id'\npattern = 'xy'\n",
        ":9: rule acme_key: part.0.name: String should",
    ),
    "second rule": (
        GOOD + GOOD.replace('issuer = "Acme"\n', "").replace("acme_[", "acme_(["),
        ":13: rule acme_key: pattern",
    ),
    "pattern and value": (
        GOOD + "value = 'hex 32'\n",
        ":7: rule acme_key: pattern and value cannot be used together",
    ),
    "no word": (
        HEAD + "value = 'hex 32'\n",
        ":7: rule acme_key: value has no prefix of three characters or more: add a word",
    ),
    "unknown alphabet": (
        HEAD + "word = 'acme'\nvalue = 'runes 8'\n",
        ":8: rule acme_key: value 'runes 8' is not understood",
    ),
    "no length": (
        HEAD + "word = 'acme'\nvalue = 'hex'\n",
        ":8: rule acme_key: value 'hex' is not understood; write an alphabet (digits,",
    ),
    "lengths in the wrong order": (
        HEAD + "word = 'acme'\nvalue = 'hex 9-8'\n",
        ":8: rule acme_key: value 'hex 9-8' is not understood",
    ),
    "open template": (
        HEAD + "value = 'acme_{{hex 32'\n",
        ":7: rule acme_key: value 'acme_{{hex 32' is not understood; write",
    ),
    "value is not a text": (
        HEAD + "value = 32\n",
        ":7: rule acme_key: value: Input should be a valid list",
    ),
    "word is a pattern": (
        HEAD + "word = 'ac(me)?'\nvalue = 'hex 9'\n",
        ":7: rule acme_key: word 'ac(me)?' is not a name; use context",
    ),
    "until alone": (GOOD + "until = 'a'\n", ":8: rule acme_key: until needs near or after"),
    "until is not a pattern": (
        GOOD + "near = ['a']\nuntil = '('\n",
        ":9: rule acme_key: until missing )",
    ),
    "word and context": (
        GOOD + "word = 'acme'\ncontext = ['a']\n",
        ":8: rule acme_key: word cannot be used together with context, near or after",
    ),
    "shorthand of a further form": (
        GOOD + "[[rule.also]]\nvalue = 'hex'\nword = 'acme'\n",
        ":9: rule acme_key: value 'hex' is not understood",
    ),
    "no reply": (
        GOOD + "[rule.check]\nurl = 'https://a.de'\nlive = {}\n",
        ":10: rule acme_key: check.0.live.reply: Field required",
    ),
    "flags": (
        HEAD + "pattern = '(?i)acme_[0-9]{8}'\n",
        ":7: rule acme_key: pattern has a flag for the whole pattern; write",
    ),
    "flags in the middle": (
        HEAD + "pattern = 'acme(?i)_[0-9]{8}'\n",
        ":7: rule acme_key: pattern has a flag for the whole pattern; write",
    ),
    "pattern is not ASCII": (
        HEAD + "pattern = 'acm\u00e9_[0-9]{8}'\n",
        ":7: rule acme_key: pattern has non-ASCII",
    ),
    "context is not ASCII": (
        GOOD + "context = ['\u5bc6']\n",
        ":8: rule acme_key: context has non-ASCII characters; write their",
    ),
    "unknown piece": (
        HEAD + "pattern = 'acme_<<x>>'\n",
        ":7: rule acme_key: pattern uses <<x>>, which [let] does not define",
    ),
    "unknown piece of a part": (
        GOOD + "[[rule.part]]\nname = 'id'\npattern = '<<x>>yz'\n",
        ":10: rule acme_key: pattern uses <<x>>, which [let] does not define",
    ),
    "two parts with one name": (
        GOOD + "[[rule.part]]\nname = 'id'\npattern = 'xyz'\n" * 2,
        ":12: rule acme_key: name id is used by another part",
    ),
    "spaces in a heading": (
        GOOD.replace("[[rule]]", "[[ rule ]]") + "colour = 3\n",
        ":8: rule acme_key: colour: Extra inputs",
    ),
    "gitleaks configuration": (
        "[[rules]]\nid = 'x'\nregex = 'y'\n",
        ": has [[rules]] but no [[rule]]: use --gitleaks-config",
    ),
    "syntax": (GOOD + "colour = red\n", ":8: Invalid value"),
    "syntax at the end": (GOOD + "colour = [", ":8: "),
    "nested too deeply": (GOOD + "colour = " + "[" * 100_000, ": is nested too deeply"),
    "long number": (GOOD + "colour = " + "1" * 5_000, ": has a number with too many digits"),
}


@pytest.mark.parametrize(("text", "message"), ERRORS.values(), ids=ERRORS)
def test_an_error_names_file_line_and_rule(text, message):
    with pytest.raises(RuleError) as raised:
        parse_rule_file(text, "f.toml")
    assert raised.value.message.startswith(f"f.toml{message}")
    assert "\n" not in raised.value.message


def test_an_error_names_the_file_that_cannot_be_read(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "latin.toml").write_bytes(b'issuer = "Caf\xe9"\n')
    for path, message in {
        tmp_path / "none.toml": "No such file or directory",
        tmp_path / "empty": "no .toml file in this folder",
        tmp_path / "latin.toml": "is not UTF-8",
    }.items():
        with pytest.raises(RuleError) as raised:
            load_rule_files([path])
        assert raised.value.message == f"{path}: {message}"
        with pytest.raises(RuleError):
            load_ruleset([path], built_in=False)


def test_a_duplicate_id_is_refused_with_both_places(tmp_path):
    for name in ("a.toml", "b.toml"):
        (tmp_path / name).write_text(GOOD)
    with pytest.raises(RuleError) as raised:
        load_rule_files([tmp_path])
    assert (
        raised.value.message
        == f"{tmp_path}/b.toml:7: rule acme_key: is already defined in {tmp_path}/a.toml:7"
    )


def test_the_id_of_a_built_in_rule_is_refused(tmp_path):
    own = tmp_path / "own.toml"
    own.write_text(GOOD.replace("acme_key", "github_pat_classic"))
    with pytest.raises(
        RuleError,
        match=r"own\.toml:7: rule github_pat_classic: is already defined in .*/rules/github\.toml:\d+",
    ):
        load_rule_files([BUILT_IN_RULES / "github.toml", own])


def test_only_the_toml_files_of_a_folder_are_read_in_the_order_of_their_names(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.toml").write_text(GOOD.replace("acme_key", "second"))
    (tmp_path / "a.toml").write_text(GOOD.replace("acme_key", "first"))
    (tmp_path / "README.md").write_text("not a rule")
    assert [rule.id for rule in load_rule_files([tmp_path])] == ["first", "second"]


def test_an_error_of_a_pattern_that_is_too_large_names_the_rule(tmp_path):
    path = tmp_path / "f.toml"
    path.write_text(HEAD + "pattern = '(?:(?:ab|cd|ef){900}[0-9]){900}'\n")
    with pytest.raises(RuleError, match=r"f\.toml:7: rule acme_key: pattern is refused by"):
        load_ruleset([Path(path)], built_in=False)


def test_a_file_with_byte_order_mark_and_windows_line_ends_is_read(tmp_path):
    path = tmp_path / "f.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert [rule.id for rule in load_rule_files([path])] == ["acme_key"]
    path.write_bytes(b"\xef\xbb\xbf" + (GOOD + "colour = 3\n").replace("\n", "\r\n").encode())
    with pytest.raises(RuleError, match=r"f\.toml:8: rule acme_key: colour"):
        load_rule_files([path])


class TestPieces:
    def test_patterns_share_the_pieces_of_their_file(self):
        text = (
            "issuer = 'x'\n[let]\nbody = '[0-9a-f]{16}'\n[[rule]]\nid = 'r'\nname = 'R'\nsecret_type = 'x'\n"
        )
        text += "pattern = 'acme_<<body>>'\n[[rule.also]]\npattern = 'corp_<<body>>'\n"
        rules = own_rules(text)
        assert values("acme_81a0c2f4e6b8d013 corp_91a0c2f4e6b8d013", rules=rules) == [
            "acme_81a0c2f4e6b8d013",
            "corp_91a0c2f4e6b8d013",
        ]

    def test_a_part_can_use_pieces(self):
        part = "[[rule.part]]\nname = 'id'\npattern = 'AC<<id>>'\nalone = true\n"
        text = GOOD.replace("[[rule]]", "[let]\nid = '[A-Z]{8}'\n[[rule]]") + part
        assert values("AC" + "QWERTZUI", rules=own_rules(text)) == ["ACQWERTZUI"]

    def test_a_piece_can_use_earlier_pieces(self):
        text = GOOD.replace("[[rule]]", "[let]\ndigit = '[0-9]'\nbody = '<<digit>>{6}'\n[[rule]]")
        text += "[[rule.also]]\npattern = 'corp_<<body>>'\n"
        assert values("corp_839164", rules=own_rules(text)) == ["corp_839164"]
