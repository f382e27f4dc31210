"""Keys, plans and roles."""

import re
from pathlib import Path

import pytest

from outcrop.domain.account import PERMISSIONS, Permission, Role, new_token, token_digest, token_hint

DOCS = Path(__file__).parents[2] / "docs"


def test_a_key_has_the_form_that_scanners_know() -> None:
    token = new_token(bytes(range(32)))
    assert re.fullmatch(r"outcrop_[0-9A-Za-z]{43}[0-9A-Za-z]{6}", token)
    assert new_token(bytes(32)) == "outcrop_" + "0" * 43 + token_checksum("outcrop_" + "0" * 43)
    assert new_token(b"\xff" * 32) != new_token(b"\xfe" + b"\xff" * 31)


def token_checksum(body: str) -> str:
    import binascii  # noqa: PLC0415

    number, digits = binascii.crc32(body.encode()), ""
    for _ in range(6):
        number, rest = divmod(number, 62)
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[rest] + digits
    return digits


def test_only_a_well_formed_key_has_a_digest() -> None:
    token = new_token(bytes(range(32)))
    assert token_digest(token) is not None
    wrong = token[:-1] + ("0" if token[-1] != "0" else "1")
    for text in (
        wrong,
        token[:-1],
        token + "0",
        "",
        "outcrop_",
        token.replace("outcrop_", "OUTCROP_"),
        token + "\n",
        "ü" * 57,
    ):
        assert token_digest(text) is None


def test_a_hint_gives_away_little() -> None:
    token = new_token(bytes(range(32)))
    assert token_hint(token) == token[:12]


@pytest.mark.parametrize(("lower", "higher"), [(Role.MEMBER, Role.ADMIN), (Role.ADMIN, Role.OWNER)])
def test_a_higher_role_may_do_all_that_a_lower_one_may(lower: Role, higher: Role) -> None:
    assert PERMISSIONS[lower] < PERMISSIONS[higher]


def test_the_documented_table_of_roles_is_the_real_one() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \|[^|]*\|([^|]*)\|([^|]*)\|([^|]*)\|$", (DOCS / "accounts.md").read_text(), re.MULTILINE
    )
    documented = {
        role: frozenset(Permission(name) for name, *marks in rows if marks[column].strip() == "yes")
        for column, role in enumerate([Role.OWNER, Role.ADMIN, Role.MEMBER])
    }
    assert documented == PERMISSIONS
