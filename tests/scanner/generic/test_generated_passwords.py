"""Generated passwords with symbols are found, though they look like code, templates and calls."""

import random
import string

import pytest

from outcrop.domain.finding import Confidence
from outcrop.scanner.generic.score import looks_generated_with_symbols
from tests.support.rulesets import hits, values

SYMBOLS = "!#$%&()*+,-./:;<=>?@[]^_{|}~"  # all but quotes and backslash
SHELL_SYMBOLS = "!@#$%^&*()_+-="


def passwords(symbols: str, length: int, count: int = 200) -> list[str]:
    chance = random.Random(f"{symbols} {length}")
    return [
        "".join(chance.choice(string.ascii_letters + string.digits + symbols) for _ in range(length))
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("template", "symbols", "min_share"),
    [
        ('password = "{}"', SYMBOLS, 0.9),
        ("DB_PASSWORD='{}'", SHELL_SYMBOLS, 0.9),
        ('{{"client_secret": "{}"}}', SYMBOLS, 0.88),
        ("DB_PASSWORD={}", SHELL_SYMBOLS, 0.75),
        ("  password: {}", SYMBOLS, 0.55),
    ],
)
@pytest.mark.parametrize("length", [12, 16, 24])
def test_generated_passwords_are_reported_completely(template, symbols, min_share, length):
    drawn = passwords(symbols, length)
    found = values("\n".join(template.format(value) for value in drawn) + "\n")
    assert len(set(drawn) & set(found)) >= min_share * len(drawn)


@pytest.mark.parametrize(
    "text",
    [
        "token = _XRegExp$exec2[0];",
        "token = arr2[Idx](a)+B[1]",
        "password = self.Pw1(x)[0]",
        "secret: &#x3C;Buffer|TypedArray|Data2View>",
        "(GnuPG key: 0x7EC2DBB6F4DBF434).",
        "<password>{Ur5BpeQGlYUHhXsHahO/HbMBcPSFSUtN5gbWuFFPYGw=}</password>",
        "TOKENS = /^[\\u0009\\u0020-\\u007E\\u0080-\\u00FF]+$/u;\n",
        'token = "([rR]|[uUbB][rR]|[rR][uUbB])a-zA-Z"',
        'token = "%Y-%m-%dT%H:%M:%S%z"',
        'password = "${Db1_Pw}:#{x.Y}"',
        "password = $Db1_Pw[0]",
        'export DB_PASSWORD="${DB_PASSWORD:?missing}"',
        "echo ${DB_PASSWORD:?not set} ${TOKEN:?is-empty} ${SECRET:=$OTHER_1}",
        "password=${1:?usage: $0 password}",
        "  --ftp-password=MẬT-KHẨU     dùng mật khẩu",
    ],
)
def test_code_and_templates_with_symbols_are_no_passwords(text):
    assert hits(text) == []


def test_a_bracket_that_was_opened_before_the_name_ends_the_value():
    assert values("f(a, password=Wint3r!Oslo22)\n") == ["Wint3r!Oslo22"]
    assert values("- {name: crm, password: k8#Lm2Zx9v}\n") == ["k8#Lm2Zx9v"]


def test_a_value_of_any_length_takes_little_time():
    assert hits("password=" + "aB3$(" * 100_000, Confidence.LOW) == []
    assert hits("x-y password=" + "(aB3$" * 100_000 + "\n-password=a-b{c", Confidence.LOW) == []


@pytest.mark.parametrize("text", ["aB3$", "ALLUPPER$1#2", "alllower$1#2", "Hello-World-12", "aB3$k9#Zé"])
def test_short_values_one_case_and_words_do_not_look_generated(text):
    assert not looks_generated_with_symbols(text)


@pytest.mark.parametrize(
    "text",
    [
        'password = env.PASSWORD || "not-set"',
        "secret: project-one-12345.graph.app\n",
        "S --ask-password nebylo nic",
        "\\-\\-set\\-credential=firstboot\\&.locale:de_DE\\&.UTF\\-8 ",
    ],
)
def test_negations_hosts_and_prose_are_no_passwords(text):
    assert hits(text) == []
