"""Values that are dismissed at once would have got no or low confidence: no finding is lost."""

import random
import string
from itertools import product

import pytest

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.generic import assignment
from outcrop.scanner.generic.assignment import is_dismissed, is_dismissed_in_line
from outcrop.scanner.generic.find import MANY_MATCHES
from outcrop.scanner.generic.names import Noun
from outcrop.scanner.generic.score import DIRECT_ASSIGNMENT, weigh
from tests.support.calls import recorded_calls
from tests.support.rulesets import drawn, hits, values

BASE62 = string.ascii_letters + string.digits
NAMES = (
    "password", "db_password", "apiKey", "api_key", "token", "SECRET", "client_secret", "auth_token",
    "passphrase", "pass", "psk", "api_key_id", "tokenName", "public_key", "session",
)  # fmt: skip
SEPARATORS = (
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
    "changeme", "your-api-key", "password", "None", "null", "test", "admin", "example", "xxxxxx", "secret123",
    "token", "todo", "dummy", "fake-token", "insert your key", "foobar", "Qwerty1", "default", "12345678",
    "my_password", "${TOKEN}", "$(pass show db)", "{{ x }}", "getToken()", "conf[", "load_key(path)",
    "user.name", "hunter2", "Tr0ub4dor&3", "correct horse", "x", "on", "n/a", "Password123",
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


def random_assignment(chance: random.Random) -> str:
    """Return an assignment: a name, a separator, and a value of words and random characters."""
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
    return chance.choice(NAMES) + chance.choice(SEPARATORS) + quote + value + closing + chance.choice(ENDS)


@pytest.fixture(autouse=True)
def clear_the_cache():
    assignment._judge_in_text.cache_clear()
    yield
    assignment._judge_in_text.cache_clear()


def values_without_dismissal(text: str) -> list[str]:
    """Return the values of at least medium confidence; a search for low ones dismisses no value at once."""
    return [reveal(hit.secret) for hit in hits(text, Confidence.LOW) if hit.confidence is not Confidence.LOW]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_dismissed_values_would_be_no_findings(seed):
    chance = random.Random(f"dismissed {seed}")
    texts = [
        random_assignment(chance) + chance.choice(("\n", "", "\n\n" + random_assignment(chance)))
        for _ in range(300)
    ]
    with recorded_calls(is_dismissed) as calls:
        with_dismissal = [values(text) for text in texts]
    assert sum(call.result for call in calls) > 10
    with recorded_calls(is_dismissed) as calls:
        assert with_dismissal == [values_without_dismissal(text) for text in texts]
    assert not calls
    assert any(with_dismissal)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_text_with_many_matches_has_the_same_findings(seed):
    chance = random.Random(f"at once {seed}")
    text = "\n".join(random_assignment(chance) for _ in range(2 * MANY_MATCHES))
    with recorded_calls(is_dismissed_in_line) as calls:
        found = values(text)
    assert sum(call.result for call in calls) > 40 < len(found)
    with recorded_calls(is_dismissed_in_line) as calls:
        assert found == values_without_dismissal(text)
    assert not calls


@pytest.mark.parametrize("begin", ["self.", "aB3$d["])
def test_a_value_after_an_authentication_scheme_is_no_call_or_member(begin):
    value = begin + drawn(BASE62, 18, begin)
    text = f'auth_token = "Bearer {value}"'
    assert values(text) == values('token = "changeme"\n' * (MANY_MATCHES + 1) + text) == [value]


@pytest.mark.parametrize(
    "text",
    ['password = "changeme"', '"password": "Password123"', "secret=secret2024;",
     'api_key: "your-api-key-1"', "db_password=password", "token = None,", "AUTH_TOKEN=${TOKEN}",
     "secret = get_secret(name)", "password = os.environ['DB_PASSWORD']", "token: process.env.API_TOKEN,"],
)  # fmt: skip
def test_frequent_near_misses_are_dismissed(text):
    with recorded_calls(assignment._judge_by_name) as judged:
        assert values(text) == []
    assert not judged


@pytest.mark.parametrize("word", ["password", "Passwort", "PASSWD", "passphrase", "Secret", "token"])
def test_a_credential_word_with_a_number_is_no_credential(word):
    for number in ("1", "12", "123", "2024", "9999", "0007", "86"):
        for noun, place, around in product(Noun, ("quoted", "bare", "element"), ((), (DIRECT_ASSIGNMENT,))):
            assert weigh(f"{word}{number}".encode(), noun, place, around).confidence is None


def test_placeholders_are_reported_with_low_confidence():
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
def test_the_name_of_an_environment_variable_is_no_value(before):
    name = drawn(BASE62, 20, "environment")
    assert values(f'password = {before}{name}"]\n'.replace('"', before[-1])) == []
    default = drawn(BASE62, 20, "default")
    assert values(f"password = {before}{name}{before[-1]}, {before[-1]}{default}{before[-1]})\n") in (
        [],
        [default],
    )


def test_the_default_of_an_environment_variable_is_found():
    value = drawn(BASE62, 20, "default")
    assert values(f'password = os.environ.get("DB_PASSWORD", "{value}")\n') == [value]
    assert values(f'os.environ["DB_PASSWORD"] = "{value}"\n') == [value]


@pytest.mark.parametrize("owner", ["self", "this", "env", "process.env", "import.meta.env"])
def test_a_member_of_an_object_is_no_value(owner):
    assert values(f"password = {owner}.{drawn(BASE62, 20, 'member')}\n") == []


def test_only_the_value_attribute_of_an_element_is_a_value():
    value = drawn(BASE62, 20, "attribute")
    assert values(f'<input type="password" id="{value}">\n') == []
    assert values(f'<input name="password" value="{value}">\n') == [value]
