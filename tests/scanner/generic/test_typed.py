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
