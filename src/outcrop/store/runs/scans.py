"""Store scan runs.

A run is inserted (`insert`), started (`start_run`) and, when all its sources have ended, finished with
their sums (`finish_run`). `scan_sources` stores its sources.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from outcrop.domain.paging import Page
from outcrop.domain.push import RunPush, build_run_push, push_fields
from outcrop.domain.scan import COUNTERS, Gap, ScanRun, ScanStatus, ScanType, Trigger
from outcrop.limits import RUN_GAPS
from outcrop.store.db import Connection, snapshot

HEADS = "heads"  # field of a stored target: the commits that the pushes of the run ended at
PLAN_SOURCE = "plan"  # the source that represents the planning of a run: the run does not end before it
INTERRUPTED_AFTER = 60  # seconds without a heartbeat after which a running run is shown as interrupted
_HEARTBEAT_INTERVAL = 5  # seconds; an earlier heartbeat is not written

# Sources that have begun and not ended: a few, found by the index `scan_sources_begun`. The planner must not
# take the primary key, which leads to all sources of the run: `+ 0` and CASE keep it from that.
_BEGUN = """(status = 'running' OR (status = 'queued'
             AND (progress <> '{}' OR findings_new + findings_seen + findings_resolved > 0)))"""
_SUMS = ", ".join(f"coalesce(sum((progress ->> '{name}')::bigint), 0) AS {name}" for name in COUNTERS)
_LIVE = ", ".join(f"'{name}', coalesce((s.progress ->> '{name}')::bigint, 0) + p.{name}" for name in COUNTERS)
_HAS_HEARTBEAT = f"""
    coalesce(heartbeat_at > clock_timestamp() - interval '{INTERRUPTED_AFTER} s', true)"""
# A running run whose worker has gone is shown as interrupted.
SHOWN_STATUS = f"CASE WHEN status = 'running' AND NOT {_HAS_HEARTBEAT} THEN 'interrupted' ELSE status END"
_STRIP_BATCH_SIZE = 1000  # runs that one transaction changes
# Older runs have no `host`; those of GitHub are recognised by their target.
_HOST = """CASE WHEN spec ? 'host' THEN spec ->> 'host'
                WHEN type = 'github' AND target ~ '^(github:|gists:|https://(gist[.])?github[.]com/)'
                THEN 'github' END"""
# A run has the sums of its ended sources. An unfinished one shows the counts of begun sources as well.
_SELECT = f"""
    SELECT id, type, {SHOWN_STATUS}, trigger, target, created_at, started_at, finished_at,
           CASE WHEN finished_at IS NULL THEN jsonb_build_object({_LIVE}) ELSE s.progress END,
           s.findings_new + p.new, s.findings_seen + p.seen, s.findings_resolved + p.resolved,
           coverage_gaps, error, waiting, {_HOST}, push, resolved_valid
    FROM scans s CROSS JOIN LATERAL (
        SELECT coalesce(sum(findings_new), 0) AS new, coalesce(sum(findings_seen), 0) AS seen,
               coalesce(sum(findings_resolved), 0) AS resolved, {_SUMS}
        FROM scan_sources q
        WHERE s.finished_at IS NULL AND q.account_id + 0 = s.account_id AND {_BEGUN}
          AND CASE WHEN {_BEGUN} THEN q.scan_id END = s.id) p
