"""The shorthand of a rule, `word` and `value`, is expanded to a complete rule with examples."""

import pytest

from outcrop.domain.finding import Confidence
from outcrop.scanner.engine.example_test import check_examples
from outcrop.scanner.engine.load import compile_ruleset
from outcrop.scanner.rules.model import Strength
from outcrop.scanner.rules.toml import parse_rule_file
from tests.support.rulesets import BASE62, drawn, own_rules, values

RULE = 'issuer = "Acme Mail"\n[[rule]]\nid = "acmemail_api_key"\nword = "acme mail"\nvalue = "hex 32"\n'
HEX = "0123456789abcdef"


def test_shorthand_becomes_a_complete_rule():
    (rule,) = parse_rule_file(RULE, "f.toml")
    assert (rule.name, rule.secret_type, rule.origin) == ("Acme Mail API key", "acmemail", "f.toml:5")
    assert (rule.forms[0].strength, rule.forms[0].confidence, rule.forms[0].checks.min_entropy) == (
        Strength.CONTEXT,
        Confidence.MEDIUM,
        2.8,
    )
    assert len(rule.examples) >= 2
    assert len(rule.counterexamples) >= 2
    assert check_examples([rule], compile_ruleset([rule])) == (
        len(rule.examples) + len(rule.counterexamples),
        [],
    )


@pytest.mark.parametrize(
    "name",
    [
        "ACME_MAIL_TOKEN=",
        "acmeMailApiKey: '",
        "acme-mail:\n  region: eu\n  secret: ",
        "new AcmeMail({ apiKey: '",
        "https://api.acmemail.com/v1?api_key=",
    ],
)
def test_a_word_matches_in_all_usual_spellings(name):
    value = drawn(HEX, 32, name)
    assert values(name + value + "\n", rules=own_rules(RULE)) == [value]


@pytest.mark.parametrize(
    "lead", ["acmemail = ", '"acme_mail": "', "ACME_MAIL=", "  - acme-mail: '", "c['acmemail'] = '"]
)
def test_the_word_alone_may_be_the_name(lead):
    value = drawn(HEX, 32, lead)
    assert values(f"{lead}{value}\n", rules=own_rules(RULE)) == [value]


@pytest.mark.parametrize(
    "lead", ["notacmemail = ", "acmemail-5.1 = ", "acmemail archive: ", "acmemail ", "acmemail == x: "]
)
def test_other_text_than_an_assignment_after_the_word_alone_leads_to_no_value(lead):
    assert values(f"{lead}{drawn(HEX, 32, lead)}\n", rules=own_rules(RULE)) == []


def test_a_tight_word_alone_is_no_name():
    rules = own_rules(RULE.replace("acme mail", "box") + "tight = true\n")
    assert values(f'box = "{drawn(HEX, 32, 1)}"\n', rules=rules) == []


@pytest.mark.parametrize(
    "name", ["INBOX_TOKEN=", "box of things whose key is ", "box: 3, key: ", "box_path="]
)
def test_a_tight_word_must_be_part_of_the_name(name):
    rules = own_rules(RULE.replace("acme mail", "box") + "tight = true\n")
    assert values(f"BOX_TOKEN={drawn(HEX, 32, name)}", rules=rules)
    assert values(name + drawn(HEX, 32, name), rules=rules) == []


@pytest.mark.parametrize(
    "name",
    [
        "myCircleToken: string = '",
        "the circle token: ",
        "circle:\n  api_token: ",
        "[circle]\ntoken = ",
        "        - name: CIRCLE_TOKEN\n                value: ",
        '{\n                "name": "CIRCLE_TOKEN",\n                "value": "',
        'variable "circle_token" {\n                default = "',
    ],
)
def test_a_tight_word_matches_in_names_below_a_heading_and_in_pairs_of_name_and_value(name):
    rules = own_rules(RULE.replace("acme mail", "circle") + "tight = true\n")
    value = drawn(HEX, 32, name)
    assert values(f"{name}{value}\n", rules=rules) == [value]
    assert values(f"docker run -e CIRCLE_TOKEN=x\nREVISION_OF_LAST_BUILD={value}\n", rules=rules) == []


def test_names_and_hashes_are_excluded():
    rules = own_rules(RULE.replace("hex 32", "base62 32"))
    for value in (
        "thisIsTheNameOfSomethingInTheCode"[:32],
        "THISISTHENAMEOFSOMETHINGINTHECOD",
        drawn(HEX, 32, 1),
    ):
        assert values(f"acme_mail_key = {value}\n", rules=rules) == []
    assert values(f"acme_mail_key = {drawn(BASE62, 32, 1)}\n", rules=rules)
