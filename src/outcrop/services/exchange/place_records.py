"""Find the source that the account has for the repository of each record of a report."""

from collections.abc import Sequence
from dataclasses import replace

from outcrop.domain.place import identity
from outcrop.services.exchange.import_records import ImportRecord, report_id
from outcrop.store.db import Connection
from outcrop.store.runs import source_names


async def place_records(
    db: Connection, account_id: int, batch: Sequence[ImportRecord]
) -> Sequence[ImportRecord]:
    """Return the records with the name and the identity of their sources; unknown sources are added.

    The sources are locked, so that none is merged into another one before the transaction ends.
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
    return [_place(account_id, entry, known, aliases) for entry in batch]


def _place(
    account_id: int, entry: ImportRecord, known: dict[str, str], aliases: dict[str, list[str]]
) -> ImportRecord:
    """Return a record with the name of its source, and its report ids under all addresses of the source."""
    record = entry.record
    if entry.address is None:
        return entry
    name = known[entry.address]
    if entry.report_ids:
        others = [alias for alias in aliases.get(name, ()) if alias != entry.address]
        ids = (report_id(account_id, alias, entry.path, entry.report_key) for alias in others)
        entry = replace(entry, report_ids=(*entry.report_ids, *ids))
    if record.fingerprint is None:
        return entry
    place = identity(name, entry.path, record.fingerprint)
    return replace(entry, record=replace(record, source=name, identity=place))
