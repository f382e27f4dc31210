"""Write rows of every table, as a schema of an earlier version has them, as SQL into this folder.

    .venv/bin/python -m tests.upgrade.generate_rows

A file is written for each migration number from FIRST on that has none yet. Run it after a new migration. The
files of released versions stay as they are. Values follow from the catalogue: by type, from the lists in CHECK
constraints, and equal to those of the referenced row in foreign keys. VALUES has the exceptions.
"""

import asyncio
import re
import tempfile
from collections.abc import Callable
from graphlib import TopologicalSorter
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, UUID, uuid5

import orjson
from psycopg import sql

from outcrop.store import schema
from outcrop.store.db import Connection, connect
from outcrop.store.embedded.server import embedded_postgres
from outcrop.store.findings import rollups
from outcrop.store.incidents import pending
from outcrop.store.operator_key import OperatorKey, unlock_keyring

FIRST = 9
FOLDER = Path(__file__).parent
SECRET_KEY = "a key for the tests only, no secret"
OPERATOR = OperatorKey(SECRET_KEY, Path("/nonexistent/key"))
# Filled by triggers, by our own functions, or when the schema is created.
NOT_GENERATED = {
    "migrations",
    "keyring",
    "finding_search",
    "finding_services",
    "rollups",
    "rollup_deltas",
    "incidents",
    "incident_changes",
}
ROWS = {"accounts": 2, "webhooks": 2, "findings": 6}  # of all other tables three
STATUSES = ("active", "resolved", "false_positive", "customer_restricted", "stale", "active")
SCORE_DETAIL = {
    "version": 2,
    "parts": {
        "liveness": 18,
        "detection": 17,
        "capability": 12,
        "exposure": 11,
        "still_there": 4,
        "spread": 0,
    },
    "strength": "prefix",
    "impact": "critical",
    "placeholder": False,
    "test_mode": False,
    "canary": False,
    "asked": False,
}
Value = Callable[[int], Any]
VALUES: dict[tuple[str, str], Value] = {
    ("findings", "status"): lambda n: STATUSES[n - 1],
    ("findings", "validation_status"): lambda _: "unvalidated",
    ("findings", "validation_confidence"): lambda _: "low",
    ("suppression_rules", "path"): lambda n: f"tests/{n}/*",
    ("suppression_rules", "path_like"): lambda n: f"tests/{n}/%",
    ("assignment_rules", "path"): lambda n: f"tests/{n}/*",
    ("assignment_rules", "path_like"): lambda n: f"tests/{n}/%",
    ("bulk_triages", "finding_ids"): lambda _: [],
    ("findings", "context"): lambda n: None if n == 3 else ("production", "test", "vendored")[n % 3],
    ("findings", "lines"): lambda n: [] if n == 3 else [n, n + 2],
    ("findings", "lines_total"): lambda n: 0 if n == 3 else 2,
    ("findings", "current_lines"): lambda n: [] if n == 3 else [n, n + 2],
    ("findings", "detection_confidence"): lambda n: None if n == 3 else ("high", "medium")[n % 2],
    ("findings", "validation_detail"): lambda n: {"enabled_services": [f"service_{n}", "storage"]},
    ("findings", "composite_score"): lambda _: 62.0,
    ("findings", "source_type"): lambda n: ("repo", "gist", "commit", "endpoint", "js_bundle", "repo")[n - 1],
    ("findings", "source_visibility"): lambda n: ("public", "private")[n % 2],
    ("findings", "resolved_at"): lambda n: "2026-02-02T00:00:00Z" if n == 2 else None,
    ("findings", "auto_resolved"): lambda n: True if n == 2 else None,
    ("findings", "score_detail"): lambda n: None if n == 6 else SCORE_DETAIL,
    ("findings", "secret_box"): lambda n: None if n == 3 else digest("findings", "secret_box", n),
    ("findings", "assignee"): lambda _: None,
    ("verdicts", "status"): lambda _: "unvalidated",
    ("verdicts", "confidence"): lambda _: "low",
    ("links", "member_id"): lambda n: None if n % 2 else identifier("members", "id", n),
    ("audit", "account_id"): lambda n: None if n == 3 else n,
}


class Column(NamedTuple):
    """A column of a table, with what decides its values."""

    name: str
    type: str
    is_nullable: bool
    options: tuple[str, ...]  # of a CHECK constraint
    references: tuple[str, str] | None  # table and column


def identifier(table: str, column: str, n: int) -> UUID:
    """Return the UUID of a column in row `n`."""
    return uuid5(NAMESPACE_URL, f"{table}.{column}.{n}")


def digest(table: str, column: str, n: int) -> bytes:
    """Return the bytes of a column in row `n`."""
    return sha256(f"{table}.{column}.{n}".encode()).digest()


def find_origin(tables: dict[str, list[Column]], table: str, column: Column) -> tuple[str, str]:
    """Return the table and the name of the column that a column refers to, or its own."""
    if column.references is None:
        return table, column.name
    owner, name = column.references
    return find_origin(tables, owner, next(c for c in tables[owner] if c.name == name))


