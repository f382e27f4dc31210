"""Find the source that the account has for the repository of each record of a report."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from outcrop.domain.place import identity
from outcrop.services.exchange.import_records import ImportRecord, report_id
from outcrop.store.db import Connection
from outcrop.store.findings import table
from outcrop.store.runs import source_names


async def place_records(
    db: Connection, account_id: int, batch: Sequence[ImportRecord]
) -> Sequence[ImportRecord]:
    """Return the records with the name and the identity of their sources; unknown sources are added.

    The sources are locked, so that none is merged into another one before the transaction ends. A record
    without a credential gets the id of the finding that an earlier report added under another address.
    """
    addresses = {entry.address for entry in batch if entry.address is not None}
    if not addresses:
        return batch
    known = await source_names.resolve_aliases(db, account_id, addresses, lock=True)
    if unknown := addresses - known.keys():
        await source_names.add_sources(db, account_id, unknown)
        await source_names.add_aliases(db, account_id, [(address, address) for address in sorted(unknown)])
        known |= await source_names.resolve_aliases(db, account_id, unknown, lock=True)
    renamed = {name for address, name in known.items() if name != address}
    aliases = await source_names.select_all_aliases(db, account_id, renamed) if renamed else {}
    earlier = await _select_earlier(db, account_id, batch, known, aliases)
    return [_place(entry, known, earlier) for entry in batch]


def _place(entry: ImportRecord, known: dict[str, str], earlier: dict[UUID, UUID]) -> ImportRecord:
    """Return a record with the name of its source, or with the id of the finding of an earlier report."""
    record = entry.record
    if entry.address is None:
        return entry
    if record.fingerprint is None:
        id_ = earlier.get(record.finding.id, record.finding.id)
        return replace(entry, record=replace(record, finding=replace(record.finding, id=id_)))
    name = known[entry.address]
    place = identity(name, entry.path, record.fingerprint)
    return replace(entry, record=replace(record, source=name, identity=place))


async def _select_earlier(
    db: Connection,
    account_id: int,
    batch: Sequence[ImportRecord],
    known: dict[str, str],
    aliases: dict[str, list[str]],
) -> dict[UUID, UUID]:
    """Return the ids of stored findings by those of the batch's records without a credential."""
    candidates: dict[UUID, UUID] = {}  # other id -> id of the record
    for entry in batch:
        if entry.address is None or entry.record.fingerprint is not None or entry.restores:
            continue
        for alias in aliases.get(known[entry.address], ()):
            if alias != entry.address:
                other = report_id(account_id, alias, entry.path, entry.report_key)
                candidates[other] = entry.record.finding.id
    if not candidates:
        return {}
    stored = await table.select_existing(db, account_id, list(candidates))
    return {candidates[id_]: id_ for id_ in stored}
