"""Store the sources of an account and their aliases: each address leads to one source.

A source has a name, which its findings, checkpoints and locks have, and an id of its own. An alias is an
address by which the source was ever named: of its host, of its clone URL, of a folder's origin.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from outcrop.store.db import Connection
from outcrop.store.findings import rows
from outcrop.store.findings.bulk import create_batch_table, upsert_batch
from outcrop.store.findings.record import FindingRecord

# Actions by which a person decides about a finding.
_DECISIONS = [
    f"finding.{action}"
    for action in ("resolve", "restrict", "false_positive", "reopen", "suppress", "unsuppress")
]


async def resolve_aliases(
    db: Connection, account_id: int, aliases: Collection[str], *, lock: bool = False
) -> dict[str, str]:
    """Return the names of the sources that have these aliases, by alias.

    With `lock`, none of them is merged into another one until the transaction ends.
    """
    cursor = await db.execute(
        f"""SELECT a.alias, a.source FROM source_aliases a JOIN source_names n USING (account_id, source)
            WHERE a.account_id = %s AND a.alias = ANY(%s) ORDER BY a.source
            {"FOR SHARE OF n" if lock else ""}""".encode(),
        [account_id, sorted(aliases)],
    )
    return dict(await cursor.fetchall())


async def has_unnumbered(db: Connection, account_id: int, origins: Collection[str]) -> bool:
    """Whether the account has a source without a number at one of the origins, such as `https://github.com/`."""
    cursor = await db.execute(
        """SELECT FROM source_names n, unnest(%s::text[]) AS o (origin)
           WHERE account_id = %s AND NOT is_numbered AND starts_with(source, origin) LIMIT 1""",
        [sorted(origins), account_id],
    )
    return await cursor.fetchone() is not None


async def select_places(db: Connection, account_id: int, source: str) -> list[tuple[bytes, str]]:
    """Return fingerprint and shown path of the credentials of a source."""
    cursor = await db.execute(
        f"""SELECT fingerprint, file_path FROM findings
            WHERE {rows.OF_ACCOUNT} AND source = %s AND fingerprint IS NOT NULL""".encode(),
        [account_id, source],
    )
    return await cursor.fetchall()


async def select_sharing(
    db: Connection, account_id: int, origins: Collection[str], places: Collection[tuple[bytes, str]]
) -> list[str]:
    """Return the sources without a number that have a credential at one of the places.

    `places` are pairs of fingerprint and shown path. The sources are at one of the origins.
    """
    cursor = await db.execute(
        f"""SELECT DISTINCT source, fingerprint, file_path FROM findings
            WHERE {rows.OF_ACCOUNT} AND {rows.one_of("fingerprint", "bytea")}
              AND source IN (SELECT n.source FROM source_names n, unnest(%s::text[]) AS o (origin)
                             WHERE n.account_id = %s AND NOT is_numbered AND starts_with(n.source, origin))
         """.encode(),
        [account_id, sorted({fingerprint for fingerprint, _ in places}), sorted(origins), account_id],
    )
    known = set(places)
    found = {source for source, fingerprint, path in await cursor.fetchall() if (fingerprint, path) in known}
    return sorted(found)


async def add_sources(
    db: Connection, account_id: int, names: Collection[str], *, is_numbered: bool = False
) -> None:
    """Add sources that are not stored yet; `is_numbered` if their host named them by a numeric id."""
    await db.execute(
        """INSERT INTO source_names (account_id, source, is_numbered)
           SELECT %s, name, %s FROM unnest(%s::text[]) AS t (name) ORDER BY name ON CONFLICT DO NOTHING""",
        [account_id, is_numbered, sorted(names)],
    )


async def add_aliases(db: Connection, account_id: int, aliases: Sequence[tuple[str, str]]) -> None:
    """Add (alias, source name) pairs; an alias of another source stays with that source."""
    await db.execute(
        """INSERT INTO source_aliases (account_id, alias, source)
           SELECT %s, alias, source FROM unnest(%s::text[], %s::text[]) AS t (alias, source)
           ORDER BY alias ON CONFLICT DO NOTHING""",
        [account_id, [alias for alias, _ in aliases], [source for _, source in aliases]],
    )


async def move_alias(db: Connection, account_id: int, alias: str, source: str) -> None:
    """Make an alias one of this source, also if another source had it."""
    await db.execute(
        """INSERT INTO source_aliases (account_id, alias, source) VALUES (%s, %s, %s)
           ON CONFLICT (account_id, alias) DO UPDATE SET source = excluded.source""",
        [account_id, alias, source],
    )


async def select_all_aliases(db: Connection, account_id: int, names: Collection[str]) -> dict[str, list[str]]:
    """Return all aliases of these sources, by source name."""
    cursor = await db.execute(
        """SELECT source, array_agg(alias ORDER BY alias) FROM source_aliases
           WHERE account_id = %s AND source = ANY(%s) GROUP BY source""",
        [account_id, sorted(names)],
    )
    return dict(await cursor.fetchall())


async def lock_sources(db: Connection, account_id: int, names: Collection[str]) -> dict[str, bool]:
    """Lock the rows of sources for a merge; return by name whether the source is numbered."""
    cursor = await db.execute(
        """SELECT source, is_numbered FROM source_names
           WHERE account_id = %s AND source = ANY(%s) ORDER BY source FOR UPDATE""",
        [account_id, sorted(names)],
    )
    return dict(await cursor.fetchall())


async def select_last_decisions(
    db: Connection, account_id: int, finding_ids: Collection[UUID]
) -> dict[UUID, int]:
    """Return the number of the last audit line about a person's decision on each finding, by finding."""
    cursor = await db.execute(
        """SELECT target::uuid, max(id) FROM audit
           WHERE account_id = %s AND target = ANY(%s) AND action = ANY(%s) AND outcome = 'ok'
           GROUP BY target""",
        [account_id, [str(id_) for id_ in finding_ids], _DECISIONS],
    )
    return dict(await cursor.fetchall())


