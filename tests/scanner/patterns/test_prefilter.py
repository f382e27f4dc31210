"""The first pass never misses what the second would find, and nothing takes more than linear time."""

import random
import re
import time
from collections.abc import Iterator
from functools import cache
from re import _constants as op
from re import _parser as parser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcrop.domain.secret import reveal
from outcrop.scanner.engine import confirm
from outcrop.scanner.engine.confirm import _confirm_by_layout, _match_window, _windows
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.load import compile_ruleset
from outcrop.scanner.engine.precedence import keep_best
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.triggers import scan_joined_texts
from outcrop.scanner.generic.find import LEAD_IN_CHARS, _sort_match_ends
from outcrop.scanner.patterns import regex_ast
from outcrop.scanner.patterns.prefilter import _write_class, make_trigger, split_alternatives
from outcrop.scanner.patterns.re2_match import (
    compile_cached,
    compile_loosened,
    compile_regex,
    ends_with_match,
    find_spans,
)
from outcrop.scanner.patterns.regex_ast import PatternError
from outcrop.scanner.rules.model import CredentialForm, Rule
from outcrop.scanner.rules.toml import parse_rule_file
from tests.support.rulesets import BASE62, drawn, ruleset

AROUND = b"abzAZ09_-+/=.,:;\"'`<>(){}[]\\ \t\r\n\x0b\x00\x80\xff"


@cache
def members(characters: str) -> tuple[list[int], list[int]]:
    """Give the bytes of a class: those that can be printed, and all."""
    found = [c for c in range(256) if re.match(characters.encode("latin-1"), bytes([c]), re.DOTALL)]
    return [c for c in found if 32 < c < 127], found