"""


async def insert(
    db: Connection,
    account_id: int,
    run: ScanRun,
    *,
    target_id: UUID | None = None,
    spec: dict[str, Any] | None = None,
    foreground: int | None = None,
    pushed_repository: bytes | None = None,
    url_box: bytes | None = None,
) -> None:
    """Insert a run. `spec` is a copy of its target; `foreground` is the lock of a command that runs it.

    `pushed_repository` is the digest of the repository whose push started the run, `url_box` the encrypted
    address of the target, where that is not in the `spec`.
    """
    values = {
        "account_id": account_id,
        "id": run.id,
        "type": run.type,
        "status": run.status,
        "trigger": run.trigger,
        "target": run.target,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "progress": Jsonb(run.progress),
        "findings_new": run.findings_new,
        "findings_seen": run.findings_seen,
        "findings_resolved": run.findings_resolved,
        "resolved_valid": run.resolved_valid,
        "coverage_gaps": encode_gaps(run.coverage_gaps),
        "error": run.error,
        "target_id": target_id,
        "spec": Jsonb(spec or {}),
        "foreground": foreground,
        "push": None if run.push is None else Jsonb(push_fields(run.push)),
        "pushed_repository": pushed_repository,
        "url_box": url_box,
    }
    placeholders = ", ".join(["%s"] * len(values))
    await db.execute(
        f"INSERT INTO scans ({', '.join(values)}) VALUES ({placeholders})".encode(), list(values.values())
    )


async def select(db: Connection, account_id: int, scan_id: UUID) -> ScanRun | None:
    """Return one run of the account."""
    cursor = await db.execute(f"{_SELECT} WHERE account_id = %s AND id = %s".encode(), [account_id, scan_id])
    row = await cursor.fetchone()
    return None if row is None else _build_run(row)


async def select_target_id(db: Connection, account_id: int, scan_id: UUID) -> UUID | None:
    """Return the id of the stored target of a run; None if it has none."""
    cursor = await db.execute(
        "SELECT target_id FROM scans WHERE account_id = %s AND id = %s", [account_id, scan_id]
    )
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def select_page(
    db: Connection, account_id: int, *, type_: ScanType | None, page: int, per_page: int
) -> Page[ScanRun]:
    """Return a page of the account's runs, of one type or of all, newest first."""
    where, values = "account_id = %s", list[object]([account_id])
    if type_ is not None:
        where, values = f"{where} AND type = %s", [*values, type_]
    async with snapshot(db):
        row = await (
            await db.execute(f"SELECT count(*) FROM scans WHERE {where}".encode(), values)
        ).fetchone()
        total = row[0] if row else 0
        offset = (page - 1) * per_page
        if offset >= total:
            return Page([], total, page, per_page)
        cursor = await db.execute(
            f"{_SELECT} WHERE {where} ORDER BY created_at DESC, id DESC OFFSET %s LIMIT %s".encode(),
            [*values, offset, per_page],
        )
        return Page([_build_run(row) for row in await cursor.fetchall()], total, page, per_page)


async def count_resolved_valid(db: Connection, account_id: int, scan_id: UUID) -> None:
    """Count a finding that a run resolves while its credential is valid, in the transaction that does it."""
    await db.execute(
        "UPDATE scans SET resolved_valid = resolved_valid + 1 WHERE account_id = %s AND id = %s",
        [account_id, scan_id],
    )


def _build_run(row: tuple[Any, ...]) -> ScanRun:
    """Return the run of a row of `_SELECT`."""
    gaps = tuple(Gap(gap["what"], gap["why"]) for gap in row[12])
    return ScanRun(
        id=row[0],
        type=ScanType(row[1]),
        status=ScanStatus(row[2]),
        trigger=Trigger(row[3]),
        target=row[4],
        created_at=row[5],
        started_at=row[6],
        finished_at=row[7],
        progress=row[8],
        findings_new=int(row[9]),
        findings_seen=int(row[10]),
        findings_resolved=int(row[11]),
        coverage_gaps=gaps,
        error=row[13],
        waiting=row[14],
        host=row[15],
        push=build_run_push(row[16]),
        resolved_valid=row[17],
    )


def encode_gaps(gaps: Sequence[Gap]) -> Jsonb:
    """Return the gaps as JSON, at most RUN_GAPS of them; jsonb cannot hold NUL, which is replaced."""
    listed = [
        {"what": gap.what.replace("\0", "\ufffd"), "why": gap.why.replace("\0", "\ufffd")}
        for gap in gaps[:RUN_GAPS]
    ]
    if len(gaps) > RUN_GAPS:
        listed.append({"what": "more", "why": f"{len(gaps) - RUN_GAPS} more gaps are not listed"})
    return Jsonb(listed)


