"""How far the sources of an account have been read, and which findings stand in each."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from outcrop.domain.finding import Finding
from outcrop.store.db import Connection
from outcrop.store.findings import rows

_LOCK_RECORDING = 7_264_004


@dataclass(frozen=True, slots=True)
class SourceCheckpoint:
    """What the last whole look at a source has left."""

    changed: str | None
    rules: str | None
    tips: tuple[bytes, ...]
    scan_id: UUID | None


async def select_checkpoint(db: Connection, account_id: int, source: str) -> SourceCheckpoint | None:
    cursor = await db.execute(
        "SELECT changed, rules, tips, scan_id FROM sources WHERE account_id = %s AND source = %s",
        [account_id, source],
    )
    row = await cursor.fetchone()
    return None if row is None else SourceCheckpoint(row[0], row[1], tuple((row[2] or b"").split()), row[3])


async def save_checkpoint(
    db: Connection, account_id: int, source: str, read: SourceCheckpoint, *, now: datetime
) -> None:
    await db.execute(
        """INSERT INTO sources (account_id, source, changed, rules, tips, scan_id, scanned_at) VALUES (%s, %s, %s, %s, %s, %s, %s)
           ON CONFLICT (account_id, source) DO UPDATE SET changed = excluded.changed, rules = excluded.rules, tips = excluded.tips,
               scan_id = excluded.scan_id, scanned_at = excluded.scanned_at""",
        [account_id, source, read.changed, read.rules, b"\n".join(read.tips), read.scan_id, now],
    )


async def clear_change_marker(db: Connection, account_id: int, source: str) -> None:
    """Let the next look at a source be a real one: another run than the last whole look has met some of its findings since."""
    await db.execute(
        "UPDATE sources SET changed = NULL WHERE account_id = %s AND source = %s", [account_id, source]
    )


@dataclass(frozen=True, slots=True)
class StoredFinding:
    """A finding with what is needed to tell whether it is still there."""

    finding: Finding
    path: bytes
    box: bytes | None
    fingerprint: bytes
    commit: str | None
    media_type: str | None
    last_scan_id: UUID | None
    blobs: frozenset[bytes]


async def select_findings(db: Connection, account_id: int, source: str) -> list[StoredFinding]:
    """Give every finding of a source, closed ones too."""
    cursor = await db.execute(
        f"""SELECT source_path, secret_box, fingerprint, commit_id, media_type, last_scan_id,
                   (SELECT coalesce(array_agg(blob), '{{}}') FROM occurrences o WHERE o.account_id = f.account_id AND o.finding_id = f.id),
                   {rows.COLUMNS}
            FROM findings f WHERE account_id = %s AND source = %s ORDER BY id""".encode(),
        [account_id, source],
    )
    return [
        StoredFinding(
            rows.build_finding(row[7:]),
            row[0] or b"",
            row[1],
            row[2],
            row[3],
            row[4],
            row[5],
            frozenset(row[6]),
        )
        for row in await cursor.fetchall()
    ]


async def set_occurrences(
    db: Connection, account_id: int, blobs: Sequence[tuple[UUID, frozenset[bytes]]], *, whole: bool
) -> None:
    """Write the blobs that hold each finding: all of them after a whole look, further ones after another."""
    if whole:
        ids = [finding_id for finding_id, _ in blobs]
        await db.execute(
            "DELETE FROM occurrences WHERE account_id = %s AND finding_id = ANY(%s)", [account_id, ids]
        )
    pairs = [(finding_id, blob) for finding_id, group in blobs for blob in sorted(group)]
    await db.execute(
        "INSERT INTO occurrences (account_id, finding_id, blob) SELECT %s, * FROM unnest(%s::uuid[], %s::bytea[]) ON CONFLICT DO NOTHING",
        [account_id, [finding_id for finding_id, _ in pairs], [blob for _, blob in pairs]],
    )


async def mark_unchanged_seen(
    db: Connection, account_id: int, source: str, *, last: UUID, scan_id: UUID, now: datetime
) -> int:
    """Let a run have seen what the last whole look saw: nothing has changed since. Give how many that are."""
    return await _seen(
        db, account_id, "source = %s AND last_scan_id = %s", [source, last], scan_id=scan_id, now=now
    )


async def mark_seen(
    db: Connection, account_id: int, finding_ids: Sequence[UUID], *, scan_id: UUID, now: datetime
) -> int:
    """Let a run have seen these findings, once; give how many it had not seen yet."""
    where, values = "id = ANY(%s) AND last_scan_id IS DISTINCT FROM %s", [list(finding_ids), scan_id]
    return await _seen(db, account_id, where, values, scan_id=scan_id, now=now)


async def _seen(
    db: Connection, account_id: int, where: str, values: list[object], *, scan_id: UUID, now: datetime
) -> int:
    """Count a sighting; what was stale is active again, and the audit trail says so."""
    cursor = await db.execute(
        f"""WITH met AS (SELECT id, status FROM findings WHERE account_id = %s AND {where} ORDER BY id FOR NO KEY UPDATE),
                 woken AS (INSERT INTO audit (account_id, at, actor, action, target, outcome, detail)
                           SELECT %s, %s, 'scan', 'finding.seen', id::text, 'ok',
                                  jsonb_build_object('scan', %s::text, 'from', 'stale', 'to', 'active')
                           FROM met WHERE status = 'stale')
            UPDATE findings f SET last_seen_at = %s, seen_count = seen_count + 1, last_scan_id = %s,
                                  status = CASE f.status WHEN 'stale' THEN 'active' ELSE f.status END
            FROM met WHERE f.account_id = %s AND f.id = met.id""".encode(),
        [account_id, *values, account_id, now, str(scan_id), now, scan_id, account_id],
    )
    return cursor.rowcount


async def count_places(db: Connection, account_id: int, fingerprints: Sequence[bytes]) -> dict[bytes, int]:
    """Give in how many places each credential stands."""
    cursor = await db.execute(
        "SELECT fingerprint, count(*) FROM findings WHERE account_id = %s AND fingerprint = ANY(%s) GROUP BY 1",
        [account_id, list(fingerprints)],
    )
    return dict(await cursor.fetchall())


@dataclass(frozen=True, slots=True)
class LockedFinding:
    """A finding that stands at a place already, locked."""

    finding: Finding
    last_scan_id: UUID | None


async def lock_recording(db: Connection, account_id: int) -> None:
    """Be the only one who writes many findings of an account until the transaction ends: two would wait for each other's rows."""
    await db.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_LOCK_RECORDING, account_id])


