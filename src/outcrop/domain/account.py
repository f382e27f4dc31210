"""Accounts, their plans, members and API keys."""

import binascii
import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from outcrop.domain.errors import BadInputError

SLUG = re.compile(r"[a-z0-9-]{2,40}")
EMAIL = re.compile(r"[^@\s\x00-\x1f]+@[^@\s\x00-\x1f]+")
EMAIL_LENGTH = 254
PASSWORD_LENGTHS = range(12, 1025)


class Plan(StrEnum):
    STARTER = "starter"
    GROWTH = "growth"
    ENTERPRISE = "enterprise"


# Requests a minute for each key. A plan that is not here has no API access.
REQUESTS_PER_MINUTE = {Plan.GROWTH: 300, Plan.ENTERPRISE: 1200}
API_MINIMUM = Plan.GROWTH
WEBHOOK_PLANS = frozenset(REQUESTS_PER_MINUTE)  # the webhook needs the same tier


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
    MEMBERS = "members"  # invite members and remove those below oneself
    OWNERS = "owners"  # appoint and remove owners
    PLAN = "plan"  # see and change the plan


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
    """Tell whether one may give and take a role: owners every one, others with `members` only those below their own."""
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
    """Who calls the API: a key of an account, and the person its actions are recorded under."""

    account_id: int
    key_id: UUID
    email: str


def checked_email(text: str) -> str:
    if EMAIL.fullmatch(text) is None or len(text) > EMAIL_LENGTH:
        raise BadInputError(f"{text[:EMAIL_LENGTH]!r} is no e-mail address")
    return text


def checked_password(text: str) -> str:
    if len(text) not in PASSWORD_LENGTHS or "\0" in text:
        raise BadInputError(
            f"a password has {PASSWORD_LENGTHS.start} to {PASSWORD_LENGTHS.stop - 1} characters"
        )
    return text


_PREFIX = "outcrop_"
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TOKEN = re.compile(r"outcrop_[0-9A-Za-z]{49}")


def new_token(random: bytes) -> str:
    """Write 256 random bits as an API key; the last six characters are a checksum, so that scanners know one offline."""
    body = _PREFIX + _base62(int.from_bytes(random, "big"), 43)
    return body + _checksum(body)


def token_digest(token: str) -> bytes | None:
    """Give what is stored of a key (256 random bits need no salt), or None where the text cannot be a key."""
    if _TOKEN.fullmatch(token) is None or _checksum(token[:-6]) != token[-6:]:
        return None
    return hashlib.sha256(token.encode()).digest()


def token_hint(token: str) -> str:
    """Show enough of a key for its owner to know it by."""
    return token[: len(_PREFIX) + 4]


def _checksum(body: str) -> str:
    return _base62(binascii.crc32(body.encode()), 6)


def _base62(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, rest = divmod(number, 62)
        digits.append(_BASE62[rest])
    return "".join(reversed(digits))
