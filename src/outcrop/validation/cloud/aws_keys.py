"""Credentials that are laid out to be found: whoever uses one is noticed. They are told apart without using them."""

import base64
from collections.abc import Iterable

from outcrop.scanner.rules.check_spec import CheckSpec

# AWS accounts of services that give out canary tokens, as their makers' and scanners' public sources name them.
_AWS_ACCOUNTS = frozenset(
    {
        "052310077262", "171436882533", "266735846894", "528757803018", "534261010715", "538784191382", "595918472158", "717712589309",
        "729780141977", "730335385048", "819147034852", "893192397702", "992382622183", "044858866125", "251535659677", "344043088457",
        "351906852752", "390477818340", "426127672474", "427150556519", "439872796651", "445142720921", "465867158099", "637958123769",
        "693412236332", "732624840810", "735421457923", "959235150393", "982842642351",
    }
)  # fmt: skip


def aws_account(key_id: str) -> str | None:
    """Read the account number out of an access key's id; None for one that has none in it."""
    try:
        raw = base64.b32decode(key_id[4:20] + "=" * (-len(key_id[4:20]) % 8))
    except ValueError:
        return None
    if len(raw) < 6 or len(key_id) != 20:
        return None
    number = (int.from_bytes(raw[:6], "big") & 0x7FFFFFFFFF80) >> 7
    return f"{number:012d}"


def is_canary(check: CheckSpec, values: Iterable[str]) -> bool:
    """Tell whether a credential is a known canary."""
    if check.named != "aws":
        return False
    return any(aws_account(text) in _AWS_ACCOUNTS for text in values if text[:4] in {"AKIA", "ASIA"})