class Writer:
    """Writes a random match of a pattern; the engine that has the last word says whether it is one."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.at_start = False
        self.at_end = False

    def write(self, tree, flags: int) -> bytes:
        return b"".join(self.item(code, value, flags) for code, value in tree)

    def item(self, code, value, flags: int) -> bytes:
        if code == op.LITERAL:
            return self.cased(value, flags)
        if code == op.NOT_LITERAL:
            return self.one(f"[^\\x{value:02x}]")
        if code == op.ANY:
            return self.one(r"[\x00-\xff]" if flags & re.DOTALL else r"[^\n]")
        if code == op.IN:
            return self.cased(self.one(_write_class(value))[0], flags)
        if code == op.BRANCH:
            return self.write(self.chance.choice(value[1]), flags)
        if code == op.SUBPATTERN:
            _, on, off, inner = value
            return self.write(inner, (flags | on) & ~off)
        if code in {op.MAX_REPEAT, op.MIN_REPEAT}:
            low, high, inner = int(value[0]), int(value[1]), value[2]
            count = self.chance.choice(
                [low, low, min(high, low + 1), min(high, low + self.chance.randint(0, 150))]
            )
            return b"".join(self.write(inner, flags) for _ in range(count))
        assert code == op.AT, code
        if value in {op.AT_BEGINNING, op.AT_BEGINNING_STRING}:
            self.at_start = True
        if value in {op.AT_END, op.AT_END_STRING}:
            self.at_end = True
        return b""

    def one(self, characters: str) -> bytes:
        plain, others = members(characters)
        return bytes([self.chance.choice(plain if plain and self.chance.random() < 0.9 else others)])

    def cased(self, code: int, flags: int) -> bytes:
        char = bytes([code])
        return (
            char.swapcase() if flags & re.IGNORECASE and code < 128 and self.chance.random() < 0.5 else char
        )

    def around(self) -> bytes:
        return bytes(self.chance.choice(AROUND) for _ in range(self.chance.choice([0, 1, 2, 30, 700])))


def written(pattern: str, chance: random.Random) -> bytes:
    """Write a match in random surroundings."""
    tree = regex_ast.parse(pattern)
    writer = Writer(chance)
    match = writer.write(tree, tree.state.flags)
    before = b"" if writer.at_start else writer.around()
    return before + match + (b"" if writer.at_end else writer.around())


@cache
def numbers(rules: RuleSet) -> dict[str, int]:
    return {
        form.pattern.regex: number for number in range(rules.trigger_count) for _, form in rules.forms[number]
    }


def unseen(rules: RuleSet, form: CredentialForm, data: bytes) -> list[tuple[int, int]]:
    """Give the matches of the full pattern that lie in no stretch to which the first pass leads."""
    number = numbers(rules)[form.pattern.regex]
    ends = [end for end, found in scan_joined_texts(rules, data) if found == number]
    windows = list(_windows(form, ends, len(data)))
    spans = [match.span() for match in compile_cached(form.pattern.regex).finditer(data)]
    return [
        (a, b)
        for a, b in spans
        if b - a <= form.pattern.longest and not any(start <= a and b <= stop for start, stop in windows)
    ]


def forms(rules: RuleSet) -> dict[str, CredentialForm]:
    return {f"{rule.id}-{number}": form for rule in rules.rules for number, form in enumerate(rule.forms)}


def matches(form: CredentialForm) -> Iterator[bytes]:
    """Write matches, alone and one behind the other: the engine has been met to see the first of several only."""
    chance = random.Random(form.pattern.regex)
    alone = [
        with_word(form, written(form.pattern.regex, chance), chance)
        if form.window.after
        else written(form.pattern.regex, chance)
        for _ in range(6)
    ]
    yield from alone
    yield b"\nx, ".join(alone)


def test_whatever_a_form_matches_the_first_pass_has_seen():
    assert [
        name
        for name, form in forms(ruleset()).items()
        if any(unseen(ruleset(), form, data) for data in matches(form))
    ] == []


def test_wherever_in_a_text_a_form_matches_the_first_pass_has_seen_it():
    missed = []
    for name, form in forms(ruleset()).items():
        data = next(matches(form))
        missed += [
            (name, at) for at in range(1, 34) if unseen(ruleset(), form, b"x" * (at - 1) + b"\n" + data)
        ]
    assert missed == []


@pytest.mark.parametrize(
    ("pattern", "loosened", "exact"),
    [
        ("[a-z]{2,40}=[0-9]{3,5}", "[a-z]{2,}=[0-9]{3,5}", 44), (r"key\s{0,30}?.{1,64}", r"key\s{0,}?.{1,}", 34),
        (r"\{3,60}\\[{3,60}]{0,60}[]a]{1,99}[^]\]]{1,99}", r"\{3,60}\\[{3,60}]{0,}[]a]{1,}[^]\]]{1,}", 69),
        (r"\x41{0,80}(?:[a-f]{0,50}x){0,40}", r"\x41{0,}(?:[a-f]{0,}x){0,40}", 50),
        ("[a-f]{32}(?:ab){0,90}[0-9]{2,29}", "[a-f]{32}(?:ab){0,90}[0-9]{2,29}", regex_ast.MAX_WIDTH),
    ],
)  # fmt: skip
def test_far_bounds_are_left_away_and_it_is_known_up_to_where_they_do_not_matter(pattern, loosened, exact):
    assert (regex_ast.loosen(pattern), regex_ast.exact_up_to(pattern)) == (loosened, exact)


@pytest.mark.parametrize(
    ("pattern", "behind"),
    [
        ("a(?P<secret>[0-9]+)", 0), ("a(?P<secret>[0-9]+)@[a-z]", 2), ("(?P<secret>a)(?:bc|de)", 2), ("(?P<secret>a)(?:$|[^a])", None),
        ("(?P<secret>a)b{1,2}", None), ("(?:(?P<secret>a)|b)", None), ("ab", None), ("(?P<name>ab)", None),
    ],
)  # fmt: skip
def test_how_many_characters_stand_behind_a_value_where_these_are_always_as_many(pattern, behind):
    assert regex_ast.width_after_value(pattern) == behind


def test_without_its_far_bounds_a_form_matches_the_same_up_to_there():
    """Texts are written with and without the bounds, so that some of them are too long."""
    other, same, longer = [], 0, 0
    for name, form in forms(ruleset()).items():
        chance = random.Random(f"loosened {name}")
        for pattern in (form.pattern.regex, regex_ast.loosen(form.pattern.regex)) * 3:
            data = written(pattern, chance)
            found = find_spans(compile_loosened(form.pattern.regex)[0], data, 0, len(data))
            if found is not None and found[0][1] - found[0][0] > form.pattern.exact_up_to:
                longer += 1
                continue
            same += found is not None
            other += (
                [name] if found != find_spans(compile_cached(form.pattern.regex), data, 0, len(data)) else []
            )
    assert other == []
    assert same > 3_000
    assert longer > 500


def test_a_lead_is_told_to_end_a_text_exactly_where_its_whole_pattern_says_so():
    for form in [form for form in forms(ruleset()).values() if form.judge in LEAD_IN_CHARS]:
        whole, chance = compile_regex(rf"(?:{form.pattern.regex})\z"), random.Random(form.pattern.regex)
        texts = [
            written(pattern, chance)[:size]
            for pattern in (form.pattern.regex, regex_ast.loosen(form.pattern.regex)) * 300
            for size in (60, 400)
        ]
        assert [
            text
            for text in texts
            if ends_with_match(text, form.pattern.regex, form.pattern.exact_up_to) != bool(whole.search(text))
        ] == []


def test_what_is_said_to_stand_in_one_line_does():
    lines = {name: form for name, form in forms(ruleset()).items() if form.window.single_line}
    beyond = []
    for name, form in lines.items():
        tree = parser.parse(form.pattern.regex, 0)
        beyond += [
            name
            for seed in range(8)
            if b"\n" in Writer(random.Random(f"{name} {seed}")).write(tree, tree.state.flags)[1:-1]
        ]
    assert beyond == []
    assert 300 < len(lines) < len(forms(ruleset())) - 300


@pytest.mark.parametrize(
    ("pattern", "in_line"),
    [
        ("abc[0-9]{4}", True), (r"(?:^|[^a-z])abc(?:$|[^a-z])", True), (r"\nabc\n", True), ("[^a]bc[^d]", True),
        (r"(?:\\[nrt]|\s)abc", True),
        (r"a\nb", False), ("a[^b]c", False), (r"a\s?b", False), (r"\s{2}a", False), (r"a(?:\s|,)*", False), ("(?s:a.b)", False),
        ("(?s)a.b", False),
        ("a.b", True), (r"(?:\n|\r\n)abc", False), ("a(?:b|(?s:.)c)d", False), (r"(?:x\n|y)abc", False), (r"abc\s", True),
    ],
)  # fmt: skip
def test_whether_a_match_goes_beyond_a_line(pattern, in_line):
    assert regex_ast.is_single_line(pattern) is in_line


@pytest.mark.parametrize(
    "text",
    [
        "--password=k8s!Lm2Zx9v",
        "\t-Password 'k8s!Lm2Zx9v'",
        r'"\tdiscord.com/api/webhooks/769176247475070317/{}"',
    ],
)
def test_what_begins_at_the_border_of_two_vectors_is_found(text):
    value = drawn(BASE62, 68, "webhook")
    assert [
        at for at in range(70) if not find(ruleset(), b"x" * at + b"\n" + text.format(value).encode() + b"\n")
    ] == []


def test_a_trigger_of_its_own_ends_wherever_its_pattern_does():
    (form,) = (form for form in forms(ruleset()).values() if form.judge == "noun")
    number = numbers(ruleset())[form.pattern.regex]
    tree, chance = parser.parse(form.pattern.regex, 0), random.Random("led to")
    texts = [
        text
        for text in (Writer(chance).write(tree, 0) for _ in range(3_000))
        if ends_with_match(text, form.pattern.regex, form.pattern.exact_up_to)
    ]
    assert len(texts) > 2_000
    missed = []
    for text in texts:
        ends = {end for end, found in scan_joined_texts(ruleset(), text) if found == number}
        if len(text) not in {*ends, *_sort_match_ends(text, ends, "noun")}:
            missed.append(text)
    assert missed == []


def with_word(form: CredentialForm, data: bytes, chance: random.Random) -> bytes:
    """Put the word of a form with `near` or `after` where the value is still within its reach."""
    word = written(form.trigger.pattern, chance)
    room = form.window.after - len(data) - len(word) - 4
    if room < 0:
        return b""
    gap = b" " * chance.randint(0, room)
    return data + gap + word if form.window.before and chance.random() < 0.5 else word + gap + data


# The engine of the first pass (Vectorscan 5.4.12) lost these words where sixteen bytes stand before them, when the alternatives of
# their trigger were one expression.
LOST = {
    "ado_pat: ": ("azure_devops_pat", 1, "hady4ey5j476tvpgkh6lta5ln3m2i3qwf7qd22tsgelxcbcixq7w"),
    "tfs_key: ": ("azure_devops_pat", 1, "hady4ey5j476tvpgkh6lta5ln3m2i3qwf7qd22tsgelxcbcixq7w"),
    "rzp_secret: ": ("razorpay_key", 0, "Hg9Kpk9asW7RfuNMgp42QpRT"),
    "fb_secret: ": ("facebook_app_secret", 0, "ae22b9d13f550ea13b067e0d86bd99d9"),
}


@pytest.mark.parametrize("word", LOST)
def test_no_alternative_of_a_trigger_is_lost_by_the_engine(word):
    rule, number, value = LOST[word]
    form = next(one for one in ruleset().rules if one.id == rule).forms[number]
    data = (" " * 40 + word + value + "\n").encode()
    assert compile_cached(form.pattern.regex).search(data)
    assert unseen(ruleset(), form, data) == []


ODD = [
    r"^(?P<secret>abc[0-9]{5})",
    r"\A(?P<secret>abc)x{3}",
    r"(?m)^(?P<secret>key: [a-z]{2,9})$",
    r"(?P<secret>[a-z]{3}-[0-9]+)$",
    r"(?P<secret>foo|barbaz|q[0-9]+z)tail",
    r"(?P<secret>(?:(?:ab|c(?:d|ef))g){2,3})h",
    r"(?i:sEcReT)=(?P<secret>[^\s]{4,})",
    r"(?i)(?P<secret>tok_[a-z]{8})",
    r"(?P<secret>(?-i:A)b)(?i:c)d",
    r"(?:opt)?(?P<secret>[a-f]{3}-[0-9]{2})",
    r"(?:x|)(?:y|)(?P<secret>zz)",
    r"(?:a?b?c?){0,3}(?P<secret>d[e-g]e)",
    r"(?P<secret>x{0,5}y{2}z)",
    r"(?P<secret>a{0,9}b{0,9}cc+)",
    r"(?P<secret>[^\n\r]{2}[!-/]{3})",
    r"(?P<secret>[\]\[^\\-]{3}k)",
    r"(?P<secret>[^a]b[^\x00-\x7f])",
    r"(?P<secret>\x00\xff[\x80-\xff]{2})",
    r"(?P<secret>a\S\Sb\s\sc[^\s]d[\S]e[\s.]f)",
    r"(?P<secret>\d\D\w\W[\d\W]x)",
    r"\b(?P<secret>word[0-9]{2})\b",
    r"\B(?P<secret>-[0-9]{2})\B",
    r"(?s)(?P<secret>a.{3}b)",
    r"(?P<secret>a(?s:.{3})b.{2})",
    r"(?P<secret>(?:a|ab|abc){2,40}!)",
    r"(?P<secret>pp.{0,200}q.{0,200}?r)",
    r"(?P<secret>ab.*c[0-9]{3})",
    r"(?P<secret>abcdef[0-9a-f]{12,})z",
    r"(?P<secret>(?:abcd[0-9]{20,40}){1,3}e)",
    r"(?:^|[^a-z])(?P<secret>[a-z]{40})(?:$|[^a-z])",
]


@cache
def odd() -> RuleSet:
    text = 'issuer = "Odd"\n'
    for number, pattern in enumerate(ODD):
        text += (
            f"[[rule]]\nid = 'odd-{number}'\nname = 'Odd'\nsecret_type = 'odd'\npattern = '''{pattern}'''\n"
        )
    return compile_ruleset(parse_rule_file(text, "odd.toml"))


@pytest.mark.parametrize("number", range(len(ODD)), ids=ODD)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**64))
def test_whatever_an_odd_pattern_matches_the_first_pass_has_seen(number, seed):
    form = odd().rules[number].forms[0]
    data = written(form.pattern.regex, random.Random(seed))
    assert unseen(odd(), form, data) == []


@pytest.mark.parametrize("number", range(len(ODD)), ids=ODD)
def test_the_writer_writes_matches(number):
    pattern = compile_cached(odd().rules[number].forms[0].pattern.regex)
    assert (
        sum(pattern.search(written(ODD[number], random.Random(seed))) is not None for seed in range(100)) > 10
    )


def test_the_alternatives_of_a_trigger_match_what_it_matches():
    assert split_alternatives("(?i:(?:ab|cd)e|fg)h{2}") == [
        "(?i:abe)(?:h){2}",
        "(?i:cde)(?:h){2}",
        "(?i:fg)(?:h){2}",
    ]
    assert split_alternatives("(?s)(?:xab|xcd).z") == ["(?s)xab.z", "(?s)xcd.z"]
    assert split_alternatives("(?:^|x)abc") == ["(?:(?:^|\\n)|x)abc"]
    assert len(split_alternatives("(?:" + "|".join(f"{n:04}" for n in range(500)) + ")x")) == 1


def test_a_trigger_is_shorter_than_an_open_pattern_and_knows_its_width():
    found = make_trigger(r"(?P<secret>ghp_[0-9A-Za-z]{36,255})")
    assert found.min_width == found.max_width == 12
    assert not found.ends_match


def test_a_pattern_that_ends_in_something_is_its_own_trigger():
    found = make_trigger(r"(?P<secret>ghp_[0-9A-Za-z]{36,255})(?:$|[^0-9A-Za-z])")
    assert (found.min_width, found.max_width, found.ends_match) == (40, 260, True)
    assert not make_trigger(r"(?P<secret>ghp_[0-9A-Za-z]{36,2550})(?:$|[^0-9A-Za-z])").ends_match


def test_what_only_begins_like_a_pattern_is_not_even_seen():
    assert (
        scan_joined_texts(ruleset(), b"AKIA" + b"A" * 15 + b" ghp_" + b"a" * 35 + b" xoxb-123456789012-1234")
        == []
    )


def test_a_pattern_that_is_too_much_for_the_first_pass_is_looked_for_by_its_beginning():
    rule = next(one for one in ruleset().rules if one.id == "twitter_bearer")
    wide = rule.forms[-1]
    whole = wide._replace(
        trigger=wide.trigger._replace(
            pattern=wide.pattern.regex.replace("?P<secret>", "?:"),
            max_width=wide.pattern.longest,
            ends_match=True,
        )
    )
    rules = compile_ruleset([rule._replace(forms=(whole,))])
    assert rules.rules[0].forms == (wide,)
    value = b"A" * 20 + drawn(BASE62, 90, "wide").encode()
    assert [reveal(hit.secret).encode() for hit in find(rules, b"bearer: " + value + b"\n")] == [value]


def both_ways(rule: Rule, form: CredentialForm) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Give what the first pass alone finds of a form in a text that has it three times, and what the second engine finds."""
    chance = random.Random(form.pattern.regex)
    number = numbers(ruleset())[form.pattern.regex]
    data = b"".join(written(form.pattern.regex, chance) for _ in range(3))
    ends = sorted(end for end, found in scan_joined_texts(ruleset(), data) if found == number)
    quick = [(hit.start, hit.end) for hit in _confirm_by_layout(rule, form, data, ends)]
    return quick, [(hit.start, hit.end) for hit in _match_window(rule, form, data, (0, len(data)))]


