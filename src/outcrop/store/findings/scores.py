"""Compute stored scores again, with a function of the caller, and find those that have to be."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from psycopg.types.json import Jsonb

from outcrop.domain.finding import Finding
from outcrop.store.db import Connection
from outcrop.store.findings import rows

# Returns a finding with its score, and the detail to store. Gets a finding, its stored detail and the number
# of places of its credential.
ComputeScore: TypeAlias = Callable[[Finding, dict[str, Any], int], tuple[Finding, dict[str, Any]]]

_PLACES = """CASE WHEN fingerprint IS NULL THEN 1 ELSE (SELECT count(*) FROM findings o
             WHERE o.account_id = f.account_id AND o.fingerprint = f.fingerprint) END"""
_SPREAD = "CASE WHEN places < 2 THEN 0 WHEN places < 4 THEN 2 ELSE 4 END"
# A lower version has computed the score, or the points of a sighting within 30 days have ended.
_IS_OUTDATED = """((score_detail ->> 'version')::int < %s OR (
    score_detail -> 'parts' ->> 'still_there' = '2' AND last_seen_at <= now() - interval '31 days'))"""


async def rescore(
    db: Connection, account_id: int, finding_ids: Sequence[UUID], compute: ComputeScore
) -> dict[UUID, Finding]:
    """Compute the scores of these findings again and save those that change; return the findings by id.

    Findings without a detail, whose score was imported, are left out.
    """
    if not finding_ids:
        return {}
    cursor = await db.execute(
        f"""SELECT score_detail, {_PLACES}, {rows.COLUMNS} FROM findings f
            WHERE {rows.OF_ACCOUNT} AND {rows.one_of("id")} AND score_detail IS NOT NULL
            ORDER BY id FOR NO KEY UPDATE OF f""".encode(),
        [account_id, list(finding_ids)],
    )
    rescored = {}
    for detail, places, *values in await cursor.fetchall():
        before = rows.build_finding(tuple(values))
        after, new_detail = compute(before, detail, places)
        rescored[after.id] = after
        if (after.composite_score, new_detail) != (before.composite_score, detail):
            await db.execute(
                f"UPDATE findings SET composite_score = %s, score_detail = %s WHERE {rows.BY_ID}".encode(),
                [after.composite_score, Jsonb(new_detail), account_id, after.id],
            )
    return rescored


async def select_wrong_spread(db: Connection, account_id: int, fingerprints: Sequence[bytes]) -> list[UUID]:
    """Return the ids of the findings of these credentials whose score has another number of places."""
    if not fingerprints:
        return []
    cursor = await db.execute(
        f"""SELECT id FROM (
                SELECT id, score_detail, count(*) OVER (PARTITION BY fingerprint) AS places FROM findings
                WHERE {rows.OF_ACCOUNT} AND {rows.one_of("fingerprint", "bytea")}) f
            WHERE (score_detail -> 'parts' ->> 'spread')::int <> {_SPREAD} ORDER BY id""".encode(),
        [account_id, list(fingerprints)],
    )
    return [finding_id for (finding_id,) in await cursor.fetchall()]


async def select_unseen(db: Connection, account_id: int, finding_ids: Sequence[UUID]) -> list[UUID]:
    """Return those of the findings whose score says that the last scan did not see them."""
    where = f"{rows.one_of('id')} AND score_detail ->> 'in_last_scan' = 'false'"
    return await _select_where(db, account_id, where, [list(finding_ids)])


async def select_seen(db: Connection, account_id: int, finding_ids: Sequence[UUID]) -> list[UUID]:
    """Return those of the findings whose score says that the last scan saw them."""
    where = f"{rows.one_of('id')} AND score_detail ->> 'in_last_scan' = 'true'"
    return await _select_where(db, account_id, where, [list(finding_ids)])


async def select_unseen_of_run(db: Connection, account_id: int, source: str, scan_id: UUID) -> list[UUID]:
    """Return the findings of a source that the run saw, although their score says otherwise."""
    return await _select_where(
        db,
        account_id,
        "source = %s AND last_scan_id = %s AND score_detail ->> 'in_last_scan' = 'false'",
        [source, scan_id],
    )


async def _select_where(db: Connection, account_id: int, where: str, values: list[Any]) -> list[UUID]:
    """Return the ids of the account's findings that meet a condition."""
    cursor = await db.execute(
        f"SELECT id FROM findings WHERE {rows.OF_ACCOUNT} AND {where} ORDER BY id".encode(),
        [account_id, *values],
    )
    return [finding_id for (finding_id,) in await cursor.fetchall()]


async def lock_outdated(db: Connection, version: int, limit: int) -> list[tuple[int, UUID]]:
    """Lock findings of all accounts whose score has to be computed again; return their (account id, id).

    That is a score of a lower version than `version`, or one whose points have ended with the time. Locked
    findings are skipped.
    """
    cursor = await db.execute(
        f"""SELECT account_id, id FROM findings WHERE score_detail IS NOT NULL AND {_IS_OUTDATED}
            LIMIT %s FOR NO KEY UPDATE SKIP LOCKED""".encode(),
        [version, limit],
    )
    return await cursor.fetchall()


async def select_sample(
    db: Connection, version: int, limit: int
) -> list[tuple[Finding, dict[str, Any], int]]:
    """Return about `limit` random findings with the detail of their score and their number of places.

    Every account has a part in them. Outdated scores are left out: a worker computes them again.
    """
    cursor = await db.execute(
        f"""SELECT score_detail, {_PLACES}, {rows.COLUMNS} FROM findings f
            WHERE (account_id, id) IN (
                SELECT a.id, picked.id
                FROM (SELECT id, gen_random_uuid() AS start, count(*) OVER () AS accounts FROM accounts) a,
                LATERAL (
                    (SELECT id FROM findings WHERE account_id = a.id AND id >= a.start
                     ORDER BY id LIMIT %s / a.accounts + 1)
                    UNION
                    (SELECT id FROM findings WHERE account_id = a.id AND id < a.start
                     ORDER BY id LIMIT %s / a.accounts + 1)) picked)
              AND score_detail IS NOT NULL AND NOT {_IS_OUTDATED}""".encode(),
        [limit, limit, version],
    )
    return [(rows.build_finding(tuple(row[2:])), row[0], row[1]) for row in await cursor.fetchall()]
