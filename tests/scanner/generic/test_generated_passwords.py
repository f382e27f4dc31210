"""Passwords that a program drew from all that a keyboard has: they have the marks of code, of templates and of calls."""

import random
import string

import pytest

from outcrop.domain.finding import Confidence
from outcrop.scanner.generic.score import looks_generated_with_symbols
from tests.support.rulesets import hits, values

SIGNS = "!#$%&()*+,-./:;<=>?@[]^_{|}~"  # all but quotes and backslash
OF_A_SHELL = "!@#$%^&*()_+-="


def passwords(signs: str, length: int, count: int = 200) -> list[str]:
    chance = random.Random(f"{signs} {length}")
    return [
        "".join(chance.choice(string.ascii_letters + string.digits + signs) for _ in range(length))
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("way", "signs", "least"),
    [
        ('password = "{}"', SIGNS, 0.9),
        ("DB_PASSWORD='{}'", OF_A_SHELL, 0.9),
        ('{{"client_secret": "{}"}}', SIGNS, 0.88),
        ("DB_PASSWORD={}", OF_A_SHELL, 0.75),
        ("  password: {}", SIGNS, 0.55),
    ],
)
@pytest.mark.parametrize("length", [12, 16, 24])
def test_they_are_told_whole(way, signs, least, length):
    drawn = passwords(signs, length)
    found = values("\n".join(way.format(value) for value in drawn) + "\n")
    assert len(set(drawn) & set(found)) >= least * len(drawn)


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
def test_what_is_written_with_such_marks_is_none(text):
    assert hits(text) == []


def test_a_bracket_that_was_opened_before_the_name_is_not_its_own():
    assert values("f(a, password=Wint3r!Oslo22)\n") == ["Wint3r!Oslo22"]
    assert values("- {name: crm, password: k8#Lm2Zx9v}\n") == ["k8#Lm2Zx9v"]


def test_a_value_without_end_takes_no_time():
    assert hits("password=" + "aB3$(" * 100_000, Confidence.LOW) == []
    assert hits("x-y password=" + "(aB3$" * 100_000 + "\n-password=a-b{c", Confidence.LOW) == []


@pytest.mark.parametrize("text", ["aB3$", "ALLUPPER$1#2", "alllower$1#2", "Hello-World-12", "aB3$k9#Zé"])
def test_what_is_too_short_or_of_one_case_or_of_words_is_not_drawn(text):
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
def test_what_says_that_there_is_none_or_where_it_is_is_none(text):
    assert hits(text) == []
