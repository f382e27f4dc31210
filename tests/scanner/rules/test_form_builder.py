"""The keys of a form have the effect that docs/rules.md describes."""

import pytest

from outcrop.domain.finding import Confidence
from outcrop.scanner.engine.load import compile_ruleset
from outcrop.scanner.rules.model import CredentialForm, RuleError, Strength
from outcrop.scanner.rules.toml import parse_rule_file
from tests.support.rulesets import own_rules, values

HEAD = 'issuer = "Acme"\n\n[[rule]]\nid = "acme_key"\nname = "Acme key"\nsecret_type = "acme"\n'
GENERIC_HEAD = "issuer = 'x'\n[[rule]]\nid = 'r'\nsecret_type = 'x'\nstrength = 'generic'\n"
PATTERN = "pattern = 'acme_[0-9a-f]{16}'"
HEX_PATTERN = "pattern = '[0-9a-f]{16}'"
LETTERS_PATTERN = "pattern = '[A-Za-z]{24}'\ncontext = ['acme']"
VALUE = "0f1e9d3c7b5a2846"
NAME = "thisVeryLongNameOfThings"


def test_strength_and_confidence_follow_from_the_other_keys():
    def form(keys: str) -> CredentialForm:
        return parse_rule_file(HEAD + keys, "f.toml")[0].forms[0]

    assert form(PATTERN).strength is Strength.PREFIX
    assert form("pattern = '[0-9a-f]{8}:[0-9a-f]{16}'").strength is Strength.STRUCTURED
    assert form(f"{HEX_PATTERN}\ncontext = ['acme']").strength is Strength.CONTEXT
    assert form("pattern = 'ghp_[0-9A-Za-z]{36}'\nchecksum = 'crc32_base62'").strength is Strength.CHECKSUM
    assert form(PATTERN).confidence is Confidence.HIGH
    assert form(f"{HEX_PATTERN}\ncontext = ['acme']").confidence is Confidence.MEDIUM


@pytest.mark.parametrize(
    ("keys", "text", "found"),
    [
        (f"{HEX_PATTERN}\ncontext = ['acme']", f"ACME: {VALUE}", True),
        (f"{HEX_PATTERN}\ncontext = ['acme']", f"acme{' ' * 59}{VALUE}", True),
        (f"{HEX_PATTERN}\ncontext = ['acme']", f"acme{' ' * 70}{VALUE}", False),
        (f"{HEX_PATTERN}\ncontext = ['acme']", f"{VALUE} acme", False),
        (f"{HEX_PATTERN}\nnear = ['acme']", f"{VALUE} acme", True),
        (f"{HEX_PATTERN}\nafter = ['acme']", f"{VALUE} acme", False),
        (f"{HEX_PATTERN}\nafter = ['acme']", f"acme\n{VALUE}", True),
        (f"{HEX_PATTERN}\nnear = ['acme']\nuntil = '---'", f"acme --- {VALUE}", False),
        (f"{HEX_PATTERN}\nnear = ['acme']\nuntil = '---'", f"{VALUE} --- acme", False),
        (f"{HEX_PATTERN}\nnear = ['acme']\nuntil = '---'", f"other --- acme {VALUE} --- acme", True),
        (f"{HEX_PATTERN}\nafter = ['acme']\nuntil = '---'", f"acme ---{VALUE}", False),
        (f"{HEX_PATTERN}\nafter = ['acme']\nuntil = '---'", f"--- acme {VALUE}---", True),
        (f"{HEX_PATTERN}\nnear = ['acme']\nwithin = 10", f"acme{' ' * 40}{VALUE}", False),
        (f"{PATTERN}\nentropy = 3", "acme_" + VALUE, True),
        (f"{PATTERN}\nentropy = 3", "acme_" + "ab" * 8, False),
        (f"{LETTERS_PATTERN}\nentropy = 2", f"acme: {NAME}", False),
        (f"{LETTERS_PATTERN}\nentropy = 2\ndrawn = false", f"acme: {NAME}", True),
        (LETTERS_PATTERN, f"acme: {NAME}", True),
        ("pattern = 'acme_[A-Za-z]{24}'\ndrawn = true", f"acme_{NAME}", False),
        (f"{PATTERN}\nexclude = 'acme_0.*'", "acme_" + VALUE, False),
        (f"{PATTERN}\nexclude = 'acme_0'", "acme_" + VALUE, True),
        (PATTERN, f"xacme_{VALUE}", False),
        (PATTERN, f"acme_{VALUE}0", False),
        (PATTERN, f"acme_{VALUE}-x", True),
        ("pattern = 'acme_[0-9a-f-]{16}'", f"acme_{VALUE}-x", False),
        (PATTERN, f'"a\\nacme_{VALUE}"', True),
        ("pattern = '<(?P<secret>[0-9a-f]{16})>'", f"x<{VALUE}>x", True),
    ],
)
def test_the_keys_of_a_form_decide_whether_a_value_is_found(keys, text, found):
    rules = own_rules(f"{HEAD}{keys}\n")
    assert bool(values(text, rules=rules)) is found