async def strip_queries(db: Connection) -> int:
    """Remove queries of addresses that an older release has stored with ended runs; return how many runs."""
    cursor = await db.execute(
        """WITH found AS (
               SELECT account_id, id FROM scans
               WHERE type = 'scrape' AND finished_at IS NOT NULL AND strpos(spec ->> 'name', '?') > 0
               LIMIT %s FOR NO KEY UPDATE SKIP LOCKED),
           sources AS (
               UPDATE scan_sources q
               SET spec = jsonb_set(q.spec, '{url}', to_jsonb(split_part(q.spec ->> 'url', '?', 1)))
               FROM found f
               WHERE q.account_id = f.account_id AND q.scan_id = f.id AND q.spec ->> 'kind' = 'site')
           UPDATE scans s
           SET spec = jsonb_set(s.spec, '{name}', to_jsonb(split_part(s.spec ->> 'name', '?', 1)))
           FROM found f WHERE s.account_id = f.account_id AND s.id = f.id""",
        [_STRIP_BATCH_SIZE],
    )
    return cursor.rowcount


# --- a run from its start to its end


@dataclass(frozen=True, slots=True)
class UnfinishedRun:
    """A run that has not ended, and its target as it was at the start."""

    status: ScanStatus
    trigger: Trigger
    target_id: UUID | None
    spec: dict[str, Any]
    url_box: bytes | None = None


async def start_run(db: Connection, account_id: int, scan_id: UUID, *, now: datetime) -> UnfinishedRun | None:
    """Set a run to `running`, which locks its row; return the run, or None if it has ended."""
    cursor = await db.execute(
        """UPDATE scans SET status = 'running', started_at = coalesce(started_at, %s),
                            heartbeat_at = clock_timestamp()
           WHERE account_id = %s AND id = %s AND finished_at IS NULL
           RETURNING status, trigger, target_id, spec, url_box""",
        [now, account_id, scan_id],
    )
    row = await cursor.fetchone()
    return None if row is None else UnfinishedRun(ScanStatus(row[0]), Trigger(row[1]), *row[2:])


async def save_heartbeat(db: Connection, account_id: int, scan_id: UUID) -> None:
    """Save that a process works on a run; do nothing if that was saved a moment ago."""
    await db.execute(
        f"""UPDATE scans SET heartbeat_at = clock_timestamp()
            WHERE account_id = %s AND id = %s AND finished_at IS NULL
              AND coalesce(heartbeat_at < clock_timestamp() - interval '{_HEARTBEAT_INTERVAL} s', true)
            """.encode(),
        [account_id, scan_id],
    )


async def save_heartbeats_of_queued(db: Connection) -> int:
    """Save for the running runs of all accounts that a worker is there for their jobs; return how many.

    A run whose heartbeats have ended stays interrupted until a worker takes it. Runs that are executed by a
    command, and runs that another process is changing, are left out.
    """
    cursor = await db.execute(
        f"""UPDATE scans s SET heartbeat_at = clock_timestamp()
            FROM (SELECT account_id, id FROM scans
                  WHERE status = 'running' AND finished_at IS NULL AND foreground IS NULL AND {_HAS_HEARTBEAT}
                    AND coalesce(heartbeat_at < clock_timestamp() - interval '{_HEARTBEAT_INTERVAL} s', true)
                  FOR NO KEY UPDATE SKIP LOCKED) q
            WHERE s.account_id = q.account_id AND s.id = q.id""".encode()
    )
    return cursor.rowcount


async def has_unfinished_run(db: Connection, account_id: int, target_id: UUID) -> bool:
    """Whether a run of this target has not ended; runs that a push started do not count."""
    cursor = await db.execute(
        """SELECT 1 FROM scans WHERE account_id = %s AND target_id = %s AND finished_at IS NULL
             AND trigger <> 'push' LIMIT 1""",
        [account_id, target_id],
    )
    return await cursor.fetchone() is not None


async def has_unplanned_comparison(db: Connection, account_id: int, target_id: UUID) -> bool:
    """Whether a run compares the repositories of this target with the host, and has not begun."""
    cursor = await db.execute(
        """SELECT 1 FROM scans WHERE account_id = %s AND target_id = %s AND finished_at IS NULL
             AND trigger = 'push' AND pushed_repository IS NULL AND status = 'queued' LIMIT 1""",
        [account_id, target_id],
    )
    return await cursor.fetchone() is not None


