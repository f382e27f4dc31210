"""Make, verify and restore backups in tests, of a database with rows in every table."""

import asyncio
import io
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql

from outcrop.domain.clock import now
from outcrop.services import backup as backups
from outcrop.services.backup import BackupSummary, RestoreSummary, VerifiedBackup
from outcrop.store import db as database
from outcrop.store.backup.tables import EXCLUDED_TABLES
from outcrop.store.operator_key import OperatorKey
from tests.support.databases import new_database
from tests.support.deliveries import SECRET_KEY, Customer, DeliveryTestbed
from tests.support.factories import make_line, make_scan

OPERATOR = OperatorKey(SECRET_KEY, Path("/nonexistent"))
CREDENTIAL = "made-up-" + "Qz7" * 9


def make_backup(
    url: str, *, progress: Any = lambda _: None, operator: OperatorKey = OPERATOR
) -> tuple[bytes, BackupSummary]:
    file = io.BytesIO()

    async def main() -> BackupSummary:
        async with await database.connect(url) as db:
            return await backups.write_backup(
                db, operator, file, version="0.0.1", now=now(), progress=progress
            )

    summary = asyncio.run(main())
    return file.getvalue(), summary


def verify(file: bytes, *, operator: OperatorKey = OPERATOR) -> VerifiedBackup:
    return asyncio.run(backups.verify_backup(io.BytesIO(file), "it", operator, progress=lambda _: None))


def restore(url: str, file: bytes, verified: VerifiedBackup | None = None) -> RestoreSummary:
    """Restore a file that was verified before, or else verify it first."""
    verified = verified or verify(file)

    async def main() -> RestoreSummary:
        async with await database.connect(url) as db, db.transaction():
            return await backups.restore_backup(
                db, io.BytesIO(file), "it", verified, by="test", now=now(), progress=lambda _: None
            )

    return asyncio.run(main())


def create_owned_database(cluster: str, name: str) -> str:
    """Create an empty database, owned by a new role without other rights; return its URL for that role."""
    with psycopg.connect(cluster, autocommit=True) as db:
        db.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        db.execute(f"DROP ROLE IF EXISTS {name}")
        db.execute(f"CREATE ROLE {name} LOGIN NOSUPERUSER")
    return psycopg.conninfo.make_conninfo(new_database(cluster, name, owner=name), user=name)


def list_tables(url: str) -> set[str]:
    with psycopg.connect(url) as db:
        return {
            name
            for (name,) in db.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        }


def select_rows(url: str, table: str, without: tuple[str, ...] = ()) -> list[str]:
    """Return every row of a table as JSON text, without the columns in `without`."""
    with psycopg.connect(url) as db:
        removals = sql.SQL("").join(sql.SQL(" - {}").format(sql.Literal(column)) for column in without)
        query = sql.SQL("SELECT (to_jsonb(t){})::text FROM {} t ORDER BY 1").format(
            removals, sql.Identifier(table)
        )
        return [row for (row,) in db.execute(query)]


def schema_objects(url: str) -> set[tuple[str, ...]]:
    """Return the indexes, constraints, triggers and functions of the database."""
    queries = (
        "SELECT 'index', indexdef FROM pg_indexes WHERE schemaname = 'public'",
        (
            "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint "
            "WHERE conrelid <> 0"
        ),
        # Without parentheses: the server prints those of a long OR in another way after it was created again.
        """SELECT 'trigger', translate(pg_get_triggerdef(oid), '()', ''), tgenabled::text
           FROM pg_trigger WHERE NOT tgisinternal""",
        """SELECT 'function', pg_get_functiondef(p.oid) FROM pg_proc p
           WHERE pronamespace = 'public'::regnamespace AND prokind = 'f'
             AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')""",
    )
    with psycopg.connect(url) as db:
        return {row for query in queries for row in db.execute(query.encode())}


