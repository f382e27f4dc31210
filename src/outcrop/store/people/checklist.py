"""Read which of its first steps an account has done, and save that nobody wants to see them any more."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from outcrop.store.db import Connection, fetch_single_row


@dataclass(frozen=True, slots=True)
class Checklist:
    """The first steps of an account, and whether each is done."""

    is_dismissed: bool
    target: bool  # there is a target
    webhook: bool
    team: bool  # somebody else is a member, or invited
    second_factor: bool  # of the member who looks


async def select(db: Connection, account_id: int, member_id: UUID, *, now: datetime) -> Checklist:
    """Return the first steps of an account, as one of its members sees them."""
    row = await fetch_single_row(
        db,
        """SELECT checklist_dismissed_at IS NOT NULL,
                  EXISTS (SELECT FROM targets WHERE account_id = a.id),
                  EXISTS (SELECT FROM webhooks WHERE account_id = a.id),
                  EXISTS (SELECT FROM members WHERE account_id = a.id AND id <> %s)
                  OR EXISTS (SELECT FROM links WHERE account_id = a.id AND kind = 'invite'
                               AND expires_at > %s),
                  EXISTS (SELECT FROM second_factors WHERE account_id = a.id AND member_id = %s
                            AND confirmed_at IS NOT NULL)
           FROM accounts a WHERE a.id = %s""",
        [member_id, now, member_id, account_id],
    )
    return Checklist(*row)


async def dismiss(db: Connection, account_id: int, *, now: datetime) -> None:
    """Save that the account's first steps are no longer to be shown."""
    await db.execute(
        "UPDATE accounts SET checklist_dismissed_at = coalesce(checklist_dismissed_at, %s) WHERE id = %s",
        [now, account_id],
    )