@dataclass(frozen=True, slots=True)
class WaitingPushRun:
    """A run that a push started and that has not begun to scan, and the commits that its pushes ended at."""

    id: UUID
    push: RunPush
    heads: list[str]


async def lock_waiting_push_run(
    db: Connection, account_id: int, target_id: UUID, repository: bytes
) -> WaitingPushRun | None:
    """Return the run that a push to a repository started and that has not begun to scan it.

    None if there is none. The run does not begin before the transaction ends.
    """
    cursor = await db.execute(
        f"""SELECT id, push, coalesce(spec -> '{HEADS}', '[]') FROM scans
           WHERE account_id = %s AND pushed_repository = %s AND target_id = %s AND finished_at IS NULL
           ORDER BY created_at DESC, id LIMIT 1 FOR UPDATE""".encode(),
        [account_id, repository, target_id],
    )
    if (row := await cursor.fetchone()) is None or (push := build_run_push(row[1])) is None:
        return None
    cursor = await db.execute(
        f"""SELECT bool_or(source <> '{PLAN_SOURCE}' AND status <> 'queued'),
                   bool_or(source = '{PLAN_SOURCE}' AND status = 'queued')
                   OR bool_or(source <> '{PLAN_SOURCE}' AND status = 'queued')
            FROM scan_sources WHERE account_id = %s AND scan_id = %s""".encode(),
        [account_id, row[0]],
    )
    has_begun, is_waiting = await cursor.fetchone() or (True, False)
    return WaitingPushRun(row[0], push, row[2]) if is_waiting and not has_begun else None


async def save_push(
    db: Connection, account_id: int, scan_id: UUID, push: RunPush, heads: Sequence[str]
) -> None:
    """Save the pushes that a run scans, and the commits that they ended at."""
    await db.execute(
        "UPDATE scans SET push = %s, spec = spec || %s WHERE account_id = %s AND id = %s",
        [Jsonb(push_fields(push)), Jsonb({HEADS: list(heads)}), account_id, scan_id],
    )


async def lock_foreground(db: Connection, foreground: int) -> None:
    """Take the advisory lock `foreground` for this connection: the liveness signal of a command's own run."""
    await db.execute("SELECT pg_advisory_lock(%s)", [foreground])


async def unlock_foreground(db: Connection, foreground: int) -> None:
    """Release the lock of `lock_foreground`."""
    await db.execute("SELECT pg_advisory_unlock(%s)", [foreground])


@dataclass(frozen=True, slots=True)
class OrphanedRun:
    """An unfinished run whose command has died."""

    account_id: int
    scan_id: UUID
    kind: str
    sources: list[str]  # that have not ended


async def claim_orphaned_runs(db: Connection) -> list[OrphanedRun]:
    """Set the runs of dead commands, of all accounts, to `interrupted`, for workers; return them."""
    cursor = await db.execute(
        """UPDATE scans s SET foreground = NULL, status = 'interrupted'
           WHERE finished_at IS NULL AND foreground IS NOT NULL AND pg_try_advisory_xact_lock(foreground)
           RETURNING account_id, id, spec ->> 'kind', ARRAY(
               SELECT source FROM scan_sources q
               WHERE q.account_id = s.account_id AND q.scan_id = s.id
                 AND q.status IN ('queued', 'running'))"""
    )
    return [OrphanedRun(*row) for row in await cursor.fetchall()]


async def select_unfinished(db: Connection) -> list[tuple[int, UUID]]:
    """Return (account id, run id) of all unfinished runs of all accounts, oldest first."""
    cursor = await db.execute(
        "SELECT account_id, id FROM scans WHERE finished_at IS NULL ORDER BY created_at, id"
    )
    return list(await cursor.fetchall())


async def set_waiting(db: Connection, account_id: int, scan_id: UUID, reason: str | None) -> None:
    """Save why a run makes no progress at the moment; None if it does."""
    await db.execute(
        "UPDATE scans SET waiting = %s WHERE account_id = %s AND id = %s", [reason, account_id, scan_id]
    )


