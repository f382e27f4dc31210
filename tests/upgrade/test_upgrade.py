"""Rows of every table of earlier schemas are upgraded: nothing is lost, and everything fits the current schema."""

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg import sql

from outcrop.domain.clock import now
from outcrop.scanner.risk.score import VERSION
from outcrop.scanner.risk.stored_score import score_stored
from outcrop.services import maintenance
from outcrop.store import schema
from outcrop.store.db import Connection, connect
from outcrop.store.findings import rollups, scores
from tests.support.databases import new_database
from tests.upgrade.generate_rows import FIRST, FOLDER, OPERATOR, generate, rows_file, select_tables

VERSIONS = [version for version in schema.list_versions() if version >= FIRST]
Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def empty(cluster: str, worker_id: str) -> str:
    """Create an empty database, which `template` brings from each version to the next; return its name."""
    new_database(cluster, name := f"upgrade_{worker_id}_empty")
    return name


@pytest.fixture(scope="module", params=VERSIONS)
def template(cluster: str, empty: str, request: pytest.FixtureRequest) -> tuple[str, bytes, Rows]:
    """Return the name of a database with the schema of a version, a script that adds rows, and the rows.

    The versions come in order, so each needs one migration more than the one before it.
    """
    script = rows_file(request.param).read_bytes()

    async def read() -> Rows:
        async with await connect(psycopg.conninfo.make_conninfo(cluster, dbname=empty)) as db:
            async with db.transaction():
                await schema._apply_migrations(db, request.param)
            async with db.transaction(force_rollback=True):
                await load(db, script)
                return await select_rows(db, await select_tables(db))

    return empty, script, asyncio.run(read())


@pytest.fixture
def loaded(cluster: str, worker_id: str, template: tuple[str, bytes, Rows]) -> tuple[str, Rows]:
    """Create a database with the schema and the rows of a version; return its URL and the rows."""
    name, script, rows = template
    url = new_database(cluster, f"upgrade_{worker_id}", template=name)

    async def fill() -> None:
        async with await connect(url) as db, db.transaction():
            await load(db, script)

    asyncio.run(fill())
    return url, rows


async def load(db: Connection, script: bytes) -> None:
    """Add the rows in the caller's transaction."""
    await db.execute("SET LOCAL session_replication_role = replica")  # derived rows are in the file
    await db.execute(script)


async def select_rows(db: Connection, tables: Iterable[str]) -> Rows:
    """Return the rows of the tables, each as a mapping of the text of its columns."""
    found = {}
    for table in tables:
        cursor = await db.execute(
            sql.SQL("SELECT to_jsonb(t) FROM {} t ORDER BY to_jsonb(t)::text").format(sql.Identifier(table))
        )
        found[table] = [row for (row,) in await cursor.fetchall()]
    return found


def broken_foreign_keys(url: str) -> list[str]:
    """Return the foreign keys that a row breaks: each is checked again, and nothing is kept."""
    broken = []
    with psycopg.connect(url) as db:
        keys = db.execute(
            """UPDATE pg_constraint SET convalidated = false
               WHERE contype = 'f' AND conparentid = 0 RETURNING conrelid::regclass::text, conname"""
        ).fetchall()
        for table, name in keys:
            try:
                with db.transaction(force_rollback=True):
                    db.execute(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}")
            except psycopg.errors.ForeignKeyViolation:
                broken.append(name)
        db.rollback()
    assert keys
    return broken


async def upgrade(url: str) -> tuple[list[str], list[maintenance.HealthCheck]]:
    """Upgrade a database and compute outdated scores; return the applied migrations and the checks."""
    async with await connect(url) as db:
        applied = await schema.migrate(db)
        assert await rollups.find_mismatches(db) == []
        before = await check_all_but_boxes(db)
        assert all(check.ok for check in before), before
        async with db.transaction():
            for account_id, finding_id in await scores.lock_outdated(db, VERSION, 100):
                compute = partial(score_stored, moment=now())
                await scores.rescore(db, account_id, [finding_id], compute)
        return applied, await check_all_but_boxes(db)


async def check_all_but_boxes(db: Connection) -> list[maintenance.HealthCheck]:
    """Run the checks of `outcrop doctor`, without that of the encrypted values: those of the rows are made up."""
    checks = await maintenance.run_health_checks(db, OPERATOR, None)
    return [check for check in checks if check.name != "encrypted values"]


def test_there_are_rows_for_every_schema_from_the_first_on() -> None:
    assert {file.name for file in FOLDER.glob("rows_*.sql")} == {rows_file(v).name for v in VERSIONS}, (
        "run `python -m tests.upgrade.generate_rows`"
    )


def test_every_table_has_rows(template: tuple[str, bytes, Rows]) -> None:
    assert [table for table, rows in template[2].items() if not rows] == []


def test_an_upgrade_loses_nothing_and_breaks_nothing(loaded: tuple[str, Rows]) -> None:
    url, before = loaded
    compared = {table: rows for table, rows in before.items() if table != "migrations"}
    applied, checks = asyncio.run(upgrade_and_compare(url, compared))
    assert len(applied) == len(schema.list_versions()) - len(before["migrations"])
    assert all(check.ok for check in checks), checks
    assert broken_foreign_keys(url) == []
    with psycopg.connect(url) as db:
        db.execute("UPDATE findings SET composite_score = composite_score + 1 WHERE status = 'active'")
    (failed,) = (check for check in asyncio.run(run_checks(url)) if not check.ok)
    assert failed.name == "scores"
    (scored,) = (check.detail for check in checks if check.name == "scores")
    assert not scored.startswith("0 ")


async def run_checks(url: str) -> list[maintenance.HealthCheck]:
    """Return what `doctor` finds, on a new connection."""
    async with await connect(url) as db:
        return await check_all_but_boxes(db)


async def upgrade_and_compare(url: str, before: Rows) -> tuple[list[str], list[maintenance.HealthCheck]]:
    """Upgrade a database; assert that the columns of the earlier schema have the same values."""
    async with await connect(url) as db:
        applied = await schema.migrate(db)
        after = await select_rows(db, before)
    kinds = {row["kind"] for row in before.get("rollups", ())}
    for table, rows in before.items():
        kept = [{name: row[name] for name in rows[0]} for row in after[table]]
        if table == "rollups":  # a migration may count more; `upgrade` recounts all
            kept = [row for row in kept if row["kind"] in kinds]
        assert sorted(kept, key=str) == sorted(rows, key=str), table
    return applied, (await upgrade(url))[1]


def test_a_lost_row_and_a_broken_reference_are_noticed(loaded: tuple[str, Rows]) -> None:
    url, before = loaded
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("SET session_replication_role = replica; DELETE FROM accounts WHERE id = 2")
    assert "findings_account_id_fkey" in broken_foreign_keys(url)
    with pytest.raises(AssertionError, match="accounts"):
        asyncio.run(upgrade_and_compare(url, {"accounts": before["accounts"]}))


def test_the_script_writes_the_rows_of_the_newest_schema_again(cluster: str, worker_id: str) -> None:
    url = new_database(cluster, f"upgrade_{worker_id}")
    version = schema.newest_version()

    def without_keys(text: str) -> Iterator[str]:
        """Yield the statements, without that of the keyring, which is encrypted with a random number."""
        return (part for part in text.split(";\n") if "INTO keyring" not in part)

    repeated = asyncio.run(generate(url, version))
    assert list(without_keys(repeated)) == list(without_keys(rows_file(version).read_text()))
