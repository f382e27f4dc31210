"""Store the sources of a scan run. A source is the unit that a worker claims.

The plan of a run adds its sources (`add_sources`). A worker claims a source (`claim_source`), adds to its
counts (`add_counts`) and finishes it (`finish_source`), or gives it back when the worker is stopped
(`release_source`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from outcrop.domain.scan import Gap, SourceState
from outcrop.store.db import Connection
from outcrop.store.runs.scans import encode_gaps, mark_interrupted

PAGE = "page"  # field of a stored plan
_ONE_SOURCE = "q.account_id = %s AND q.scan_id = %s AND q.source = %s"  # of `scan_sources q`


async def add_sources(
    db: Connection, account_id: int, scan_id: UUID, sources: Sequence[tuple[str, dict[str, Any]]]
) -> list[str]:
    """Add (name, spec) of sources to a run as `queued`; return the names that the run did not have yet."""
    cursor = await db.execute(
        """INSERT INTO scan_sources (account_id, scan_id, source, spec, status)
           SELECT %s, %s, source, spec, 'queued' FROM unnest(%s::text[], %s::jsonb[]) AS t (source, spec)
           ON CONFLICT DO NOTHING RETURNING source""",
        [account_id, scan_id, [name for name, _ in sources], [Jsonb(spec) for _, spec in sources]],
    )
    return [name for (name,) in await cursor.fetchall()]


async def save_page(
    db: Connection, account_id: int, scan_id: UUID, source: str, page: Sequence[str | None]
) -> None:
    """Save with a plan the list and its page from which it goes on if it is interrupted."""
    await db.execute(
        f"""UPDATE scan_sources q SET spec = spec || %s
            WHERE {_ONE_SOURCE}""".encode(),
        [Jsonb({PAGE: list(page)}), account_id, scan_id, source],
    )


@dataclass(frozen=True, slots=True)
class ClaimedSource:
    """A source that a worker has started, and how often it was started."""

    spec: dict[str, Any]
    tries: int


async def claim_source(db: Connection, account_id: int, scan_id: UUID, source: str) -> ClaimedSource | None:
    """Set a source to `running` and reset its progress; None if the source or its run has ended."""
    cursor = await db.execute(
        f"""UPDATE scan_sources q SET status = 'running', tries = tries + 1, progress = '{{}}',
                                      coverage_gaps = '[]', error = NULL
            FROM scans s WHERE {_ONE_SOURCE} AND q.status IN ('queued', 'running')
              AND s.account_id = q.account_id AND s.id = q.scan_id AND s.finished_at IS NULL
            RETURNING q.spec, q.tries""".encode(),
        [account_id, scan_id, source],
    )
    row = await cursor.fetchone()
    return None if row is None else ClaimedSource(*row)


async def release_source(db: Connection, account_id: int, scan_id: UUID, source: str) -> None:
    """Queue a running source again and interrupt its run; the stopped try is not counted."""
    await db.execute(
        f"""UPDATE scan_sources q SET status = 'queued', tries = tries - 1
            WHERE {_ONE_SOURCE} AND status = 'running'""".encode(),
        [account_id, scan_id, source],
    )
    await mark_interrupted(db, account_id, scan_id)


async def set_progress(
    db: Connection, account_id: int, scan_id: UUID, source: str, progress: dict[str, int]
) -> None:
    """Save the counters of a running source."""
    await db.execute(
        f"UPDATE scan_sources q SET progress = %s WHERE {_ONE_SOURCE} AND status = 'running'".encode(),
        [Jsonb(progress), account_id, scan_id, source],
    )


async def add_counts(
    db: Connection,
    account_id: int,
    scan_id: UUID,
    source: str,
    *,
    new: int = 0,
    seen: int = 0,
    resolved: int = 0,
) -> None:
    """Add to a source's numbers of findings, in the transaction that changes these findings."""
    await db.execute(
        f"""UPDATE scan_sources q SET findings_new = findings_new + %s, findings_seen = findings_seen + %s,
                                      findings_resolved = findings_resolved + %s
            WHERE {_ONE_SOURCE}""".encode(),
        [new, seen, resolved, account_id, scan_id, source],
    )


async def finish_source(
    db: Connection,
    account_id: int,
    scan_id: UUID,
    source: str,
    *,
    state: SourceState,
    progress: dict[str, int] | None = None,
    gaps: Sequence[Gap] = (),
    error: str | None = None,
) -> None:
    """Save the final state of a source; without `progress` its last counters stay."""
    await db.execute(
        f"""UPDATE scan_sources q
            SET status = %s, progress = coalesce(%s, progress), coverage_gaps = %s, error = %s
            WHERE {_ONE_SOURCE}""".encode(),
        [
            *(state, None if progress is None else Jsonb(progress), encode_gaps(gaps), error),
            *(account_id, scan_id, source),
        ],
    )


async def select_sources(db: Connection, account_id: int, target_id: UUID) -> list[str]:
    """Return the sources that runs of a target have scanned, with the names that they have now."""
    cursor = await db.execute(
        """SELECT DISTINCT coalesce(a.source, t.source) FROM target_sources t
           LEFT JOIN source_aliases a ON a.account_id = t.account_id AND a.alias = t.source
           WHERE t.account_id = %s AND t.target_id = %s""",
        [account_id, target_id],
    )
    return [source for (source,) in await cursor.fetchall()]
