"""Events that wait to be sent, written in the transaction of the change they tell of."""

from datetime import datetime
from uuid import UUID

from psycopg.types.json import Jsonb

from outcrop.domain.events import Event
from outcrop.store.db import Connection


async def append(db: Connection, account_id: int, event: Event, *, event_id: UUID, now: datetime) -> None:
    await db.execute(
        "INSERT INTO outbox (id, account_id, event, finding_id, finding, created_at) VALUES (%s, %s, %s, %s, %s, %s)",
        [event_id, account_id, event.type, event.finding_id, Jsonb(event.finding), now],
    )
