"""The values of lists and mappings with a plural as their name are judged one by one."""

import random
import string

import pytest

from tests.support.growth import grows_linearly
from tests.support.rulesets import values

BASE62 = string.ascii_letters + string.digits


def random_text(alphabet: str, length: int, seed: object = 1) -> str:
    """Return random characters of an alphabet; the same for the same seed."""
    chance = random.Random(f"{seed} {alphabet} {length}")
    return "".join(chance.choice(alphabet) for _ in range(length))


VALUES = tuple(random_text(BASE62, 24, seed) for seed in range(3))


@pytest.mark.parametrize(
    "text",
    [
        'TOKENS = ["{}", "{}", "{}"]',
        "secrets = ['{}',\n    '{}',  \n '{}']",
        'api_keys = {{"a": "{}", \'b\': "{}", "c.d": "{}"}}',
        'var apiKeys = map[string]string{{\n\t"a": "{}",\n\t"b": "{}",\n\t"c": "{}",\n}}',
        'secrets := [...]string{{"{}", "{}", "{}"}}',
        "my %passwords = (a => '{}', b => '{}', c => '{}');",
        'String[] tokens = new String[] {{ "{}", "{}", "{}" }};',
        'x = {{"accessKeys": {{ eu: "{}", us: "{}", de: "{}" }}}}',
        'x = "tokens = {{\\n  \\"a\\": \\"{}\\",\\n  \\"b\\": \\"{}\\", \\"c\\": \\"{}\\"}}"',
        "tokens:\n  - {}\n  - {}\n  - {}\n",
        "tokens:\r\n- {}\r\n- '{}'\r\n- \"{}\"",
        "a:\n  passwords:\n    x: {}\n    y: {}  # old\n    z: {}\n  z: 1\n",
    ],
)
def test_each_value_of_a_collection_is_judged(text):
    assert values(text.format(*VALUES)) == list(VALUES)


@pytest.mark.parametrize(
    "text",
    [
        'TOKENS = ["{}", other("{}")]',
        'tokens = [{{"a": "{}"}}, {{"b": "{}"}}]',
        "tokens:\n  - {}\nothers:\n  - {}\n",
        "tokens:\n    a: {}\n  b: {}\n",
        'tokens = {{"a": "{}"}}; others = {{"b": "{}"}}',
    ],
)
def test_a_collection_ends_at_the_first_other_text(text):
    assert VALUES[1] not in values(text.format(*VALUES))


def test_attributes_of_credentials_in_a_collection_are_no_findings():
    assert values('tokens = {{"id": "{}", "key_url": "{}"}}'.format(*VALUES)) == []
    assert values('dkim_tokens = ["{}", "{}"]'.format(*VALUES)) == []


def test_an_escaped_collection_is_read_to_its_end():
    many = [random_text(BASE62, 24, seed) for seed in range(40)]
    assert values('x = "tokens = [' + ", ".join(f'\\"{value}\\"' for value in many) + ']"') == many


def test_words_in_a_collection_are_no_findings():
    assert (
        values('tokens = ["identifier", "left-paren", "T_STRING"]; passwords = ["sunshine", "letmein"]') == []
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "item",
    [
        '"plain", ',
        '"tokens=[", ',
        '",tokens=[k=",',
        'k:"tokens=[",',
        "tokens=[k=",
        "\n- 'tokens: ['",
        "\ntokens: (k:",
    ],
)
def test_a_list_without_an_end_takes_linear_time(item):
    def scan(count: int) -> None:
        assert values("tokens = [" + item * count) == values("tokens:" + item * count) == []

    assert grows_linearly(scan, 2_000)
