"""What is dismissed at one look would have been judged as none, or as doubtful: whoever wants only findings misses nothing."""

import random
import string
from itertools import product

import pytest

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.generic import assignment, find
from outcrop.scanner.generic.assignment import is_dismissed
from outcrop.scanner.generic.names import Noun
from outcrop.scanner.generic.score import DIRECT_ASSIGNMENT, weigh
from tests.support.rulesets import drawn, hits, values

BASE62 = string.ascii_letters + string.digits
NAMES = (
    "password", "db_password", "apiKey", "api_key", "token", "SECRET", "client_secret", "auth_token", "passphrase", "pass", "psk",
    "api_key_id", "tokenName", "public_key", "session",
)  # fmt: skip
GAPS = (
    " = ",
    "=",
    ": ",
    ":",
    " := ",
    " => ",
    '": ',
    "' : ",
    ' value="',
    "(",
    ", ",
    "\n  ",
    " =\n    ",
    ": |\n  ",
    " = get(",
    ' = "Bearer ',
    "= Bearer ",
    " = {",
    " is ",
)
WORDS = (
    "changeme", "your-api-key", "password", "None", "null", "test", "admin", "example", "xxxxxx", "secret123", "token", "todo", "dummy",
    "fake-token", "insert your key", "foobar", "Qwerty1", "default", "12345678", "my_password", "${TOKEN}", "$(pass show db)", "{{ x }}",
    "getToken()", "conf[", "load_key(path)", "user.name", "hunter2", "Tr0ub4dor&3", "correct horse", "x", "on", "n/a", "Password123",
)  # fmt: skip
ENDS = (
    "",
    ",",
    ";",
    ")",
    "):",
    "]",
    "},",
    " ",
    "\\",
    "(",
    "[0]",
    "))",
    "&x=1",
    "|",
    "'",
    '"',
    "...",
    "!",
    "<",
    "\t# note",
)


def line(chance: random.Random) -> str:
    """Write a name, what leads to a value, and a value of words and of what is drawn by chance, quoted or not."""
    parts = chance.choices(
        (
            chance.choice(WORDS),
            drawn(BASE62 + "!@#$%^&*()[]{}-_", 14, chance.random()),
            drawn(BASE62, 9, chance.random()),
        ),
        k=2,
    )
    value = chance.choice((parts[0], "".join(parts), "-".join(parts)))
    quote = chance.choice(("", "", '"', "'", "`"))
    closing = chance.choice((quote, quote, quote, ""))
    return chance.choice(NAMES) + chance.choice(GAPS) + quote + value + closing + chance.choice(ENDS)


@pytest.fixture(autouse=True)
def nothing_remembered():
    assignment._judge_in_text.cache_clear()
    yield
    assignment._judge_in_text.cache_clear()


@pytest.mark.parametrize("seed", range(20))
def test_what_is_dismissed_is_no_finding(monkeypatch, seed):
    chance = random.Random(f"dismissed {seed}")
    texts = [line(chance) + chance.choice(("\n", "", "\n\n" + line(chance))) for _ in range(300)]
    dismissed = []
    monkeypatch.setattr(
        assignment,
        "is_dismissed",
        lambda *place, **more: is_dismissed(*place, **more) and not dismissed.append(place),
    )
    with_it = [values(text) for text in texts]
    assert len(dismissed) > 10
    monkeypatch.setattr(assignment, "is_dismissed", lambda *_, **__: False)
    assignment._judge_in_text.cache_clear()
    assert with_it == [values(text) for text in texts]
    assert any(with_it)


@pytest.mark.parametrize("seed", range(8))
def test_in_a_text_that_is_full_of_it_the_same_is_found(monkeypatch, seed):
    chance = random.Random(f"at once {seed}")
    text = "\n".join(line(chance) for _ in range(400))
    monkeypatch.setattr(find, "MANY_MATCHES", 20)
    at_once = []
    original = find.is_dismissed_in_line
    monkeypatch.setattr(
        find,
        "is_dismissed_in_line",
        lambda *place, **more: original(*place, **more) and not at_once.append(place),
    )
    found = values(text)
    assert len(at_once) > 40 < len(found)
    monkeypatch.setattr(find, "MANY_MATCHES", len(text))
    assignment._judge_in_text.cache_clear()
    assert found == values(text)


@pytest.mark.parametrize("begin", ["self.", "aB3$d["])
def test_behind_a_scheme_nothing_is_a_call_or_a_member(monkeypatch, begin):
    monkeypatch.setattr(find, "MANY_MATCHES", 0)
    value = begin + drawn(BASE62, 18, begin)
    assert values(f'auth_token = "Bearer {value}"') == [value]


@pytest.mark.parametrize(
    "text",
    ['password = "changeme"', '"password": "Password123"', "secret=secret2024;",
     'api_key: "your-api-key-1"', "db_password=password", "token = None,", "AUTH_TOKEN=${TOKEN}",
     "secret = get_secret(name)", "password = os.environ['DB_PASSWORD']", "token: process.env.API_TOKEN,"],
)  # fmt: skip
def test_what_a_file_may_be_full_of_is_dismissed(monkeypatch, text):
    monkeypatch.setattr(assignment, "_judge_by_name", lambda *_, **__: pytest.fail("judged"))
    assert values(text) == []


@pytest.mark.parametrize("word", ["password", "Passwort", "PASSWD", "passphrase", "Secret", "token"])
def test_a_word_with_a_number_is_judged_as_none(word):
    for number in ("1", "12", "123", "2024", "9999", "0007", "86"):
        for noun, place, around in product(Noun, ("quoted", "bare", "element"), ((), (DIRECT_ASSIGNMENT,))):
            assert weigh(f"{word}{number}".encode(), noun, place, around).confidence is None


def test_who_wants_doubtful_values_is_told_them():
    assert [reveal(hit.secret) for hit in hits('password = "changeme"\n', Confidence.LOW)] == ["changeme"]


@pytest.mark.parametrize(
    "before",
    [
        'os.environ["',
        "os.environ.get('",
        'os.getenv("',
        'ENV["',
        "ENV.fetch('",
        'env("',
        "process.env['",
        'System.getenv("',
        'std::env::var("',
    ],
)
def test_what_is_asked_of_the_environment_is_a_name(before):
    name = drawn(BASE62, 20, "environment")
    assert values(f'password = {before}{name}"]\n'.replace('"', before[-1])) == []
    default = drawn(BASE62, 20, "default")
    assert values(f"password = {before}{name}{before[-1]}, {before[-1]}{default}{before[-1]})\n") in (
        [],
        [default],
    )


def test_a_default_behind_a_variable_of_the_environment_is_found():
    value = drawn(BASE62, 20, "default")
    assert values(f'password = os.environ.get("DB_PASSWORD", "{value}")\n') == [value]
    assert values(f'os.environ["DB_PASSWORD"] = "{value}"\n') == [value]


@pytest.mark.parametrize("owner", ["self", "this", "env", "process.env", "import.meta.env"])
def test_a_member_is_a_name(owner):
    assert values(f"password = {owner}.{drawn(BASE62, 20, 'member')}\n") == []


def test_another_attribute_of_an_element_is_no_value_but_its_value_is():
    value = drawn(BASE62, 20, "attribute")
    assert values(f'<input type="password" id="{value}">\n') == []
    assert values(f'<input name="password" value="{value}">\n') == [value]
