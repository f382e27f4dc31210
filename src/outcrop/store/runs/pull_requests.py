"""Store what is known of pull requests whose commits were marked, and count their credentials."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from outcrop.store.db import Connection
from outcrop.store.runs.scans import HEADS, PLAN_SOURCE


@dataclass(frozen=True, slots=True)
class PushedRun:
    """A run of a push: its target, the commits that its pushes ended at, and its repository."""

    target_id: UUID | None
    spec: dict[str, Any]  # the fields of a TargetSpec
    heads: list[str]
    source: dict[str, Any]  # the fields of a ScanSource


async def select_run(db: Connection, account_id: int, scan_id: UUID) -> PushedRun | None:
    """Return the run of a push that has scanned its repository to the end; None if there is no such run."""
    cursor = await db.execute(
        f"""SELECT s.target_id, s.spec, coalesce(s.spec -> '{HEADS}', '[]'), q.spec
            FROM scans s JOIN scan_sources q ON q.account_id = s.account_id AND q.scan_id = s.id
            WHERE s.account_id = %s AND s.id = %s AND s.pushed_repository IS NOT NULL
              AND q.source <> '{PLAN_SOURCE}' AND q.status = 'done' AND q.spec ->> 'kind' = 'git'
            ORDER BY q.source LIMIT 1""".encode(),
        [account_id, scan_id],
    )
    row = await cursor.fetchone()
    return None if row is None else PushedRun(*row)


async def save_commits(
    db: Connection, account_id: int, source: str, number: int, commits: Sequence[str], *, most: int
) -> tuple[list[str], int]:
    """Add commits to a pull request, and keep the last `most`.

    Return all commits, and the number of credentials that the last comment named.
    """
    cursor = await db.execute(
        """SELECT commits, commented FROM pull_requests
           WHERE account_id = %s AND source = %s AND number = %s FOR UPDATE""",
        [account_id, source, number],
    )
    known, commented = await cursor.fetchone() or ([], 0)
    kept = list(dict.fromkeys([*known, *commits]))[-most:]
    await db.execute(
        """INSERT INTO pull_requests (account_id, source, number, commits, marked_at)
           VALUES (%s, %s, %s, %s, clock_timestamp())
           ON CONFLICT (account_id, source, number) DO UPDATE
           SET commits = excluded.commits, marked_at = excluded.marked_at""",
        [account_id, source, number, kept],
    )
    return kept, commented


async def save_comment(
    db: Connection, account_id: int, source: str, number: int, *, credentials: int
) -> None:
    """Save how many credentials the last comment on a pull request named."""
    await db.execute(
        "UPDATE pull_requests SET commented = %s WHERE account_id = %s AND source = %s AND number = %s",
        [credentials, account_id, source, number],
    )


async def count_credentials(db: Connection, account_id: int, source: str, commits: Sequence[str]) -> int:
    """Return the number of credentials in these commits of a source that are neither closed nor hidden."""
    cursor = await db.execute(
        """SELECT count(DISTINCT coalesce(fingerprint, uuid_send(id))) FROM findings
           WHERE account_id = %s AND source = %s AND status = 'active' AND suppressed_at IS NULL
             AND commit_id = ANY(%s)""",
        [account_id, source, list(commits)],
    )
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def delete_old(db: Connection, *, days: int) -> int:
    """Delete pull requests of all accounts that were not marked for so many days; return how many."""
    cursor = await db.execute(
        "DELETE FROM pull_requests WHERE marked_at < clock_timestamp() - make_interval(days => %s)", [days]
    )
    return cursor.rowcount