async def move_findings(
    db: Connection, account_id: int, source: str, identities: Sequence[tuple[UUID, bytes]]
) -> None:
    """Move findings to a source, with the identity that they have in it; pairs are (id, identity)."""
    async with db.cursor() as cursor:
        await cursor.executemany(
            f"UPDATE findings SET source = %s, identity = %s WHERE {rows.BY_ID}".encode(),
            [(source, identity, account_id, finding_id) for finding_id, identity in identities],
        )


async def join_findings(
    db: Connection, account_id: int, joined: Sequence[tuple[UUID, FindingRecord]]
) -> None:
    """Replace pairs of findings by one each; pairs are (id that ends, the row of the other one).

    The blobs of both belong to the one that stays.
    """
    if not joined:
        return
    await db.execute("SET LOCAL plan_cache_mode = force_generic_plan")
    async with db.cursor() as cursor:
        for ended, record in joined:
            await cursor.execute(
                """INSERT INTO occurrences (account_id, finding_id, blob)
                   SELECT account_id, %s, blob FROM occurrences WHERE account_id = %s AND finding_id = %s
                   ON CONFLICT DO NOTHING""",
                [record.finding.id, account_id, ended],
            )
            await cursor.execute(f"DELETE FROM findings WHERE {rows.BY_ID}".encode(), [account_id, ended])
    await db.execute("SET LOCAL plan_cache_mode = auto")
    await create_batch_table(db)
    await upsert_batch(db, account_id, [record for _, record in joined])


async def delete_source(db: Connection, account_id: int, ended: str, source: str) -> None:
    """Delete a source whose findings have moved to another one, which gets its aliases."""
    values = {"account": account_id, "ended": ended, "source": source}
    for statement in (
        "UPDATE source_aliases SET source = %(source)s WHERE account_id = %(account)s AND source = %(ended)s",
        "DELETE FROM sources WHERE account_id = %(account)s AND source = %(ended)s",
        "DELETE FROM source_locks WHERE account_id = %(account)s AND source = %(ended)s",
        "DELETE FROM source_names WHERE account_id = %(account)s AND source = %(ended)s",
    ):
        await db.execute(statement.encode(), values)


@dataclass(frozen=True, slots=True)
class FindingBoxes:
    """The encrypted columns of a finding, which are bound to its id, and its verdict key."""

    secret: bytes | None
    excerpt: bytes | None
    path: bytes | None
    verdict_key: bytes | None


async def select_boxes(
    db: Connection, account_id: int, finding_ids: Collection[UUID]
) -> dict[UUID, FindingBoxes]:
    """Return the encrypted columns of findings, by id."""
    cursor = await db.execute(
        f"""SELECT id, secret_box, excerpt_box, source_path, verdict_key FROM findings
            WHERE {rows.OF_ACCOUNT} AND {rows.one_of("id")}""".encode(),
        [account_id, list(finding_ids)],
    )
    return {row[0]: FindingBoxes(*row[1:]) for row in await cursor.fetchall()}
