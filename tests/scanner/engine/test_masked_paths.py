"""Which values are masked in paths and URLs: a file must be found, and a credential must not be read."""

import random

import pytest

from outcrop.domain.finding import Confidence
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.masking import hides_in_paths, is_masked_in_paths
from tests.support.rulesets import drawn, github_token, ruleset

BASE62 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


@pytest.mark.parametrize(
    "value",
    [
        "production",
        "my-app-production-12",
        "2024-01-02-backup-1",
        "internal_credentials_v2",
        "customer-portal-staging-eu-west-1",
        "com.acme.service.password",
        "Kaffee9Tasse2",
        "20240102030405060",
    ],
)
def test_a_word_of_the_path_that_a_generic_rule_found_stays_readable(value: str) -> None:
    assert not hides_in_paths(value, is_named=False, is_password=True)


@pytest.mark.parametrize("alphabet", [BASE62, BASE62.lower(), "0123456789abcdef"])
@pytest.mark.parametrize("length", [16, 24, 40])
def test_a_random_value_of_a_generic_rule_is_masked(alphabet: str, length: int) -> None:
    values = [drawn(alphabet, length, f"path {number}") for number in range(300)]
    masked = [hides_in_paths(value, is_named=False, is_password=True) for value in values]
    assert sum(masked) >= 297


@pytest.mark.parametrize(
    ("value", "is_password", "masked"),
    [("production", True, False), ("production", False, True), ("S3cr3t!pw9", True, True)],
)
def test_a_value_of_a_named_rule_is_masked_unless_it_is_a_password_made_of_words(
    value: str, is_password: bool, masked: bool
) -> None:
    assert hides_in_paths(value, is_named=True, is_password=is_password) is masked


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"token = '{github_token('path')}'", True),
        ("postgres://crm:production@pg.corp/crm", False),
        ("postgres://crm:Kaffee4um9@pg.corp/crm", True),
        ("password = 'Juni-9-Bergen!'", False),
    ],
)
def test_the_rule_of_a_hit_decides(text: str, masked: bool) -> None:
    (hit,) = find(ruleset(), text.encode(), Confidence.LOW)
    assert is_masked_in_paths(hit) is masked


def test_a_value_that_ordinary_paths_contain_is_never_masked_for_a_generic_rule() -> None:
    words = ["production", "staging", "backup", "config", "service", "internal", "example", "network"]
    draw = random.Random(7)
    for _ in range(300):
        value = draw.choice("-_/.").join(draw.sample(words, 3))
        assert not hides_in_paths(value, is_named=False, is_password=True)