async def mark_interrupted(db: Connection, account_id: int, scan_id: UUID) -> None:
    """Set a running run to `interrupted`: it waits for another worker."""
    await db.execute(
        "UPDATE scans SET status = 'interrupted' WHERE account_id = %s AND id = %s AND status = 'running'",
        [account_id, scan_id],
    )


@dataclass(frozen=True, slots=True)
class RunResult:
    """The type, final status and counts of a run, and the options of a target whose push started it."""

    type: ScanType
    status: ScanStatus
    new: int
    seen: int
    resolved: int
    error: str | None
    pushed_options: dict[str, Any]


async def finish_run(
    db: Connection, account_id: int, scan_id: UUID, *, now: datetime, error: str | None = None
) -> RunResult | None:
    """Finish a run whose sources have all ended; return its result; None if it goes on or had ended.

    With `error` the run is finished in any case and has failed. Otherwise it has failed if the plan or a
    source failed and no source was scanned to its end. The sources are summed up only at the end of the run.
    """
    cursor = await db.execute(
        """SELECT coverage_gaps, type,
                  CASE WHEN pushed_repository IS NULL THEN '{}' ELSE coalesce(spec -> 'options', '{}') END
           FROM scans WHERE account_id = %s AND id = %s AND finished_at IS NULL
             AND (open_sources <= 0 OR %s) FOR UPDATE""",
        [account_id, scan_id, error is not None],
    )
    if (run := await cursor.fetchone()) is None:
        return None
    sums = await _sum_sources(db, account_id, scan_id)
    if sums.open_sources and error is None:
        return None
    gaps = [Gap(gap["what"], gap["why"]) for gap in run[0]] + await _select_gaps(db, account_id, scan_id)
    error = error or (None if sums.done_sources else sums.error)
    status = ScanStatus.FAILED if error else ScanStatus.COMPLETED
    await db.execute(
        """UPDATE scans SET status = %s, finished_at = %s, progress = %s, findings_new = %s,
                            findings_seen = %s, findings_resolved = %s, coverage_gaps = %s, error = %s,
                            waiting = NULL, url_box = NULL
           WHERE account_id = %s AND id = %s""",
        [
            *(status, now, Jsonb(sums.progress), sums.new, sums.seen, sums.resolved),
            *(encode_gaps(gaps), error, account_id, scan_id),
        ],
    )
    return RunResult(ScanType(run[1]), status, sums.new, sums.seen, sums.resolved, error, run[2])


@dataclass(frozen=True, slots=True)
class _SourceSums:
    """The sums over all sources of a run."""

    open_sources: int
    done_sources: int  # scanned to the end; the plan does not count
    new: int
    seen: int
    resolved: int
    error: str | None  # of one failed source
    progress: dict[str, int]


async def _sum_sources(db: Connection, account_id: int, scan_id: UUID) -> _SourceSums:
    """Sum up the sources of a run."""
    cursor = await db.execute(
        f"""SELECT count(*) FILTER (WHERE status IN ('queued', 'running')),
                   count(*) FILTER (WHERE status = 'done' AND source <> '{PLAN_SOURCE}'),
                   coalesce(sum(findings_new), 0), coalesce(sum(findings_seen), 0),
                   coalesce(sum(findings_resolved), 0),
                   min(error) FILTER (WHERE status = 'failed'), {_SUMS}
            FROM scan_sources WHERE account_id = %s AND scan_id = %s""".encode(),
        [account_id, scan_id],
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101 - an aggregate has one row
    open_sources, done_sources, new, seen, resolved, error = row[:6]
    progress = {name: int(value) for name, value in zip(COUNTERS, row[6:], strict=True)}
    return _SourceSums(open_sources, done_sources, int(new), int(seen), int(resolved), error, progress)


async def _select_gaps(db: Connection, account_id: int, scan_id: UUID) -> list[Gap]:
    """Return the gaps of a run's sources, at most one more than a run lists."""
    cursor = await db.execute(
        """SELECT gap ->> 'what', gap ->> 'why' FROM scan_sources, jsonb_array_elements(coverage_gaps) gap
           WHERE account_id = %s AND scan_id = %s ORDER BY source LIMIT %s""",
        [account_id, scan_id, RUN_GAPS + 1],
    )
    return [Gap(what, why) for what, why in await cursor.fetchall()]
