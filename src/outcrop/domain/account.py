"""Accounts and their plans, members, API keys, portal sessions and one-time links."""

import binascii
import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from importlib.resources import files
from uuid import UUID

from outcrop.domain.errors import BadInputError
from outcrop.lazy_regex import regex
from outcrop.limits import EMAIL_LENGTH

SLUG = regex(r"[a-z0-9-]{2,40}")
EMAIL = regex(r"[^@\s\x00-\x1f]+@[^@\s\x00-\x1f]+")
PASSWORD_LENGTHS = range(12, 1025)
_MIN_DISTINCT_CHARACTERS = 5  # of a password
# Lower-case runs, forwards and backwards: the alphabet, digits, and the rows and columns of a keyboard.
_SEQUENCES = [
    direction * 3
    for run in (
        "abcdefghijklmnopqrstuvwxyz",
        "0123456789",
        "1234567890",
        "qwertyuiopasdfghjklzxcvbnm",
        "qwertyuiop[]asdfghjkl;'zxcvbnm,./",
        "1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik,9ol.0p;/",
    )
    for direction in (run, run[::-1])
]


class Plan(StrEnum):
    STARTER = "starter"
    GROWTH = "growth"
    ENTERPRISE = "enterprise"


# Requests per minute and key. A plan that is not in this table has no API access.
REQUESTS_PER_MINUTE = {Plan.GROWTH: 300, Plan.ENTERPRISE: 1200}
API_MINIMUM = Plan.GROWTH
WEBHOOK_PLANS = frozenset(REQUESTS_PER_MINUTE)  # the webhook needs a plan with API access


class Role(StrEnum):
    OWNER = "owner"
    ADMIN = "admin"
    MEMBER = "member"


class Permission(StrEnum):
    READ = "read"  # findings, scan runs, targets
    TRIAGE = "triage"  # resolve, restrict, suppress, false positive, reopen
    SCAN = "scan"  # run a target now
    TARGETS = "targets"  # add, change and remove targets
    KEYS = "keys"  # create and revoke API keys
    WEBHOOK = "webhook"  # save, remove and test the webhook
    AUDIT = "audit"  # read the audit trail
    MEMBERS = "members"  # invite members, and remove members with a lower role
    OWNERS = "owners"  # appoint and remove owners
    PLAN = "plan"  # nothing yet: only the operator changes the plan


_MEMBER = frozenset({Permission.READ, Permission.TRIAGE, Permission.SCAN})
_ADMIN = _MEMBER | {
    Permission.TARGETS,
    Permission.KEYS,
    Permission.WEBHOOK,
    Permission.AUDIT,
    Permission.MEMBERS,
}
PERMISSIONS: dict[Role, frozenset[Permission]] = {
    Role.MEMBER: _MEMBER,
    Role.ADMIN: _ADMIN,
    Role.OWNER: _ADMIN | {Permission.OWNERS, Permission.PLAN},
}


def manages(role: Role, other: Role) -> bool:
    """Whether a member with `role` may grant or revoke the role `other`.

    Owners may do so for every role. Others need the permission `members`, and `other` must be a lower role.
    """
    if Permission.OWNERS in PERMISSIONS[role]:
        return True
    return Permission.MEMBERS in PERMISSIONS[role] and PERMISSIONS[other] < PERMISSIONS[role]