def fill_every_table(testbed: DeliveryTestbed) -> Customer:
    """Insert rows into every table, by services or by plain SQL; return the account."""
    customer = testbed.customer()
    account = customer.account
    member, run, ended, other = uuid4(), uuid4(), uuid4(), testbed.customer()
    special_characters = {
        "file_path": "a\tb\\n\u2028.py",
        "resolution_note": 'line\nbreak \\. "',
        "status": "resolved",
        "secret": CREDENTIAL + "x",
    }
    testbed.backend.import_(
        account,
        make_line(secret=CREDENTIAL),
        make_line(**special_characters),
        make_line(status="customer_restricted"),
    )
    testbed.backend.import_(other.account, make_line())
    testbed.backend.sql("UPDATE findings SET composite_score = composite_score / 3")  # leaves unfolded deltas
    testbed.backend.key(account)
    testbed.event(customer, 2)
    for id_, status, finished in ((run, "running", None), (ended, "completed", now())):
        testbed.backend.scan(account, make_scan(id=id_, status=status, finished_at=finished))
    digest = uuid4().bytes
    for statement, *values in (
        ("INSERT INTO members VALUES (%s, %s, %s, 'owner', 'hash', now())", member, account.id, str(member)),
        (
            "INSERT INTO sessions VALUES (%s, %s, %s, %s, now(), now(), '', '')",
            digest,
            uuid4(),
            account.id,
            member,
        ),
        (
            "INSERT INTO links VALUES (%s, %s, %s, 'reset', '', 'owner', %s, null, '', now(), now())",
            digest,
            uuid4(),
            account.id,
            member,
        ),
        ("INSERT INTO sign_in_attempts (email, at) VALUES (%s, now())", digest),
        ("INSERT INTO rate_windows SELECT id, now(), 1, now() FROM api_keys",),
        ("INSERT INTO pull_requests VALUES (%s, 'a source', 5, ARRAY['abc'], 1, now())", account.id),
        ("INSERT INTO second_factors VALUES (%s, %s, %s, 7, now())", member, account.id, digest),
        ("INSERT INTO recovery_codes VALUES (%s, %s)", member, digest),
        ("INSERT INTO views VALUES (%s, %s, 'mine', 'status=active', 'jo', now())", account.id, uuid4()),
        (
            """INSERT INTO imports (account_id, id, status, format, events, created_by, created_at)
               VALUES (%s, %s, 'completed', 'gitleaks', true, 'ci', now())""",
            account.id,
            uuid4(),
        ),
        (
            (
                "INSERT INTO targets VALUES (%s, %s, 'owner', 'github:acme', 'daily', '{a,\"b,c\"}', '{}', '{}', "
                "null, now(), now())"
            ),
            account.id,
            uuid4(),
        ),
        ("INSERT INTO sources VALUES (%s, 'github:1', null, '', %s, %s, now())", account.id, digest, ended),
        (
            "INSERT INTO source_names VALUES (%s, 'github:1', %s, true) ON CONFLICT DO NOTHING",
            account.id,
            uuid4(),
        ),
        ("INSERT INTO source_aliases VALUES (%s, 'https://github.com/acme/shop', 'github:1')", account.id),
        ("INSERT INTO etags VALUES (%s, 'k', 'e', %s)", account.id, b"\x00\\\n\xff" * 9),
        (
            (
                "INSERT INTO scan_sources (account_id, scan_id, source, spec, status) "
                "VALUES (%s, %s, 'github:1', '{}', 'running')"
            ),
            account.id,
            run,
        ),
        (
            "INSERT INTO occurrences SELECT account_id, id, %s FROM findings WHERE account_id = %s",
            digest,
            account.id,
        ),
        (
            "INSERT INTO target_sources SELECT account_id, id, 'github:1' FROM targets WHERE account_id = %s",
            account.id,
        ),
        ("INSERT INTO due_days VALUES (%s, 'critical', 1)", account.id),
        (
            """INSERT INTO incident_comments (account_id, id, incident_id, at, by, text)
               SELECT account_id, %s, id, now(), 'jo', 'rotated' FROM incidents WHERE account_id = %s LIMIT 1""",
            *(uuid4(), account.id),
        ),
        (
            """INSERT INTO mentions (account_id, member_id, comment_id)
               SELECT m.account_id, m.id, c.id FROM members m JOIN incident_comments c USING (account_id)
               WHERE account_id = %s LIMIT 1""",
            account.id,
        ),
        (
            """INSERT INTO assignment_rules (account_id, id, repo, repo_like, assignee, created_by, created_at)
               VALUES (%s, %s, 'acme/*', 'acme/%%', 'jo', 'jo', now())""",
            *(account.id, uuid4()),
        ),
        ("INSERT INTO incident_changes (account_id, id) SELECT account_id, id FROM incidents",),
        (
            """INSERT INTO suppression_rules (account_id, id, path, path_like, reason, created_by, created_at)
               VALUES (%s, %s, 'docs/*', 'docs/%%', 'examples', 'jo', now())""",
            *(account.id, uuid4()),
        ),
        (
            "INSERT INTO hooks VALUES (%s, %s, 'gitea', %s, %s, now(), 'jo')",
            *(account.id, uuid4(), digest, digest),
        ),
        ("INSERT INTO procrastinate_jobs (queue_name, task_name) VALUES ('outcrop', 'look_at_source')",),
        ("UPDATE outbox SET claimed_at = now(), claimer = 5 WHERE ctid = (SELECT max(ctid) FROM outbox)",),
        (
            (
                "INSERT INTO verdicts VALUES (%s, %s, 'valid', 'high', '', '{aws}', true, false, false, now()) "
                "ON CONFLICT DO NOTHING"
            ),
            *(account.id, digest),
        ),
    ):
        testbed.backend.sql(statement, *values)
    return customer


def backed_up_tables(url: str) -> set[str]:
    return list_tables(url) - EXCLUDED_TABLES.keys()


def write_key_file(file: Path, text: str) -> None:
    """Write a key file that only its owner can read."""
    file.touch(0o600)
    file.write_text(text)
