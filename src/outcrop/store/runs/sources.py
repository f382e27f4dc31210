"""Store checkpoints of sources and cached responses of hosts; read and mark the findings of a source."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from outcrop.domain.finding import Finding
from outcrop.domain.release import Release, format_release
from outcrop.store.db import Connection
from outcrop.store.findings import rows
from outcrop.store.locks import AdvisoryLock


@dataclass(frozen=True, slots=True)
class SourceCheckpoint:
    """The state after the last complete scan of a source."""

    changed: str | None  # the host's change marker: while it is the same, nothing has to be fetched
    rules: str | None  # version of the rules
    tips: tuple[bytes, ...]  # commits from which every scanned object was reachable
    scan_id: UUID | None
    release: Release | None = None  # that scanned it; None if that release did not record its number


async def select_checkpoint(db: Connection, account_id: int, source: str) -> SourceCheckpoint | None:
    """Return the checkpoint of a source; None if no complete scan of it has ended yet."""
    cursor = await db.execute(
        "SELECT changed, rules, tips, scan_id, release FROM sources WHERE account_id = %s AND source = %s",
        [account_id, source],
    )
    if (row := await cursor.fetchone()) is None:
        return None
    changed, rules, tips, scan_id, release = row
    return SourceCheckpoint(
        changed, rules, tuple((tips or b"").split()), scan_id, None if release is None else tuple(release)
    )


async def save_checkpoint(
    db: Connection, account_id: int, source: str, checkpoint: SourceCheckpoint, *, now: datetime
) -> None:
    """Save the checkpoint of a source, in place of the earlier one, in the caller's transaction.

    A trigger writes `release`. It refuses another result than that of a higher release.
    """
    release = "" if checkpoint.release is None else format_release(checkpoint.release)
    await db.execute("SELECT set_config('outcrop.release', %s, true)", [release])
    await db.execute(
        """INSERT INTO sources (account_id, source, changed, rules, tips, scan_id, scanned_at)
           VALUES (%s, %s, %s, %s, %s, %s, %s)
           ON CONFLICT (account_id, source) DO UPDATE
           SET changed = excluded.changed, rules = excluded.rules, tips = excluded.tips,
               scan_id = excluded.scan_id, scanned_at = excluded.scanned_at""",
        [
            *(account_id, source, checkpoint.changed, checkpoint.rules),
            *(b"\n".join(checkpoint.tips), checkpoint.scan_id, now),
        ],
    )


async def clear_change_marker(db: Connection, account_id: int, source: str) -> None:
    """Clear the change marker of a source, so that the next run scans it even if the host reports no change.

    Needed after an incomplete scan: some findings are then marked as seen by another run than the
    checkpoint's.
    """
    await db.execute(
        "UPDATE sources SET changed = NULL WHERE account_id = %s AND source = %s", [account_id, source]
    )


@dataclass(frozen=True, slots=True)
class StoredFinding:
    """A finding of a source, with the columns that show whether its credential is still in the source."""

    finding: Finding
    path: bytes
    box: bytes | None
    fingerprint: bytes
    media_type: str | None
    last_scan_id: UUID | None
    blobs: frozenset[bytes]


async def select_findings(db: Connection, account_id: int, source: str) -> list[StoredFinding]:
    """Return all findings of a source by id, also closed ones."""
    cursor = await db.execute(
        f"""SELECT source_path, secret_box, fingerprint, media_type, last_scan_id,
                   (SELECT coalesce(array_agg(blob), '{{}}') FROM occurrences o
                    WHERE o.account_id = f.account_id AND o.finding_id = f.id),
                   {rows.COLUMNS}
            FROM findings f WHERE {rows.OF_ACCOUNT} AND source = %s ORDER BY id""".encode(),
        [account_id, source],
    )
    return [
        StoredFinding(
            rows.build_finding(row[6:]),
            row[0] or b"",
            row[1],
            row[2],
            row[3],
            row[4],
            frozenset(row[5]),
        )
        for row in await cursor.fetchall()
    ]


async def set_occurrences(
    db: Connection, account_id: int, blobs: Sequence[tuple[UUID, frozenset[bytes]]], *, replace: bool
) -> None:
    """Save the (finding id, blobs that contain its credential) pairs.

    With `replace`, as after a complete scan, they replace the stored blobs; otherwise they are added.
    """
    if replace:
        ids = [finding_id for finding_id, _ in blobs]
        await db.execute(
            f"DELETE FROM occurrences WHERE {rows.OF_ACCOUNT} AND {rows.one_of('finding_id')}".encode(),
            [account_id, ids],
        )
    pairs = [(finding_id, blob) for finding_id, group in blobs for blob in sorted(group)]
    # The check of the foreign key would look the account up in the statistics, as `rows.OF_ACCOUNT` explains.
    await db.execute("SET LOCAL plan_cache_mode = force_generic_plan")
    await db.execute(
        """INSERT INTO occurrences (account_id, finding_id, blob)
           SELECT %s, * FROM unnest(%s::uuid[], %s::bytea[]) ON CONFLICT DO NOTHING""",
        [account_id, [finding_id for finding_id, _ in pairs], [blob for _, blob in pairs]],
    )
    await db.execute("SET LOCAL plan_cache_mode = auto")


async def mark_unchanged_seen(
    db: Connection, account_id: int, source: str, *, last: UUID, scan_id: UUID, now: datetime
) -> int:
    """Mark findings that the run `last` saw in an unchanged source as seen by this run; return the number."""
    return await _mark_seen_where(
        db, account_id, "source = %s AND last_scan_id = %s", [source, last], scan_id=scan_id, now=now
    )


async def select_auto_resolved(db: Connection, account_id: int, source: str, *, last: UUID) -> list[UUID]:
    """Return the ids of the automatically resolved findings of a source that the run `last` saw."""
    cursor = await db.execute(
        f"""SELECT id FROM findings WHERE {rows.OF_ACCOUNT} AND source = %s AND last_scan_id = %s
              AND status = 'resolved' AND auto_resolved ORDER BY id""".encode(),
        [account_id, source, last],
    )
    return [finding_id for (finding_id,) in await cursor.fetchall()]


async def mark_seen(
    db: Connection, account_id: int, finding_ids: Sequence[UUID], *, scan_id: UUID, now: datetime
) -> int:
    """Mark findings as seen by this run; return how many it had not seen before."""
    where, values = f"{rows.one_of('id')} AND last_scan_id IS DISTINCT FROM %s", [list(finding_ids), scan_id]
    return await _mark_seen_where(db, account_id, where, values, scan_id=scan_id, now=now)


async def _mark_seen_where(
    db: Connection, account_id: int, where: str, values: list[object], *, scan_id: UUID, now: datetime
) -> int:
    """Mark the findings that meet the condition as seen by this run; return their number.

    Stale findings become active again, with an audit line.
    """
    cursor = await db.execute(
        f"""WITH seen AS (SELECT id, status FROM findings WHERE {rows.OF_ACCOUNT} AND {where}
                          ORDER BY id FOR NO KEY UPDATE),
                 reactivated AS (INSERT INTO audit (account_id, at, actor, action, target, outcome, detail)
                                 SELECT %s, %s, 'scan', 'finding.seen', id::text, 'ok',
                                        jsonb_build_object('scan', %s::text, 'from', 'stale', 'to', 'active')
                                 FROM seen WHERE status = 'stale')
            UPDATE findings f SET last_seen_at = greatest(last_seen_at, %s), sighted_at = clock_timestamp(),
                                  seen_count = seen_count + 1, last_scan_id = %s,
                                  status = CASE f.status WHEN 'stale' THEN 'active' ELSE f.status END
            WHERE {rows.OF_ACCOUNT} AND id = ANY(ARRAY(SELECT id FROM seen))""".encode(),
        [account_id, *values, account_id, now, str(scan_id), now, scan_id, account_id],
    )
    return cursor.rowcount


async def count_places(db: Connection, account_id: int, fingerprints: Sequence[bytes]) -> dict[bytes, int]:
    """Return the number of findings of each credential, by fingerprint."""
    cursor = await db.execute(
        f"""SELECT fingerprint, count(*) FROM findings
            WHERE {rows.OF_ACCOUNT} AND {rows.one_of("fingerprint", "bytea")} GROUP BY 1""".encode(),
        [account_id, list(fingerprints)],
    )
    return dict(await cursor.fetchall())


@dataclass(frozen=True, slots=True)
class LockedFinding:
    """A stored finding whose row is locked, and the last run that saw it."""

    finding: Finding
    last_scan_id: UUID | None


async def lock_recording(db: Connection, account_id: int) -> None:
    """Wait until no other transaction writes many findings of the account, and lock others out until the end.

    Two such transactions could otherwise wait for each other's rows.
    """
    await db.execute("SELECT pg_advisory_xact_lock(%s, %s)", [AdvisoryLock.RECORDING, account_id])


async def lock_findings(
    db: Connection, account_id: int, identities: Sequence[bytes]
) -> dict[bytes, LockedFinding]:
    """Lock and return the findings with these identities, by identity.

    `lock_recording` is taken first, so that no other transaction adds one of them meanwhile.
    """
    await lock_recording(db, account_id)
    cursor = await db.execute(
        f"""SELECT identity, last_scan_id, {rows.COLUMNS} FROM findings
            WHERE {rows.OF_ACCOUNT} AND {rows.one_of("identity", "bytea")}
            ORDER BY id FOR NO KEY UPDATE""".encode(),
        [account_id, list(identities)],
    )
    return {row[0]: LockedFinding(rows.build_finding(row[2:]), row[1]) for row in await cursor.fetchall()}


async def select_etag(db: Connection, account_id: int, key: str) -> tuple[str, bytes] | None:
    """Return the ETag and body of the response that is cached under this key."""
    cursor = await db.execute(
        "SELECT etag, body FROM etags WHERE account_id = %s AND key = %s", [account_id, key]
    )
    return await cursor.fetchone()


async def save_etag(db: Connection, account_id: int, key: str, etag: str, body: bytes) -> None:
    """Cache the ETag and body of a response under this key, in place of an earlier one."""
    await db.execute(
        """INSERT INTO etags (account_id, key, etag, body) VALUES (%s, %s, %s, %s)
           ON CONFLICT (account_id, key) DO UPDATE SET etag = excluded.etag, body = excluded.body""",
        [account_id, key, etag, body],
    )


async def mark_stale(db: Connection, *, before: datetime) -> list[tuple[int, UUID]]:
    """Set active findings that were last seen before a time to `stale`, at most 5000 of each account.

    Return (account id, finding id) of each. Locked findings are skipped.
    """
    cursor = await db.execute(
        """UPDATE findings f SET status = 'stale' FROM accounts a, LATERAL (
               SELECT id FROM findings WHERE account_id = a.id AND last_seen_at < %s AND status = 'active'
               LIMIT 5000 FOR NO KEY UPDATE SKIP LOCKED) old
           WHERE f.account_id = a.id AND f.id = old.id RETURNING f.account_id, f.id""",
        [before],
    )
    return await cursor.fetchall()
