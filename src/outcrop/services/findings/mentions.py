"""What mentions a member: for the overview, and for the page of an incident."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from outcrop.domain.incident import Comment
from outcrop.domain.incident.mentions import Mention
from outcrop.store.db import Connection
from outcrop.store.incidents import mentions

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Mentions:
    """The newest mentions of a member, and how many the member has not seen."""

    newest: list[Mention]
    unseen: int


async def list_mentions(db: Connection, account_id: int, member_id: UUID) -> Mentions:
    """Return the mentions of a member, those that the member has not seen first."""
    newest = await mentions.select_newest(db, account_id, member_id, _SHOWN)
    return Mentions(newest, await mentions.count_unseen(db, account_id, member_id) if newest else 0)


async def see_comments(
    db: Connection, account_id: int, member_id: UUID, comments: Sequence[Comment], *, now: datetime
) -> set[UUID]:
    """Save that a member sees these comments; return the ids of those that mention the member."""
    ids = [comment.id for comment in comments]
    return await mentions.mark_seen(db, account_id, member_id, ids, now=now)