async def lock_findings(
    db: Connection, account_id: int, identities: Sequence[bytes]
) -> dict[bytes, LockedFinding]:
    """Give and lock the findings at these places, in one order for everybody; nobody else adds one there meanwhile."""
    await lock_recording(db, account_id)
    cursor = await db.execute(
        f"""SELECT identity, last_scan_id, {rows.COLUMNS} FROM findings
            WHERE account_id = %s AND identity = ANY(%s) ORDER BY id FOR NO KEY UPDATE""".encode(),
        [account_id, list(identities)],
    )
    return {row[0]: LockedFinding(rows.build_finding(row[2:]), row[1]) for row in await cursor.fetchall()}


async def select_etag(db: Connection, account_id: int, key: str) -> tuple[str, bytes] | None:
    cursor = await db.execute(
        "SELECT etag, body FROM etags WHERE account_id = %s AND key = %s", [account_id, key]
    )
    return await cursor.fetchone()


async def save_etag(db: Connection, account_id: int, key: str, tag: str, body: bytes) -> None:
    await db.execute(
        """INSERT INTO etags (account_id, key, etag, body) VALUES (%s, %s, %s, %s)
           ON CONFLICT (account_id, key) DO UPDATE SET etag = excluded.etag, body = excluded.body""",
        [account_id, key, tag, body],
    )


async def mark_stale(db: Connection, *, before: datetime) -> list[tuple[int, UUID]]:
    """Let findings be stale that no run has seen for long, whatever account they are of: time passes for all alike."""
    cursor = await db.execute(
        """UPDATE findings f SET status = 'stale' FROM accounts a, LATERAL (
               SELECT id FROM findings WHERE account_id = a.id AND last_seen_at < %s AND status = 'active' LIMIT 5000
               FOR NO KEY UPDATE SKIP LOCKED) old
           WHERE f.account_id = a.id AND f.id = old.id RETURNING f.account_id, f.id""",
        [before],
    )
    return await cursor.fetchall()
