"""The Hyperscan pass never misses what the full regular expression would match."""

import random
from collections.abc import Iterator
from functools import cache
from re import _parser as parser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcrop.domain.secret import reveal
from outcrop.scanner.engine.confirm import _windows
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.load import compile_ruleset
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.triggers import find_trigger_matches
from outcrop.scanner.generic.find import _sort_match_ends
from outcrop.scanner.patterns.prefilter import make_trigger, split_alternatives
from outcrop.scanner.patterns.re2_match import compile_cached, ends_with_match
from outcrop.scanner.rules.model import CredentialForm
from outcrop.scanner.rules.toml import parse_rule_file
from tests.support.form_samples import MatchWriter, forms_by_name, trigger_ends, write_match
from tests.support.rulesets import BASE62, drawn, ruleset


def missed_matches(rules: RuleSet, form: CredentialForm, data: bytes) -> list[tuple[int, int]]:
    """Return the matches of the full pattern that are in no window around a trigger match."""
    windows = list(_windows(form, trigger_ends(rules, form, data), len(data)))
    spans = [match.span() for match in compile_cached(form.pattern.regex).finditer(data)]
    return [
        (left, right)
        for left, right in spans
        if right - left <= form.pattern.longest
        and not any(start <= left and right <= stop for start, stop in windows)
    ]


def write_texts(form: CredentialForm) -> Iterator[bytes]:
    """Yield texts with one match, and one with several: Hyperscan has been seen to report only the first."""
    rng = random.Random(form.pattern.regex)
    texts = []
    for _ in range(6):
        match = write_match(form.pattern.regex, rng)
        texts.append(add_word(form, match, rng) if form.window.after else match)
        yield texts[-1]
    yield b"\nx, ".join(texts)


def add_word(form: CredentialForm, data: bytes, rng: random.Random) -> bytes:
    """Return the data with a word for `near` or `after` close enough to it; nothing if there is no room."""
    word = write_match(form.trigger.pattern, rng)
    room = form.window.after - len(data) - len(word) - 4
    if room < 0:
        return b""
    gap = b" " * rng.randint(0, room)
    return data + gap + word if form.window.before and rng.random() < 0.5 else word + gap + data


@pytest.mark.slow
def test_every_match_of_a_form_is_in_a_window_around_a_trigger_match():
    assert [
        name
        for name, form in forms_by_name(ruleset()).items()
        if any(missed_matches(ruleset(), form, data) for data in write_texts(form))
    ] == []


def test_a_trigger_matches_at_every_offset_of_a_text():
    missed = []
    for name, form in forms_by_name(ruleset()).items():
        data = next(write_texts(form))
        missed += [
            (name, offset)
            for offset in range(1, 34)
            if missed_matches(ruleset(), form, b"x" * (offset - 1) + b"\n" + data)
        ]
    assert missed == []


@pytest.mark.parametrize(
    "text",
    [
        "--password=k8s!Lm2Zx9v",
        "\t-Password 'k8s!Lm2Zx9v'",
        r'"\tdiscord.com/api/webhooks/769176247475070317/{}"',
    ],
)
def test_a_value_is_found_if_it_begins_at_the_border_of_two_vectors(text):
    line = text.format(drawn(BASE62, 68, "webhook")).encode()
    assert [offset for offset in range(70) if not find(ruleset(), b"x" * offset + b"\n" + line + b"\n")] == []


def test_a_trigger_that_a_rule_gives_ends_wherever_its_pattern_ends():
    (form,) = (form for form in forms_by_name(ruleset()).values() if form.judge == "noun")
    tree, rng = parser.parse(form.pattern.regex, 0), random.Random("led to")
    texts = [
        text
        for text in (MatchWriter(rng).write(tree, 0) for _ in range(3_000))
        if ends_with_match(text, form.pattern.regex, form.pattern.exact_up_to)
    ]
    assert len(texts) > 2_000
    missed = []
    for text in texts:
        ends = set(trigger_ends(ruleset(), form, text))
        if len(text) not in {*ends, *_sort_match_ends(text, ends, "noun")}:
            missed.append(text)
    assert missed == []


# Vectorscan 5.4.12 missed these words after sixteen bytes if all alternatives were one expression.
MISSED_WORDS = {
    "ado_pat: ": ("azure_devops_pat", 1, "hady4ey5j476tvpgkh6lta5ln3m2i3qwf7qd22tsgelxcbcixq7w"),
    "tfs_key: ": ("azure_devops_pat", 1, "hady4ey5j476tvpgkh6lta5ln3m2i3qwf7qd22tsgelxcbcixq7w"),
    "rzp_secret: ": ("razorpay_key", 0, "Hg9Kpk9asW7RfuNMgp42QpRT"),
    "fb_secret: ": ("facebook_app_secret", 0, "ae22b9d13f550ea13b067e0d86bd99d9"),
}