def test_a_value_that_the_first_pass_knows_is_found_without_the_second_engine_where_that_finds_it():
    found = {
        (rule.id, form.pattern.regex): both_ways(rule, form)
        for rule in ruleset().rules
        for form in rule.forms
        if form.layout
    }
    assert len(found) > 100
    assert {name: both for name, both in found.items() if both[0] != both[1]} == {}


def beside_each_other(form: CredentialForm, chance: random.Random) -> bytes:
    """Write values, some of them spoilt or with another beginning inside, and what may stand between them."""
    values = [written(form.pattern.regex, chance).decode("latin-1")[1:-1] for _ in range(3)]
    parts = []
    for _ in range(chance.randrange(1, 7)):
        value, at = chance.choice(values), chance.randrange(1, 20)
        spoilt = (
            value[:-at],
            value + value[-at:],
            value[:at] + chance.choice(form.layout.prefixes) + value[at:],
            chance.choice(form.layout.prefixes),
        )
        parts.append(chance.choice([value, value, *spoilt, *' \n"-_=x/+.,', "\\n", " "]))
    return "".join(parts).encode("latin-1")


@pytest.mark.parametrize("seed", range(4))
def test_where_a_value_begins_is_known_whatever_stands_beside_it(seed):
    count = 0
    for number in range(ruleset().trigger_count):
        for rule, form in ruleset().forms[number]:
            if form.layout and form.layout.prefixes:
                data = beside_each_other(form, random.Random(f"{seed} {form.pattern.regex}"))
                if ends := sorted(
                    end for end, found in scan_joined_texts(ruleset(), data) if found == number
                ):
                    near = [
                        hit
                        for window in _windows(form, ends, len(data))
                        for hit in _match_window(rule, form, data, window)
                    ]
                    assert {
                        (hit.start, hit.end) for hit in keep_best(_confirm_by_layout(rule, form, data, ends))
                    } == {(hit.start, hit.end) for hit in keep_best(near)}, (rule.id, data)
                    count += 1
    assert count > 10


