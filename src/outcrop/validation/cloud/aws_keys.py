"""Read AWS access keys from what a scan found, and recognize known canaries among them."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field

from outcrop.lazy_regex import regex
from outcrop.scanner.rules.check_spec import CheckSpec
from outcrop.validation.attempt import Attempt, UncheckableError

_KEY_ID = regex(r"A[A-Z]{3}[A-Z2-7]{16}")
_LONG_TERM, _TEMPORARY = "AKIA", "ASIA"  # prefixes of key ids
# AWS accounts that issue canary keys, which alert their owner when they are used. The numbers are from the
# public sources of those services and of other scanners.
_CANARY_ACCOUNTS = frozenset(
    {
        "052310077262", "171436882533", "266735846894", "528757803018", "534261010715", "538784191382",
        "595918472158", "717712589309", "729780141977", "730335385048", "819147034852", "893192397702",
        "992382622183", "044858866125", "251535659677", "344043088457", "351906852752", "390477818340",
        "426127672474", "427150556519", "439872796651", "445142720921", "465867158099", "637958123769",
        "693412236332", "732624840810", "735421457923", "959235150393", "982842642351",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AwsAccessKey:
    """An access key; a temporary one has a session token too."""

    key_id: str
    secret: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def read_access_key(attempt: Attempt) -> AwsAccessKey:
    """Return the AWS access key of an attempt; raise UncheckableError if a part of it was not found.

    The attempt's secret is the secret access key, or for a temporary key the session token.
    """
    key_id = attempt.companion("access_key_id") or ""
    if _KEY_ID.fullmatch(attempt.secret):  # only the key id was found
        raise UncheckableError("its secret access key was not found with it")
    if not _KEY_ID.fullmatch(key_id):
        raise UncheckableError("its access key id was not found with it")
    if not key_id.startswith(_TEMPORARY):
        return AwsAccessKey(key_id, attempt.secret)
    secret_access_key = attempt.companion("secret_access_key")
    if secret_access_key is None:
        raise UncheckableError("its secret access key was not found with it")
    return AwsAccessKey(key_id, secret_access_key, session_token=attempt.secret)


def is_canary(check: CheckSpec, values: Iterable[str]) -> bool:
    """Whether one of the values is the id of an AWS key from an account that issues canary keys.

    False if `check` is not the AWS check.
    """
    if check.named != "aws":
        return False
    key_ids = (text for text in values if text[:4] in {_LONG_TERM, _TEMPORARY})
    return any(_account_of(key_id) in _CANARY_ACCOUNTS for key_id in key_ids)


def _account_of(key_id: str) -> str | None:
    """Return the 12-digit account number that is encoded in an AWS key id; None if it cannot be decoded."""
    encoded = key_id[4:20]
    try:
        raw = base64.b32decode(encoded + "=" * (-len(encoded) % 8))
    except ValueError:
        return None
    if len(raw) < 6 or len(key_id) != 20:
        return None
    number = (int.from_bytes(raw[:6], "big") & 0x7FFFFFFFFF80) >> 7
    return f"{number:012d}"