@dataclass(frozen=True, slots=True)
class Account:
    id: int
    slug: str
    plan: Plan
    email: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Member:
    id: UUID
    account: str
    email: str
    role: Role
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ApiKey:
    id: UUID
    name: str
    hint: str
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of an API request: an account's key, and the e-mail address for the audit trail."""

    account_id: int
    key_id: UUID
    email: str


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One session of a member, as the portal lists it."""

    id: UUID
    created_at: datetime
    last_used_at: datetime
    address: str
    agent: str


@dataclass(frozen=True, slots=True)
class SignedInMember:
    """The member and account that a session belongs to."""

    session_id: UUID  # identifies the session in lists; it does not authenticate
    member: Member
    account: Account
    lacks_second_factor: bool = False  # the account requires one, and the member has none


class LinkKind(StrEnum):
    INVITE = "invite"
    RESET = "reset"


LINK_LIFETIME = {LinkKind.INVITE: timedelta(days=7), LinkKind.RESET: timedelta(hours=24)}


@dataclass(frozen=True, slots=True)
class OneTimeLink:
    """A link that works once: an invitation to an account, or a reset of a password."""

    id: UUID
    kind: LinkKind
    account: str
    email: str
    role: Role
    created_by: str
    created_at: datetime
    expires_at: datetime


def checked_email(text: str) -> str:
    """Return the e-mail address, or raise BadInputError if it is not one."""
    if len(text) > EMAIL_LENGTH or EMAIL.fullmatch(text) is None:
        raise BadInputError(f"{text[:EMAIL_LENGTH]!r} is not an e-mail address")
    return text


def checked_password(text: str) -> str:
    """Return the password; raise BadInputError if it is of a wrong length, guessed first or contains NUL."""
    if len(text) not in PASSWORD_LENGTHS or "\0" in text:
        raise BadInputError(
            f"a password must have {PASSWORD_LENGTHS.start} to {PASSWORD_LENGTHS.stop - 1} characters"
        )
    if _is_guessable(text):
        raise BadInputError(
            "this password is easy to guess: it is a common one, or repeats or continues a pattern"
        )
    return text


def _is_guessable(password: str) -> bool:
    """Whether a password is common, part of a sequence, or made of few characters or a repeated short text.

    Upper and lower case count as equal. The common passwords that are too short are not in the list.
    """
    text = password.casefold()
    return (
        len(set(text)) < _MIN_DISTINCT_CHARACTERS
        or text in _common_passwords()
        or any(text in sequence for sequence in _SEQUENCES)
        or _shortest_period(text) < PASSWORD_LENGTHS.start
    )


@cache
def _common_passwords() -> frozenset[str]:
    """Return the common passwords of an allowed length, in lower case."""
    lines = files("outcrop.domain").joinpath("common_passwords.txt").read_text("utf-8").splitlines()
    return frozenset(line.casefold() for line in lines if not line.startswith("# "))


def _shortest_period(text: str) -> int:
    """Return the length of the shortest text whose repetition, the last one perhaps cut off, is `text`.

    A text that repeats nothing is its own period. A period over half the length is no repetition.
    """
    for period in range(1, len(text) // 2 + 1):
        if text.startswith(text[period:]):
            return period
    return len(text)


_PREFIX = "outcrop_"
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TOKEN = regex(r"outcrop_[0-9A-Za-z]{49}")


def new_token(random: bytes) -> str:
    """Return 256 random bits formatted as an API key.

    The last six characters are a checksum, so that a scanner can recognise a key without asking the service.
    """
    body = _PREFIX + _base62(int.from_bytes(random, "big"), 43)
    return body + _checksum(body)


def token_digest(token: str) -> bytes | None:
    """Return the SHA-256 under which a key is stored, or None if the text is not a well-formed key.

    The digest has no salt: a key has 256 random bits.
    """
    if _TOKEN.fullmatch(token) is None or _checksum(token[:-6]) != token[-6:]:
        return None
    return hashlib.sha256(token.encode()).digest()


def token_hint(token: str) -> str:
    """Return the first characters of a key, by which its owner recognises it in a list."""
    return token[: len(_PREFIX) + 4]


def _checksum(body: str) -> str:
    """Return the CRC-32 of a key without its checksum, as six base62 digits."""
    return _base62(binascii.crc32(body.encode()), 6)


def _base62(number: int, width: int) -> str:
    """Return the number in base62, padded with zeros to `width` digits."""
    digits = []
    for _ in range(width):
        number, rest = divmod(number, 62)
        digits.append(_BASE62[rest])
    return "".join(reversed(digits))
