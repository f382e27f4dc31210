"""Send the events of findings that an import over the API added, after their credentials were validated."""

from uuid import UUID, uuid4

from outcrop.domain.events import EventType, event_about
from outcrop.services.pipeline.context import ValidationContext
from outcrop.services.pipeline.revalidate import check_unvalidated
from outcrop.store import imports, outbox
from outcrop.store.db import current_time
from outcrop.store.findings import table

_ACTOR = "import"
_BATCH_SIZE = 200  # findings that are validated together


async def announce_imported(context: ValidationContext, account_id: int, import_id: UUID) -> None:
    """Validate the new findings of an import and write their events, batch by batch.

    The note of a finding is deleted in the transaction that writes its event, so that no event is written
    twice, and none is lost with a worker.
    """
    while True:
        async with context.pool.connection() as db:
            batch = await imports.select_news(db, account_id, import_id, limit=_BATCH_SIZE)
        if not batch:
            return
        await check_unvalidated(context, account_id, batch, by=_ACTOR)
        async with context.pool.connection() as db, db.transaction():
            moment = await current_time(db)
            for finding_id in await imports.take_news(db, account_id, batch):
                if (finding := await table.select(db, account_id, finding_id)) is None:
                    continue
                event = event_about(EventType.NEW, finding)
                await outbox.append(db, account_id, event, event_id=uuid4(), now=moment)
