"""A link that works once: an invitation to an account, or a new password for who has forgotten theirs."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from outcrop.domain.account import Role


class LinkKind(StrEnum):
    INVITE = "invite"
    RESET = "reset"


LIFETIME = {LinkKind.INVITE: timedelta(days=7), LinkKind.RESET: timedelta(hours=24)}


@dataclass(frozen=True, slots=True)
class Link:
    id: UUID
    kind: LinkKind
    account: str
    email: str
    role: Role
    created_by: str
    created_at: datetime
    expires_at: datetime