@pytest.mark.parametrize("word", MISSED_WORDS)
def test_hyperscan_finds_every_alternative_of_a_trigger(word):
    rule_id, index, value = MISSED_WORDS[word]
    form = ruleset().rules.get(rule_id).forms[index]
    data = (" " * 40 + word + value + "\n").encode()
    assert compile_cached(form.pattern.regex).search(data)
    assert missed_matches(ruleset(), form, data) == []


ODD_PATTERNS = [
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
def odd_rules() -> RuleSet:
    """Return one rule for each of ODD_PATTERNS."""
    text = 'issuer = "Odd"\n'
    for number, pattern in enumerate(ODD_PATTERNS):
        text += (
            f"[[rule]]\nid = 'odd-{number}'\nname = 'Odd'\nsecret_type = 'odd'\npattern = '''{pattern}'''\n"
        )
    return compile_ruleset(parse_rule_file(text, "odd.toml"))


@pytest.mark.parametrize("number", range(len(ODD_PATTERNS)), ids=ODD_PATTERNS)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**64))
def test_every_match_of_an_odd_pattern_is_in_a_window_around_a_trigger_match(number, seed):
    form = odd_rules().rules[number].forms[0]
    data = write_match(form.pattern.regex, random.Random(seed))
    assert missed_matches(odd_rules(), form, data) == []


@pytest.mark.parametrize("number", range(len(ODD_PATTERNS)), ids=ODD_PATTERNS)
def test_the_written_texts_match(number):
    pattern = compile_cached(odd_rules().rules[number].forms[0].pattern.regex)
    texts = (write_match(ODD_PATTERNS[number], random.Random(seed)) for seed in range(100))
    assert sum(pattern.search(text) is not None for text in texts) > 10


def test_the_alternatives_of_a_trigger_match_the_same_as_the_trigger():
    assert split_alternatives("(?i:(?:ab|cd)e|fg)h{2}") == [
        "(?i:abe)(?:h){2}",
        "(?i:cde)(?:h){2}",
        "(?i:fg)(?:h){2}",
    ]
    assert split_alternatives("(?s)(?:xab|xcd).z") == ["(?s)xab.z", "(?s)xcd.z"]
    assert split_alternatives("(?:^|x)abc") == ["(?:(?:^|\\n)|x)abc"]
    assert len(split_alternatives("(?:" + "|".join(f"{n:04}" for n in range(500)) + ")x")) == 1


def test_the_trigger_of_a_pattern_with_an_open_end_is_its_beginning():
    found = make_trigger(r"(?P<secret>ghp_[0-9A-Za-z]{36,255})")
    assert found.min_width == found.max_width == 12
    assert not found.ends_match


def test_a_narrow_pattern_with_a_definite_end_is_its_own_trigger():
    found = make_trigger(r"(?P<secret>ghp_[0-9A-Za-z]{36,255})(?:$|[^0-9A-Za-z])")
    assert (found.min_width, found.max_width, found.ends_match) == (40, 260, True)
    assert not make_trigger(r"(?P<secret>ghp_[0-9A-Za-z]{36,2550})(?:$|[^0-9A-Za-z])").ends_match


def test_a_trigger_of_alternatives_has_the_width_of_the_narrowest_and_the_widest():
    assert make_trigger(r"(?i:abc)(?:d|ee)f{2}").min_width == 6
    assert make_trigger(r"(?i:abc)(?:d|ee)f{2}").max_width == 7


def test_texts_that_only_begin_like_a_pattern_match_no_trigger():
    data = b"AKIA" + b"A" * 15 + b" ghp_" + b"a" * 35 + b" xoxb-123456789012-1234"
    assert find_trigger_matches(ruleset(), data) == []


def test_the_trigger_of_a_pattern_that_is_too_large_for_hyperscan_is_its_beginning():
    rule = ruleset().rules.get("twitter_bearer")
    wide = rule.forms[-1]
    whole_pattern = wide._replace(
        trigger=wide.trigger._replace(
            pattern=wide.pattern.regex.replace("?P<secret>", "?:"),
            max_width=wide.pattern.longest,
            ends_match=True,
        )
    )
    rules = compile_ruleset([rule._replace(forms=(whole_pattern,))])
    assert rules.rules[0].forms == (wide,)
    value = b"A" * 20 + drawn(BASE62, 90, "wide").encode()
    assert [reveal(hit.secret).encode() for hit in find(rules, b"bearer: " + value + b"\n")] == [value]