def test_what_is_no_value_is_looked_at_once_however_many_stand_one_after_the_other(monkeypatch):
    """A text full of them is read in a time that grows with its size: where one is looked for no other is met again."""
    looked_at = []
    judged = confirm._check_value
    monkeypatch.setattr(confirm, "_check_value", lambda *given: looked_at.append(given) or judged(*given))
    assert find(ruleset(), (b"sk_live_" + b"x" * 24 + b"\n") * 100) == []
    assert len(looked_at) == 100


def test_a_trigger_of_alternatives_is_as_wide_as_the_narrowest_and_the_widest():
    assert make_trigger(r"(?i:abc)(?:d|ee)f{2}").min_width == 6
    assert make_trigger(r"(?i:abc)(?:d|ee)f{2}").max_width == 7


REFUSED = {
    "look ahead": (r"abc(?=d)", "uses lookahead or lookbehind"),
    "not ahead": (r"abc(?!d)", "uses lookahead or lookbehind"),
    "look behind": (r"(?<=x)abc", "uses lookahead or lookbehind"),
    "not behind": (r"(?<!x)abc", "uses lookahead or lookbehind"),
    "back-reference": (r"([abc]{3})\1", "uses a back-reference"),
    "named reference": (r"(?P<x>abc)(?P=x)", "uses a back-reference"),
    "condition": (r"(a)?b(?(1)c|d)e", "uses a back-reference"),
    "atomic group": (r"(?>abc)d", "atomic"),
    "possessive": (r"abc++d", "possessive"),
    "deep inside": (r"a(?:b|(?:c(?=d))){2}", "uses lookahead or lookbehind"),
    "open bracket": (r"abc[", "unterminated"),
    "open group": (r"(abc", "missing )"),
    "nothing to repeat": (r"*abc", "nothing to repeat"),
    "too little": (r"a", "fewer than two characters"),
    "perhaps nothing": (r"(?:abc)?", "fewer than two characters"),
    "anything": (r".*", "fewer than two characters"),
    "beyond a byte": (r"\u4f60\u597d", r"above \xff"),
    "beyond ASCII": ("caf\u00e9", "non-ASCII"),
}


