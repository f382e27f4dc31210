"""Passwords that are guessed first are refused."""

import re
from importlib.resources import files

import pytest

from outcrop.domain.account import checked_password
from outcrop.domain.errors import BadInputError

COMMON = [
    line
    for line in files("outcrop.domain").joinpath("common_passwords.txt").read_text("utf-8").splitlines()
    if not line.startswith("# ")
]


def test_the_list_has_common_passwords_of_the_allowed_length_only() -> None:
    assert len(COMMON) == len(set(COMMON)) == 229
    assert {"qwerty123456", "leavemealone", "123456789qwe"} <= set(COMMON)
    assert all(re.fullmatch(r"\S{12,}", password) for password in COMMON)


@pytest.mark.parametrize(
    "password",
    [
        *COMMON,
        "aaaaaaaaaaaa",
        "AAAAaaaaAAAAaaaa",
        "abababababab",
        "abcdabcdabcd",
        "passwordpassword",
        "Passw0rd!Passw0rd!Pas",
        "123456789012",
        "987654321098",
        "abcdefghijkl",
        "ZYXWVUTSRQPONM",
        "qwertyuiop[]",
        "1qaz2wsx3edc4rfv",
        "QWERTY123456",
        "112211221122",
        " " * 12,
    ],
)
def test_a_password_that_is_guessed_first_is_refused(password: str) -> None:
    with pytest.raises(BadInputError, match="easy to guess"):
        checked_password(password)


@pytest.mark.parametrize("password", ["password", "123456", "iloveyou", "x" * 1025, "with a \0 in it"])
def test_a_password_of_the_wrong_length_is_refused(password: str) -> None:
    with pytest.raises(BadInputError, match="12 to 1024 characters"):
        checked_password(password)


@pytest.mark.parametrize(
    "password",
    [
        "correct horse battery staple",
        "correct horse correct horse",
        "Juni-9-Bergen!",
        "ein langer satz",
        "4f9c1e77a0b2",
    ],
)
def test_any_other_password_is_accepted(password: str) -> None:
    assert checked_password(password) == password