def value_of(table: str, column: Column, origin: tuple[str, str], n: int) -> Any:
    """Return the value of a column in row `n`; `origin` is the column that it refers to."""
    if (given := VALUES.get((table, column.name))) is not None:
        return given(n)
    if column.name == "account_id":
        return (n - 1) % ROWS["accounts"] + 1
    if column.is_nullable and n == 3:
        return None
    if column.options:
        return column.options[(n - 1) % len(column.options)]
    owner, name = origin
    values: dict[str, Value] = {
        "uuid": lambda n: identifier(owner, name, n),
        "text": lambda n: f"{owner} {name} {n}",
        "bytea": lambda n: digest(owner, name, n),
        "boolean": lambda n: n % 2 == 0,
        "timestamp with time zone": lambda n: f"2026-01-0{n}T00:00:00Z",
        "timestamp(0) with time zone": lambda n: f"2026-01-0{n}T00:00:00Z",
        "jsonb": lambda n: {"row": n},
        "json": lambda n: {"row": n},
        "text[]": lambda n: [f"{name} {n}"],
        "integer[]": lambda n: [0, n, 0],
    }
    return values.get(column.type, lambda n: n)(n)


async def fill(db: Connection) -> None:
    """Fill every table of the schema with rows, in the caller's transaction."""
    tables = await select_tables(db)
    if any(
        column.name == "updated_at" for column in tables["findings"]
    ):  # a trigger would write the clock's time
        await db.execute("ALTER TABLE findings DISABLE TRIGGER findings_set_updated")
    order = TopologicalSorter(
        {
            table: {c.references[0] for c in columns if c.references} - {table}
            for table, columns in tables.items()
        }
    )
    for table in order.static_order():
        if table in NOT_GENERATED:
            continue
        columns = tables[table]
        statement = sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES ({})").format(
            sql.Identifier(table),
            sql.SQL(", ").join(sql.Identifier(column.name) for column in columns),
            sql.SQL(", ").join(sql.Placeholder() * len(columns)),
        )
        for n in range(1, ROWS.get(table, 3) + 1):
            row = [value_of(table, c, find_origin(tables, table, c), n) for c in columns]
            await db.execute(statement, [orjson.dumps(v).decode() if isinstance(v, dict) else v for v in row])
    await db.execute("UPDATE findings SET closed_at = '2026-02-02T00:00:00Z' WHERE closed_at IS NOT NULL")
    await db.execute(
        """INSERT INTO finding_search
           SELECT account_id, id, coalesce(lower(source_url), ''), facet, composite_score, first_seen_at FROM findings"""
    )
    await unlock_keyring(
        db, OPERATOR, digest("keyring", "random", 1) * 2 + digest("keyring", "random", 2)[:16]
    )
    if "incidents" in tables:
        await pending.apply_all(db)
    await rollups.fold_deltas(db)
    await db.execute("UPDATE findings SET seen_count = seen_count + 1, composite_score = 61")  # new deltas
    await db.execute("UPDATE findings SET composite_score = 62")


async def select_tables(db: Connection) -> dict[str, list[Column]]:
    """Return our own tables with their columns, without generated ones and those of the job queue."""
    cursor = await db.execute(
        r"""SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,
                  (SELECT string_agg(pg_get_constraintdef(k.oid), ' ') FROM pg_constraint k
                   WHERE k.conrelid = c.oid AND k.contype = 'c' AND k.conkey = ARRAY[a.attnum]),
                  (SELECT array[k.confrelid::regclass::text, f.attname]
                   FROM pg_constraint k, unnest(k.conkey, k.confkey) AS pair (mine, theirs), pg_attribute f
                   WHERE k.conrelid = c.oid AND k.contype = 'f' AND pair.mine = a.attnum
                     AND f.attrelid = k.confrelid AND f.attnum = pair.theirs
                   ORDER BY k.oid DESC LIMIT 1)
           FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
           WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace AND a.attnum > 0
             AND NOT a.attisdropped AND a.attgenerated = ''
             AND c.relname NOT LIKE 'procrastinate\_%' AND c.relname <> 'job_migrations'
           ORDER BY c.relname, a.attnum"""
    )
    tables: dict[str, list[Column]] = {}
    for table, name, type_, is_nullable, check, references in await cursor.fetchall():
        options = tuple(re.findall(r"'(\w+)'::text", check or "")) if "ARRAY[" in (check or "") else ()
        column = Column(name, type_, is_nullable, options, tuple(references) if references else None)
        tables.setdefault(table, []).append(column)
    return tables


async def dump(db: Connection) -> list[str]:
    """Return an INSERT for each table."""
    lines = []
    for table, columns in (await select_tables(db)).items():
        if table == "migrations":
            continue
        names = ", ".join(f'"{column.name}"' for column in columns)
        values = " || ', ' || ".join(f'quote_nullable("{column.name}"::text)' for column in columns)
        cursor = await db.execute(f"SELECT {values} FROM {table} ORDER BY 1".encode())
        rows = ",\n".join(f"({row})" for (row,) in await cursor.fetchall())
        lines.append(f"INSERT INTO {table} ({names}) OVERRIDING SYSTEM VALUE VALUES\n{rows};")
    return lines


async def generate(url: str, version: int) -> str:
    """Return the rows of every table of the schema of a version; nothing is left in the database."""
    async with await connect(url) as db, db.transaction(force_rollback=True):
        await db.execute("CREATE SCHEMA upgrade; SET LOCAL search_path = upgrade, public")
        await schema.create_schema(db, version)
        await fill(db)
        head = f"-- Rows of every table of schema {version:04d}, written by generate_rows.py.\n"
        return head + "\n".join(await dump(db)) + "\n"


def rows_file(version: int) -> Path:
    """Return the file with the rows of a version's schema."""
    return FOLDER / f"rows_{version:04d}.sql"


def main() -> None:
    """Write the missing files."""
    with tempfile.TemporaryDirectory() as folder, embedded_postgres(Path(folder) / "data") as url:
        for version in schema.list_versions():
            if version >= FIRST and not rows_file(version).exists():
                rows_file(version).write_text(asyncio.run(generate(url, version)))


if __name__ == "__main__":
    main()