def test_every_value_near_a_word_is_found():
    rules = own_rules(f"{HEAD}{HEX_PATTERN}\nafter = ['acme keys']\nwithin = 200\n")
    several = [f"{n}f1e9d3c7b5a284{n}" for n in range(6)]
    assert values("acme keys:\n" + "\n".join(several), rules=rules) == several


def test_two_rules_with_the_same_pattern_have_their_own_results():
    first = compile_ruleset(parse_rule_file(f"{HEAD}{PATTERN}\nexclude = 'acme_0.*'\n", "a"))
    second = compile_ruleset(parse_rule_file(f"{HEAD}{PATTERN}\n", "b"))
    assert values(f"acme_{VALUE}", rules=first) == []
    assert values(f"acme_{VALUE}", rules=second) == [f"acme_{VALUE}"]


def test_an_empty_group_is_not_a_value():
    rules = own_rules(HEAD + "pattern = 'acme_(?P<secret>[0-9a-f]*)'\n")
    assert values(f"acme_ acme_{VALUE} acme_", rules=rules) == [VALUE]


def test_an_alternative_without_the_group_is_not_a_value():
    rules = own_rules(HEAD + "pattern = 'key=(?P<secret>[0-9a-f]{16})|nokey=[0-9]{3}'\n")
    assert values(f"nokey=123 nokey=456 key={VALUE} nokey=789", rules=rules) == [VALUE]


class TestJudge:
    def test_a_trigger_is_only_allowed_with_a_pattern_that_leads_to_a_value(self):
        with pytest.raises(
            RuleError,
            match=r"f.toml:8: rule acme_key: trigger needs judge = noun or key",
        ):
            parse_rule_file(f"{HEAD}{PATTERN}\ntrigger = 'acme'\n", "f.toml")

    def test_a_match_of_the_trigger_that_the_pattern_does_not_match_is_dropped(self):
        head = GENERIC_HEAD + "judge = 'noun'\n"
        rules = own_rules(head + 'pattern = \'password="[^"]{4}\'\ntrigger = \'password[^"]*"[^"]{4}\'\n')
        assert values('password="Tr0ub4dor.9"\npassword != "Tr0ub4dor.8"\n', rules=rules) == ["Tr0ub4dor.9"]

    def test_a_pattern_that_leads_to_a_list_must_end_with_its_bracket(self):
        head = GENERIC_HEAD + "judge = 'members'\n"
        rules = own_rules(head + "pattern = '(?i:tokens)[ ]{0,3}<-[ ]{0,3}[(]'\n")
        assert values("tokens <- ('Zx8Kq2Lm4Np6Rt9Vb1Yc3WdE', 'Qw3zXc7VbN1tRy5U8fJ2kLm9')", rules=rules) == [
            "Zx8Kq2Lm4Np6Rt9Vb1Yc3WdE",
            "Qw3zXc7VbN1tRy5U8fJ2kLm9",
        ]
        with pytest.raises(
            RuleError, match=r"f.toml:7: rule r: pattern must end right before the first value"
        ):
            parse_rule_file(head + "pattern = '(?i:tokens)[ ]+'\n", "f.toml")

    def test_an_unknown_judge_is_refused(self):
        with pytest.raises(RuleError, match=r"f.toml:8: rule acme_key: judge: Input should be 'noun'"):
            parse_rule_file(f"{HEAD}{PATTERN}\njudge = 'x'\n", "f.toml")
