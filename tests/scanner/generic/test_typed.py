"""Values that a person typed, and values of more than 400 characters."""

import pytest

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from tests.support.rulesets import BASE62, drawn, hits, values

LOW, MEDIUM = Confidence.LOW, Confidence.MEDIUM
TYPED = ("OsloWinter42!", "winter-oslo-42", "Season2024!", "winter42")
PASSWORDS = (*TYPED, "Winter", "OsloWinter", "AdminPassword9", "MySecretWinter", "Aa12345678")


def confidence_of(text: str, value: str) -> Confidence | None:
    return next((hit.confidence for hit in hits(text, LOW) if reveal(hit.secret) == value), None)


@pytest.mark.parametrize("value", PASSWORDS)
def test_a_typed_password_is_reported(value):
    for text in (f'password = "{value}"', f'admin.password = "{value}";', f'{{"dbPassword": "{value}"}}'):
        assert confidence_of(text, value) is not None, text
    # These are an obvious sequence, and words that people write instead of a password.
    expected = LOW if value in {"Aa12345678", "AdminPassword9"} else MEDIUM
    for text in (f"DB_PASSWORD={value}\n", f"export DB_PASSWORD={value}\n", f"spring.db.password={value}\n"):
        found = confidence_of(text, value)
        assert found is not None, text
        assert found.at_least(expected), text


@pytest.mark.parametrize("value", TYPED)
def test_a_typed_secret_is_reported(value):
    for name in ("secret", "cookieSecret", "JWT_SECRET", "secret_key"):
        assert confidence_of(f'{name} = "{value}"', value) is not None, name
    for text in (f"JWT_SECRET={value}\n", f"COOKIE_SECRET: {value}\n", f"- API_SECRET={value}\n"):
        found = confidence_of(text, value)
        assert found is not None, text
        assert found.at_least(MEDIUM), text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("CRM_API_KEY=12345678901234567890123456789012\n", "12345678901234567890123456789012"),
        ('crm_key = "abcdef1234567890abcdef1234567890abcd"', "abcdef1234567890abcdef1234567890abcd"),
        ("CRM_API_TOKEN: 1234567890123456\n", "1234567890123456"),
        ("browshot key abcdefghijklmnopqrstuvwxyzab\n", "abcdefghijklmnopqrstuvwxyzab"),
        ("weatherbitSECRET 0123456789abcdef0123456789abcdef\n", "0123456789abcdef0123456789abcdef"),
        ('The password is "Secret123".', "Secret123"),
    ],
)
def test_a_value_that_counts_or_was_typed_is_of_low_confidence(text, value):
    assert confidence_of(text, value) is LOW
    assert values(text) == []


def test_access_and_private_in_capital_letters_name_the_key_of_an_issuer():
    value = drawn("0123456789abcdef", 32, 1)
    for text in (f"weatherbitACCESS {value}\n", f"WEATHERBIT_PRIVATE={value}\n"):
        assert [hit.rule.id for hit in hits(text)] == ["weatherbit_api_key"], text
    assert all(hit.rule.id != "weatherbit_api_key" for hit in hits(f"weatherbit gives access to {value}\n"))


def test_words_that_name_something_are_not_typed_secrets():
    for text in (
        'token = "identifier"',
        "pullSecret: crm-credentials\n",
        'secret = "response.token"',
        'DB_PASSWORD_FIELD = "dbPassword9"',
        'key = "winter"',
        'API_SECRET = "API_SECRET_NAME"',
        'password = "Enter your password, please"',
    ):
        assert values(text) == [], text


def test_a_value_of_over_400_characters_is_reported_completely():
    value = drawn(BASE62, 1_500, 1)
    for text in (f'"access_token": "{value}"', f"API_TOKEN={value}\n", f"refresh_token: '{value}'\n"):
        assert values(text) == [value], text
    for text in (
        f'"photo": "{value}"',
        f'token_url = "https://corp.net/{value}"',
        f'"access_token": "{value} is cut',
        f"token = {drawn(BASE62, 9_000, 2)}",
    ):
        assert values(text) == [], text[:60]


def test_a_token_behind_a_template_address_is_reported():
    token = drawn(BASE62, 32, 3)
    assert values(f"{{{{base_url}}}}/v1/items?token={token}&page=2") == [token]
    assert values("{{base_url}}/v1/items?token={{ token }}&page=2") == []