@pytest.mark.parametrize(("pattern", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_matched_in_linear_time_or_says_nothing_is_refused(pattern, reason):
    with pytest.raises(PatternError, match=re.escape(reason)):
        make_trigger(pattern)


def test_deep_nesting_is_refused_and_not_a_crash():
    with pytest.raises(PatternError):
        regex_ast.parse("(" * 5_000 + "a" + ")" * 5_000)


def test_signs_that_python_warns_about_are_taken_without_a_word():
    assert make_trigger(r"[[a-z]{3}[a-z||0-9]").min_width == 4


NESTED = [r"(?:aa+)+$", r"(?:a+a+)+b", r"(?:a|a)*?(?:a|aa)+c", r"(?:a{1,9}){2,20}d", r"aa(?:[a-z]+)*\d"]


@pytest.mark.parametrize("pattern", NESTED)
def test_nested_repetition_takes_linear_time_or_is_refused(pattern):
    try:
        rules = compile_ruleset(
            parse_rule_file(
                f"issuer='x'\n[[rule]]\nid='x'\nname='x'\nsecret_type='x'\npattern='''(?P<secret>{pattern})'''",
                "x",
            )
        )
    except Exception as error:  # noqa: BLE001
        assert "pattern" in str(error)  # noqa: PT017
        return
    started = time.perf_counter()
    find(rules, b"a" * 500_000)
    assert time.perf_counter() - started < 40  # exponential or quadratic time would be hours
