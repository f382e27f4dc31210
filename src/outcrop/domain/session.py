"""Who is signed in to the portal, and where."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from outcrop.domain.account import Account, Member


@dataclass(frozen=True, slots=True)
class SessionLine:
    """One place that a member is signed in at."""

    id: UUID
    created_at: datetime
    last_used_at: datetime
    address: str
    agent: str


@dataclass(frozen=True, slots=True)
class Signed:
    """Who is here."""

    session_id: UUID  # names the session in lists; it opens nothing
    member: Member
    account: Account
