"""A raw credential never shows itself."""

import copy
import pickle
import traceback
from urllib.parse import quote

import pytest

from outcrop.domain.secret import MASK, Secret, is_masked, reveal

VALUE = "made-up " + "Qx7/+" * 6


@pytest.mark.parametrize(
    ("length", "shown"),
    [(1, 0), (7, 0), (8, 1), (15, 1), (16, 2), (24, 3), (31, 3), (32, 4), (40, 4), (1000, 4)],
)
def test_a_mask_shows_an_eighth_at_each_end_and_four_characters_at_most(length: int, shown: int) -> None:
    value = "".join(chr(ord("a") + n % 26) for n in range(length))
    assert Secret(value).masked() == value[:shown] + MASK + (value[-shown:] if shown else "")


def test_a_password_shows_nothing() -> None:
    assert Secret(VALUE, mask_all=True).masked() == MASK


def test_no_way_of_printing_shows_the_value() -> None:
    secret = Secret(VALUE)
    try:
        raise ValueError(secret)  # noqa: TRY301
    except ValueError:
        printed = traceback.format_exc()
    for text in (
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret:>80}",
        repr([secret]),
        repr({"secret": secret}),
        printed,
    ):
        assert VALUE not in text
    assert reveal(secret) == VALUE


@pytest.mark.parametrize("serialise", [pickle.dumps, copy.deepcopy])
def test_a_secret_is_not_serialised(serialise: object) -> None:
    with pytest.raises(TypeError):
        serialise(Secret(VALUE))  # type: ignore[operator]


@pytest.mark.parametrize(
    "written",
    [
        VALUE,
        quote(VALUE),
        quote(VALUE, safe=""),
        VALUE.replace(" ", "+"),
        VALUE.replace("/", "%2f"),
        "".join(f"%{byte:02x}" for byte in VALUE.encode()),
    ],
)
def test_a_credential_is_masked_inside_other_texts_however_it_is_written(written: str) -> None:
    secret = Secret(VALUE)
    assert (
        secret.masked_within(f"https://example.com/?token={written}&x=1")
        == f"https://example.com/?token={secret.masked()}&x=1"
    )


def test_characters_beyond_ascii_are_masked_too() -> None:
    secret = Secret("pässwörd-🔑-x")
    assert "🔑" not in secret.masked_within("a pässwörd-🔑-x b")
    assert "%F0%9F%94%91" not in secret.masked_within("a " + quote("pässwörd-🔑-x") + " b")


def test_short_values_are_left_in_other_texts() -> None:
    assert Secret("example").masked_within("https://example.com") == "https://example.com"


@pytest.mark.parametrize("text", ["********", "AKIA********WXYZ", "ghp_****************abcd", "a****b"])
def test_masked_texts_are_known(text: str) -> None:
    assert is_masked(text)


@pytest.mark.parametrize(
    "text", ["", "plain", "***", "A" * 20 + "****", "****" + "b" * 9, "a**b**c", "abc****def****ghi"]
)
def test_what_shows_too_much_is_not_masked(text: str) -> None:
    assert not is_masked(text)
