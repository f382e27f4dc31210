"""What is wrong with a rule file is told with file, line and rule; what is right means what it says."""

from pathlib import Path

import pytest

from outcrop.domain.finding import Confidence
from outcrop.scanner.engine.example_test import check_examples
from outcrop.scanner.engine.load import compile_ruleset, load_ruleset
from outcrop.scanner.rules.check_spec import load_checks
from outcrop.scanner.rules.model import BUILT_IN_RULES, RuleError, Strength
from outcrop.scanner.rules.toml import load_rule_files, parse_rule_file
from tests.support.rulesets import BASE62, drawn, own_rules, values

HEAD = 'issuer = "Acme"\n\n[[rule]]\nid = "acme_key"\nname = "Acme key"\nsecret_type = "acme"\n'
GOOD = HEAD + "pattern = 'acme_[0-9a-f]{16}'\n"

FAULTS = {
    "unknown key": (GOOD + 'colour = "red"\n', "f.toml:8: rule acme_key: colour: Extra inputs are not permitted"),
    "wrong type": (GOOD + "entropy = 'much'\n", "f.toml:8: rule acme_key: entropy: Input should be a valid number"),
    "out of range": (GOOD + "within = 0\n", "f.toml:8: rule acme_key: within: Input should be greater than or equal to 1"),
    "wrong word": (GOOD + "impact = 'huge'\n", "f.toml:8: rule acme_key: impact: Input should be 'critical', 'high', 'medium' or 'low'"),
    "revoke in the clear": (GOOD + 'revoke = "http://acme.example/keys"\n', "f.toml:8: rule acme_key: revoke: String should match pattern"),
    "revoke with a name": (GOOD + 'revoke = "https://a@acme.example/"\n', "f.toml:8: rule acme_key: revoke: String should match pattern"),
    "long advice": (GOOD + f'advice = "{"x" * 301}"\n', "f.toml:8: rule acme_key: advice: String should have at most 300 characters"),
    "advice of a file": ('advice = "short"\n' + GOOD, "f.toml: advice: String should have at least 20 characters"),
    "bad id": (GOOD.replace("acme_key", "Acme Key"), "f.toml:4: rule Acme Key: id: String should match pattern"),
    "missing pattern": (HEAD, "f.toml:3: rule acme_key: pattern or value is needed"),
    "missing id": (GOOD.replace('id = "acme_key"\n', ""), "f.toml:3: rule number 1: id: Field required"),
    "missing issuer": (GOOD.replace('issuer = "Acme"\n', ""), "f.toml: issuer: Field required"),
    "no rule": ('issuer = "Acme"\n', "f.toml: rule: Field required"),
    "unknown checksum": (GOOD + "checksum = 'md5'\n", "f.toml:8: rule acme_key: checksum 'md5' is unknown; use one of crc32_HEX"),
    "bad pattern": (HEAD + "pattern = 'acme_[0-9'\n", "f.toml:7: rule acme_key: pattern unterminated character set"),
    "look ahead": (HEAD + "pattern = 'acme(?=x)y'\n", "f.toml:7: rule acme_key: pattern uses lookahead or lookbehind"),
    "reference": (HEAD + "pattern = '(acme)\\1'\n", "f.toml:7: rule acme_key: pattern uses a back-reference"),
    "possessive": (HEAD + "pattern = 'acme++x'\n", "f.toml:7: rule acme_key: pattern uses an atomic group or a possessive"),
    "too many repetitions": (HEAD + "pattern = 'acme[0-9]{2000}'\n", "f.toml:7: rule acme_key: pattern is refused by the regular expression engine RE2"),
    "too little": (HEAD + "pattern = 'a'\n", "f.toml:7: rule acme_key: pattern matches fewer than two characters"),
    "bad exclude": (GOOD + "exclude = '('\n", "f.toml:8: rule acme_key: exclude missing ), unterminated"),
    "bad context": (GOOD + "context = ['(']\n", "f.toml:8: rule acme_key: context missing ), unterminated"),
    "context and near": (GOOD + "context = ['a']\nnear = ['b']\n", "f.toml:8: rule acme_key: context, near and after cannot be used together"),
    "wide context": (GOOD + "context = ['a']\nwithin = 2000\n", "f.toml:9: rule acme_key: within must be at most 1000 with context"),
    "second form": (GOOD + "[[rule.also]]\npattern = 'ab'\n[[rule.also]]\npattern = '['\n", "f.toml:11: rule acme_key: pattern unterm"),
    "key of a form": (GOOD + "[[rule.also]]\npattern = 'ab'\nhue = 1\n", "f.toml:10: rule acme_key: also.0.hue: Extra inputs"),
    "part": (GOOD + "[[rule.part]]\nname = 'id'\npattern = 'x)'\n", "f.toml:10: rule acme_key: pattern unbalanced parenthesis"),
    "name of a part": (GOOD + "[[rule.part]]\nname = 'The Id'\npattern = 'xy'\n", "f.toml:9: rule acme_key: part.0.name: String should"),
    "second rule": (GOOD + GOOD.replace('issuer = "Acme"\n', "").replace("acme_[", "acme_(["), "f.toml:13: rule acme_key: pattern"),
    "pattern and value": (GOOD + "value = 'hex 32'\n", "f.toml:7: rule acme_key: pattern and value cannot be used together"),
    "no word": (HEAD + "value = 'hex 32'\n", "f.toml:7: rule acme_key: value has no prefix of three characters or more: add a word"),
    "unknown alphabet": (HEAD + "word = 'acme'\nvalue = 'runes 8'\n", "f.toml:8: rule acme_key: value 'runes 8' is not understood"),
    "no length": (HEAD + "word = 'acme'\nvalue = 'hex'\n", "f.toml:8: rule acme_key: value 'hex' is not understood; write an alphabet (digits,"),
    "lengths upside down": (HEAD + "word = 'acme'\nvalue = 'hex 9-8'\n", "f.toml:8: rule acme_key: value 'hex 9-8' is not understood"),
    "open template": (HEAD + "value = 'acme_{{hex 32'\n", "f.toml:7: rule acme_key: value 'acme_{{hex 32' is not understood; write"),
    "value that is no text": (HEAD + "value = 32\n", "f.toml:7: rule acme_key: value: Input should be a valid list"),
    "word that is a pattern": (HEAD + "word = 'ac(me)?'\nvalue = 'hex 9'\n", "f.toml:7: rule acme_key: word 'ac(me)?' is not a name; use context"),
    "until alone": (GOOD + "until = 'a'\n", "f.toml:8: rule acme_key: until needs near or after"),
    "an until that is no pattern": (GOOD + "near = ['a']\nuntil = '('\n", "f.toml:9: rule acme_key: until missing )"),
    "word and context": (GOOD + "word = 'acme'\ncontext = ['a']\n", "f.toml:8: rule acme_key: word cannot be used together with context, near or after"),
    "short form below": (GOOD + "[[rule.also]]\nvalue = 'hex'\nword = 'acme'\n", "f.toml:9: rule acme_key: value 'hex' is not understood"),
    "no reply": (GOOD + "[rule.check]\nurl = 'https://a.de'\nlive = {}\n", "f.toml:10: rule acme_key: check.0.live.reply: Field required"),
    "flags": (HEAD + "pattern = '(?i)acme_[0-9]{8}'\n", "f.toml:7: rule acme_key: pattern has a flag for the whole pattern; write"),
    "flags in the middle": (HEAD + "pattern = 'acme(?i)_[0-9]{8}'\n", "f.toml:7: rule acme_key: pattern has a flag for the whole pattern; write"),
    "letters beyond ASCII": (HEAD + "pattern = 'acm\u00e9_[0-9]{8}'\n", "f.toml:7: rule acme_key: pattern has non-ASCII"),
    "a word beyond ASCII": (GOOD + "context = ['\u5bc6']\n", "f.toml:8: rule acme_key: context has non-ASCII characters; write their"),
    "unknown piece": (HEAD + "pattern = 'acme_<<x>>'\n", "f.toml:7: rule acme_key: pattern uses <<x>>, which [let] does not define"),
    "unknown piece of a part": (
        GOOD + "[[rule.part]]\nname = 'id'\npattern = '<<x>>yz'\n",
        "f.toml:10: rule acme_key: pattern uses <<x>>, which [let] does not define",
    ),
    "two parts of one name": (
        GOOD + "[[rule.part]]\nname = 'id'\npattern = 'xyz'\n" * 2,
        "f.toml:12: rule acme_key: name id is used by another part",
    ),
    "spaces in a heading": (GOOD.replace("[[rule]]", "[[ rule ]]") + "colour = 3\n", "f.toml:8: rule acme_key: colour: Extra inputs"),
    "a configuration of gitleaks": ("[[rules]]\nid = 'x'\nregex = 'y'\n", "f.toml: has [[rules]] but no [[rule]]: use --gitleaks-config"),
    "syntax": (GOOD + "colour = red\n", "f.toml:8: Invalid value"),
    "syntax at the end": (GOOD + "colour = [", "f.toml:8: "),
    "nested too deeply": (GOOD + "colour = " + "[" * 100_000, "f.toml: is nested too deeply"),
    "a long number": (GOOD + "colour = " + "1" * 5_000, "f.toml: has a number with too many digits"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_told_with_its_file_line_and_rule(text, message):
    with pytest.raises(RuleError) as raised:
        parse_rule_file(text, "f.toml")
    assert raised.value.message.startswith(message)
    assert "\n" not in raised.value.message


def test_files_that_cannot_be_read_are_named(tmp_path):
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


def test_an_id_that_comes_twice_is_refused_with_both_places(tmp_path):
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
        load_rule_files([BUILT_IN_RULES, own])


def test_a_folder_is_read_in_the_order_of_names_and_only_its_toml_files(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.toml").write_text(GOOD.replace("acme_key", "second"))
    (tmp_path / "a.toml").write_text(GOOD.replace("acme_key", "first"))
    (tmp_path / "README.md").write_text("not a rule")
    assert [rule.id for rule in load_rule_files([tmp_path])] == ["first", "second"]


def test_a_pattern_that_only_the_first_pass_refuses_is_told_with_its_rule(tmp_path):
    path = tmp_path / "f.toml"
    path.write_text(HEAD + "pattern = '(?:(?:ab|cd|ef){900}[0-9]){900}'\n")
    with pytest.raises(RuleError, match=r"f\.toml:7: rule acme_key: pattern is refused by"):
        load_ruleset([Path(path)], built_in=False)


def test_defaults_follow_from_the_form():
    def form(more: str):
        return parse_rule_file(HEAD + more, "f.toml")[0].forms[0]

    assert form("pattern = 'acme_[0-9a-f]{16}'").strength is Strength.PREFIX
    assert form("pattern = '[0-9a-f]{8}:[0-9a-f]{16}'").strength is Strength.STRUCTURED
    assert form("pattern = '[0-9a-f]{16}'\ncontext = ['acme']").strength is Strength.CONTEXT
    assert form("pattern = 'ghp_[0-9A-Za-z]{36}'\nchecksum = 'crc32_base62'").strength is Strength.CHECKSUM
    assert form("pattern = 'acme_[0-9a-f]{16}'").confidence is Confidence.HIGH
    assert form("pattern = '[0-9a-f]{16}'\ncontext = ['acme']").confidence is Confidence.MEDIUM


VALUE = "0f1e9d3c7b5a2846"


@pytest.mark.parametrize(
    ("keys", "text", "found"),
    [
        ("pattern = '[0-9a-f]{16}'\ncontext = ['acme']", f"ACME: {VALUE}", True),
        ("pattern = '[0-9a-f]{16}'\ncontext = ['acme']", f"acme{' ' * 59}{VALUE}", True),
        ("pattern = '[0-9a-f]{16}'\ncontext = ['acme']", f"acme{' ' * 70}{VALUE}", False),
        ("pattern = '[0-9a-f]{16}'\ncontext = ['acme']", f"{VALUE} acme", False),
        ("pattern = '[0-9a-f]{16}'\nnear = ['acme']", f"{VALUE} acme", True),
        ("pattern = '[0-9a-f]{16}'\nafter = ['acme']", f"{VALUE} acme", False),
        ("pattern = '[0-9a-f]{16}'\nafter = ['acme']", f"acme\n{VALUE}", True),
        ("pattern = '[0-9a-f]{16}'\nnear = ['acme']\nuntil = '---'", f"acme --- {VALUE}", False),
        ("pattern = '[0-9a-f]{16}'\nnear = ['acme']\nuntil = '---'", f"{VALUE} --- acme", False),
        ("pattern = '[0-9a-f]{16}'\nnear = ['acme']\nuntil = '---'", f"other --- acme {VALUE} --- acme", True),
        ("pattern = '[0-9a-f]{16}'\nafter = ['acme']\nuntil = '---'", f"acme ---{VALUE}", False),
        ("pattern = '[0-9a-f]{16}'\nafter = ['acme']\nuntil = '---'", f"--- acme {VALUE}---", True),
        ("pattern = '[0-9a-f]{16}'\nnear = ['acme']\nwithin = 10", f"acme{' ' * 40}{VALUE}", False),
        ("pattern = 'acme_[0-9a-f]{16}'\nentropy = 3", "acme_" + VALUE, True),
        ("pattern = 'acme_[0-9a-f]{16}'\nentropy = 3", "acme_" + "ab" * 8, False),
        ("pattern = '[A-Za-z]{24}'\ncontext = ['acme']\nentropy = 2", "acme: thisVeryLongNameOfThings", False),
        ("pattern = '[A-Za-z]{24}'\ncontext = ['acme']\nentropy = 2\ndrawn = false", "acme: thisVeryLongNameOfThings", True),
        ("pattern = '[A-Za-z]{24}'\ncontext = ['acme']", "acme: thisVeryLongNameOfThings", True),
        ("pattern = 'acme_[A-Za-z]{24}'\ndrawn = true", "acme_thisVeryLongNameOfThings", False),
        ("pattern = 'acme_[0-9a-f]{16}'\nexclude = 'acme_0.*'", "acme_" + VALUE, False),
        ("pattern = 'acme_[0-9a-f]{16}'\nexclude = 'acme_0'", "acme_" + VALUE, True),
        ("pattern = 'acme_[0-9a-f]{16}'", f"xacme_{VALUE}", False),
        ("pattern = 'acme_[0-9a-f]{16}'", f"acme_{VALUE}0", False),
        ("pattern = 'acme_[0-9a-f]{16}'", f"acme_{VALUE}-x", True),
        ("pattern = 'acme_[0-9a-f-]{16}'", f"acme_{VALUE}-x", False),
        ("pattern = 'acme_[0-9a-f]{16}'", f'"a\\nacme_{VALUE}"', True),
        ("pattern = '<(?P<secret>[0-9a-f]{16})>'", f"x<{VALUE}>x", True),
    ],
)  # fmt: skip
def test_the_keys_of_a_form_mean_what_they_say(keys, text, found):
    rules = own_rules(f"{HEAD}{keys}\n")
    assert bool(values(text, rules=rules)) is found


def test_every_value_near_a_word_counts():
    rules = own_rules(HEAD + "pattern = '[0-9a-f]{16}'\nafter = ['acme keys']\nwithin = 200\n")
    several = [f"{n}f1e9d3c7b5a284{n}" for n in range(6)]
    assert values("acme keys:\n" + "\n".join(several), rules=rules) == several


def test_two_rules_with_the_same_pattern_do_not_answer_for_each_other():
    first = compile_ruleset(
        parse_rule_file(HEAD + "pattern = 'acme_[0-9a-f]{16}'\nexclude = 'acme_0.*'\n", "a")
    )
    second = compile_ruleset(parse_rule_file(HEAD + "pattern = 'acme_[0-9a-f]{16}'\n", "b"))
    assert values(f"acme_{VALUE}", rules=first) == []
    assert values(f"acme_{VALUE}", rules=second) == [f"acme_{VALUE}"]


def test_an_empty_group_is_no_value():
    rules = own_rules(HEAD + "pattern = 'acme_(?P<secret>[0-9a-f]*)'\n")
    assert values(f"acme_ acme_{VALUE} acme_", rules=rules) == [VALUE]


def test_a_file_may_begin_with_a_mark_and_have_line_ends_of_windows(tmp_path):
    path = tmp_path / "f.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert [rule.id for rule in load_rule_files([path])] == ["acme_key"]
    path.write_bytes(b"\xef\xbb\xbf" + (GOOD + "colour = 3\n").replace("\n", "\r\n").encode())
    with pytest.raises(RuleError, match=r"f\.toml:8: rule acme_key: colour"):
        load_rule_files([path])


def test_an_alternative_without_the_group_is_no_value():
    rules = own_rules(HEAD + "pattern = 'key=(?P<secret>[0-9a-f]{16})|nokey=[0-9]{3}'\n")
    assert values(f"nokey=123 nokey=456 key={VALUE} nokey=789", rules=rules) == [VALUE]


class TestPieces:
    def test_patterns_share_the_pieces_of_their_file(self):
        text = "issuer = 'x'\n[let]\nbody = '[0-9a-f]{16}'\n[[rule]]\nid = 'r'\nname = 'R'\nsecret_type = 'x'\npattern = 'acme_<<body>>'\n"
        text += "[[rule.also]]\npattern = 'corp_<<body>>'\n"
        rules = own_rules(text)
        assert values("acme_81a0c2f4e6b8d013 corp_91a0c2f4e6b8d013", rules=rules) == [
            "acme_81a0c2f4e6b8d013",
            "corp_91a0c2f4e6b8d013",
        ]

    def test_a_part_has_them_too(self):
        part = "[[rule.part]]\nname = 'id'\npattern = 'AC<<id>>'\nalone = true\n"
        text = GOOD.replace("[[rule]]", "[let]\nid = '[A-Z]{8}'\n[[rule]]") + part
        assert values("AC" + "QWERTZUI", rules=own_rules(text)) == ["ACQWERTZUI"]

    def test_a_piece_may_name_those_above_it(self):
        text = GOOD.replace("[[rule]]", "[let]\ndigit = '[0-9]'\nbody = '<<digit>>{6}'\n[[rule]]")
        text += "[[rule.also]]\npattern = 'corp_<<body>>'\n"
        assert values("corp_839164", rules=own_rules(text)) == ["corp_839164"]

    def test_a_trigger_of_its_own_is_for_patterns_that_lead_to_a_value(self):
        with pytest.raises(
            RuleError,
            match=r"f.toml:8: rule acme_key: trigger needs judge = noun or key",
        ):
            parse_rule_file(GOOD + "trigger = 'acme'\n", "f.toml")

    def test_what_only_a_trigger_of_its_own_sees_is_not_found(self):
        head = "issuer = 'x'\n[[rule]]\nid = 'r'\nsecret_type = 'x'\nstrength = 'generic'\njudge = 'noun'\n"
        rules = own_rules(head + 'pattern = \'password="[^"]{4}\'\ntrigger = \'password[^"]*"[^"]{4}\'\n')
        assert values('password="Tr0ub4dor.9"\npassword != "Tr0ub4dor.8"\n', rules=rules) == ["Tr0ub4dor.9"]

    def test_a_pattern_that_leads_to_a_list_ends_with_its_bracket(self):
        head = (
            "issuer = 'x'\n[[rule]]\nid = 'r'\nsecret_type = 'x'\nstrength = 'generic'\njudge = 'members'\n"
        )
        rules = own_rules(head + "pattern = '(?i:tokens)[ ]{0,3}<-[ ]{0,3}[(]'\n")
        assert values("tokens <- ('Zx8Kq2Lm4Np6Rt9Vb1Yc3WdE', 'Qw3zXc7VbN1tRy5U8fJ2kLm9')", rules=rules) == [
            "Zx8Kq2Lm4Np6Rt9Vb1Yc3WdE",
            "Qw3zXc7VbN1tRy5U8fJ2kLm9",
        ]
        with pytest.raises(
            RuleError, match=r"f.toml:7: rule r: pattern must end right before the first value"
        ):
            parse_rule_file(head + "pattern = '(?i:tokens)[ ]+'\n", "f.toml")

    def test_a_judge_that_is_not_known(self):
        with pytest.raises(RuleError, match=r"f.toml:8: rule acme_key: judge: Input should be 'noun'"):
            parse_rule_file(GOOD + "judge = 'x'\n", "f.toml")


SHORT = 'issuer = "Acme Mail"\n[[rule]]\nid = "acmemail_api_key"\nword = "acme mail"\nvalue = "hex 32"\n'


def test_the_short_form_is_a_whole_rule():
    (rule,) = parse_rule_file(SHORT, "f.toml")
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
def test_a_word_stands_in_the_ways_people_write_it(name):
    value = drawn("0123456789abcdef", 32, name)
    assert values(name + value + "\n", rules=own_rules(SHORT)) == [value]


@pytest.mark.parametrize(
    "name", ["INBOX_TOKEN=", "box of things whose key is ", "box: 3, key: ", "box_path="]
)
def test_a_tight_word_must_be_part_of_the_name(name):
    rules = own_rules(SHORT.replace("acme mail", "box") + "tight = true\n")
    assert values(f"BOX_TOKEN={drawn('0123456789abcdef', 32, name)}", rules=rules)
    assert values(name + drawn("0123456789abcdef", 32, name), rules=rules) == []


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
def test_a_tight_word_is_told_in_a_name_below_its_heading_and_in_pairs_of_name_and_value(name):
    rules = own_rules(SHORT.replace("acme mail", "circle") + "tight = true\n")
    value = drawn("0123456789abcdef", 32, name)
    assert values(f"{name}{value}\n", rules=rules) == [value]
    assert values(f"docker run -e CIRCLE_TOKEN=x\nREVISION_OF_LAST_BUILD={value}\n", rules=rules) == []


def test_names_and_hashes_are_no_values_of_the_short_form():
    rules = own_rules(SHORT.replace("hex 32", "base62 32"))
    for value in (
        "thisIsTheNameOfSomethingInTheCode"[:32],
        "THISISTHENAMEOFSOMETHINGINTHECOD",
        drawn("0123456789abcdef", 32, 1),
    ):
        assert values(f"acme_mail_key = {value}\n", rules=rules) == []
    assert values(f"acme_mail_key = {drawn(BASE62, 32, 1)}\n", rules=rules)


CHECK = """
[rule.check]
url = "https://api.acmemail.com/me"
headers = { Authorization = "Bearer {secret}" }
live = { json = { id = "*" }, reply = '{"id": 7}' }
dead = { confidence = "low", reply = 'no such key' }
"""


def test_answers_in_short_are_whole_ones_with_their_replies(tmp_path):
    file = tmp_path / "acme.toml"
    file.write_text(SHORT + CHECK)
    (check,) = load_checks("acmemail_api_key", f"{file}:5")
    assert [(a.status, a.json_, a.result, a.confidence) for a in check.answer] == [
        ([200], {"id": "*"}, "valid", "high"),
        ([401], {}, "invalid", "low"),
    ]
    assert [(r.status, r.headers["Content-Type"], r.body, r.result, r.confidence) for r in check.reply] == [
        (200, "application/json", '{"id": 7}', "valid", "high"),
        (401, "text/plain", "no such key", "invalid", "low"),
    ]
