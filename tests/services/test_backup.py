"""Test that a backup is a snapshot of everything, and that a restore is complete and repeats no delivery."""

import asyncio
import io
import json
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from outcrop.domain.errors import BadInputError, OperatorError, OutcropError
from outcrop.domain.secret import reveal
from outcrop.services import accounts, maintenance
from outcrop.services.backup import RestoreSummary
from outcrop.store import db as database
from outcrop.store import keyring, operator_key, schema
from outcrop.store.backup import tables as backup_tables
from outcrop.store.backup.archive import PIECE_SIZE, ArchiveHeader, ArchiveReader, ArchiveWriter
from outcrop.store.operator_key import OperatorKey
from tests.support.backups import (
    CREDENTIAL,
    OPERATOR,
    backed_up_tables,
    create_owned_database,
    fill_every_table,
    list_tables,
    make_backup,
    restore,
    schema_objects,
    select_rows,
    verify,
    write_key_file,
)
from tests.support.databases import new_database
from tests.support.deliveries import HOST, SECRET_KEY, Customer, DeliveryTestbed, open_testbed, receiver
from tests.support.fake_https import FakeServer


@pytest.fixture(scope="module")
def testbed(
    cluster: str, worker_id: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DeliveryTestbed]:
    with open_testbed(
        create_owned_database(cluster, f"backup_{worker_id}"), tmp_path_factory.mktemp("testbed")
    ) as opened:
        yield opened


@pytest.fixture(scope="module")
def customer(testbed: DeliveryTestbed) -> Customer:
    return fill_every_table(testbed)


@pytest.fixture(scope="module")
def file(testbed: DeliveryTestbed, customer: Customer) -> bytes:
    return make_backup(testbed.url)[0]


@pytest.fixture
def empty_database(cluster: str, worker_id: str) -> str:
    """Create an empty database to restore into."""
    return create_owned_database(cluster, f"restore_{worker_id}")


@pytest.fixture(scope="module")
def unused_database(cluster: str, worker_id: str) -> str:
    """Create an empty database that no restore may fill."""
    return create_owned_database(cluster, f"unused_{worker_id}")


@pytest.fixture(scope="module")
def restored_database(cluster: str, worker_id: str, file: bytes) -> tuple[str, RestoreSummary]:
    """Restore the backup into a new database; return its URL and the summary."""
    url = create_owned_database(cluster, f"restored_{worker_id}")
    return url, restore(url, file)


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with receiver(tmp_path_factory.mktemp("receiver"), HOST) as opened:
        yield opened


def failed_checks(url: str) -> list[str]:
    """Return the names of the checks of `outcrop doctor` that fail."""

    async def main() -> list[str]:
        async with await database.connect(url) as db:
            checks = await maintenance.run_health_checks(db, OPERATOR, None)
            return [check.name for check in checks if not check.ok]

    return asyncio.run(main())


# --- the content of a backup


def test_every_table_is_backed_up_or_excluded_for_a_reason(testbed: DeliveryTestbed) -> None:
    assert set(backup_tables.TABLES) | backup_tables.EXCLUDED_TABLES.keys() == list_tables(testbed.url)
    assert not set(backup_tables.TABLES) & backup_tables.EXCLUDED_TABLES.keys()


def test_a_restore_brings_everything_back_without_superuser_rights(
    testbed: DeliveryTestbed, restored_database: tuple[str, RestoreSummary]
) -> None:
    url, summary = restored_database
    changed = {
        "audit": ("id",),
        "outbox": ("claimed_at", "outcome", "reason"),
        "scans": ("status", "finished_at", "error", "progress"),
    }
    for table in sorted(backed_up_tables(testbed.url)):
        before, after = (
            select_rows(url, table, changed.get(table, ())) for url in (testbed.url, restored_database[0])
        )
        assert before, f"{table}: nothing to compare"
        if table == "audit":
            assert set(before) < set(after), "the restore adds lines"
        else:
            assert before == after, table
    assert schema_objects(url) == schema_objects(testbed.url)
    assert select_rows(url, "keyring") == select_rows(testbed.url, "keyring")
    assert select_rows(url, "migrations", ("applied_at",)) == select_rows(
        testbed.url, "migrations", ("applied_at",)
    )
    for table in ("sessions", "links", "sign_in_attempts", "rate_windows", "procrastinate_jobs"):
        assert select_rows(testbed.url, table), "the original has rows"
        assert select_rows(url, table) == []
    assert failed_checks(url) == ["encrypted values"], "the second factor is made up"
    assert (summary.migrated, summary.deliveries, summary.runs) == ([], 2, 1)


def test_credentials_are_encrypted_in_the_backup_and_readable_after_a_restore(
    testbed: DeliveryTestbed, customer: Customer, file: bytes, restored_database: tuple[str, RestoreSummary]
) -> None:
    archive = ArchiveReader(io.BytesIO(file), "it")
    text = json.dumps(archive.header.keyring).encode() + b"".join(
        piece for table in archive.tables() for piece in table.pieces
    )
    assert b"acme/shop" in text
    for secret in (
        CREDENTIAL.encode(),
        customer.secret.encode(),
        SECRET_KEY.encode(),
        testbed.backend.keys.data_key,
        testbed.backend.keys.fingerprint_key,
    ):
        for encoded in (secret, secret.hex().encode()):
            assert encoded not in text
            assert encoded not in file
    with psycopg.connect(restored_database[0]) as db:
        query = "SELECT secret_box, account_id, id FROM findings WHERE secret_box IS NOT NULL"
        credentials = {
            reveal(testbed.backend.keys.open(box, account, id_, mask_all=True))
            for box, account, id_ in db.execute(query)
        }
    assert credentials == {CREDENTIAL, CREDENTIAL + "x"}


def test_a_restore_reuses_no_number_of_a_sequence(
    testbed: DeliveryTestbed, customer: Customer, empty_database: str
) -> None:
    deleted_account = testbed.customer().account
    testbed.backend.run(lambda db: accounts.delete_account(db, deleted_account.slug))
    restore(empty_database, make_backup(testbed.url)[0])
    with psycopg.connect(empty_database) as db:
        query = """INSERT INTO accounts (slug, plan, email, created_at)
                   VALUES ('new', 'growth', '', now()) RETURNING id"""
        (account_id,) = db.execute(query).fetchone() or (0,)
        (line,) = db.execute(
            "INSERT INTO audit (at, actor, action, outcome) VALUES (now(), '', '', 'ok') RETURNING id"
        ).fetchone() or (0,)
        assert account_id > deleted_account.id
        assert line > testbed.backend.sql("SELECT max(id) FROM audit")[0][0]


def test_concurrent_writes_are_not_in_the_backup(
    testbed: DeliveryTestbed, customer: Customer, empty_database: str
) -> None:
    testbed.backend.sql(
        "INSERT INTO views SELECT account_id, gen_random_uuid(), 'short-lived', '', '', now() FROM webhooks"
    )
    before = {table: select_rows(testbed.url, table) for table in backed_up_tables(testbed.url)}
    new_accounts: list[int] = []

    def write_during_backup(_: int) -> None:
        if not new_accounts:  # while the first table is being read
            new_accounts.append(testbed.customer().account.id)
            testbed.backend.sql("UPDATE findings SET composite_score = 1")
            testbed.backend.sql("DELETE FROM views WHERE name = 'short-lived'")
            testbed.backend.fold()

    file = make_backup(testbed.url, progress=write_during_backup)[0]
    assert new_accounts
    assert select_rows(testbed.url, "findings") != before["findings"], (
        "the changes did not wait for the backup"
    )
    restore(empty_database, file)
    for table in sorted(before.keys() - {"audit", "outbox", "scans"}):
        assert select_rows(empty_database, table) == before[table], table
    assert "counts" not in failed_checks(empty_database)


# --- deliveries and runs after a restore


def test_a_restored_database_sends_no_event_that_may_have_been_sent(
    testbed: DeliveryTestbed, hooks: FakeServer, empty_database: str, tmp_path: Path
) -> None:
    # Deliveries of other tests must not be sent here.
    testbed.backend.sql("UPDATE outbox SET claimed_at = now(), outcome = 'failed' WHERE outcome IS NULL")
    customer = testbed.customer()
    (sent,) = testbed.event(customer)
    testbed.deliver(hooks.egress)
    waiting = testbed.event(customer, 3)
    testbed.backend.sql("UPDATE outbox SET claimed_at = now(), claimer = 5 WHERE id = %s", waiting[0])
    file = make_backup(testbed.url)[0]
    testbed.backend.sql("UPDATE outbox SET claimed_at = NULL, claimer = NULL WHERE id = %s", waiting[0])
    testbed.deliver(hooks.egress)
    assert {request.headers["webhook-id"] for request in hooks.requests} >= {
        str(id_) for id_ in (sent, *waiting)
    }
    hooks.requests.clear()
    summary = restore(empty_database, file)
    assert summary.deliveries == 3
    with open_testbed(empty_database, tmp_path) as after:
        after.deliver(hooks.egress)
        assert hooks.requests == []
        unknown = ("unknown", None, "restored from a backup: it may have been sent since")
        assert after.outcomes(customer) == [("ok", 200, None), *[unknown] * 3]
        outcomes = {target: outcome for target, outcome, _ in after.trail(customer)}
        assert outcomes == {str(sent): "ok"} | {str(id_): "unknown" for id_ in waiting}
        (new,) = after.event(customer)
        after.deliver(hooks.egress)
        assert [request.headers["webhook-id"] for request in hooks.requests] == [str(new)]


def test_a_restore_fails_unfinished_runs_and_adds_an_audit_line_to_every_account(
    restored_database: tuple[str, RestoreSummary],
) -> None:
    with psycopg.connect(restored_database[0]) as db:
        assert db.execute("SELECT count(*) FROM scans WHERE finished_at IS NULL").fetchone() == (0,)
        reason = "it was still running when the backup was made"
        assert db.execute("SELECT status, error FROM scans WHERE error IS NOT NULL").fetchall() == [
            ("failed", reason)
        ]
        lines = db.execute("SELECT outcome, detail FROM audit WHERE action = 'scan.finish'").fetchall()
        assert lines == [("failed", {"new": 0, "seen": 0, "resolved": 0, "error": reason})]
        restore_lines = db.execute(
            "SELECT account_id, actor, detail FROM audit WHERE action = 'database.restore'"
        ).fetchall()
        account_ids = db.execute("SELECT id FROM accounts").fetchall()
    assert sorted(account for account, _, _ in restore_lines) == sorted(account for (account,) in account_ids)
    assert {actor for _, actor, _ in restore_lines} == {"test"}
    assert all(
        set(detail) == {"made_at", "made_by", "deliveries_unknown", "runs_ended"}
        for _, _, detail in restore_lines
    )


# --- other versions


def test_a_backup_of_an_older_schema_is_migrated(cluster: str, worker_id: str, empty_database: str) -> None:
    older = new_database(cluster, f"older_{worker_id}")

    async def make() -> None:
        async with await database.connect(older) as db, db.transaction():
            await schema.create_schema(db, 7)
            await operator_key.upsert_wrapped_keys(
                db, operator_key._wrap(keyring.Keyring(b"d" * 32, b"f" * 32), SECRET_KEY, b"s" * 16)
            )
            await db.execute(
                """INSERT INTO accounts (slug, plan, email, created_at)
                   VALUES ('acme', 'growth', '', now())"""
            )
            await db.execute(
                """INSERT INTO findings (account_id, id, status, validation_status, validation_confidence,
                       validation_detail, composite_score, source_type, source_visibility, matched_text,
                       pattern_name, pattern_secret_type, first_seen_at, last_seen_at, seen_count, secret_box)
                   SELECT 1, gen_random_uuid(), status, 'valid', 'high', '{"enabled_services": ["aws"]}',
                          50, 'repo', 'public', '', '', 'aws', now(), now(), 1, 'x'
                   FROM unnest('{active,customer_restricted}'::text[]) AS t (status)"""
            )

    asyncio.run(make())
    file, summary = make_backup(older)
    assert summary.schema == 7
    assert "0008_asking_again" not in str(select_rows(older, "migrations")), "a backup changes nothing"
    restore_summary = restore(empty_database, file)
    assert restore_summary.migrated[0] == "0008_asking_again"
    assert restore_summary.migrated[-1] == max(restore_summary.migrated)
    assert failed_checks(empty_database) == ["encrypted values"], "these are made up"
    with psycopg.connect(empty_database) as db:
        assert db.execute("SELECT status FROM findings WHERE closed_at IS NOT NULL").fetchall() == [
            ("customer_restricted",)
        ]
        assert db.execute("SELECT n FROM rollups WHERE kind = 11 ORDER BY n").fetchall() == [(1,), (1,)]


def build_sealed_file(header: ArchiveHeader, testbed: DeliveryTestbed) -> bytes:
    """Return a file without tables whose MAC is made with the database's own keys."""
    file = io.BytesIO()
    ArchiveWriter(file, header).finish(testbed.backend.keys.compute_backup_mac)
    return file.getvalue()


def test_a_backup_of_a_newer_schema_is_refused(testbed: DeliveryTestbed, file: bytes) -> None:
    header = verify(file).header
    newer = replace(header, schema=schema.newest_version() + 1)
    with pytest.raises(BadInputError, match="newer version of Outcrop: upgrade"):
        verify(build_sealed_file(newer, testbed))


def test_a_newer_or_empty_database_is_not_backed_up(
    restored_database: tuple[str, RestoreSummary], unused_database: str
) -> None:
    with psycopg.connect(restored_database[0], autocommit=True) as db:
        db.execute("INSERT INTO migrations VALUES (9999, 'from the future', now())")
        with pytest.raises(OperatorError, match="newer than this version"):
            make_backup(restored_database[0])
        db.execute("DELETE FROM migrations WHERE version = 9999")
    with pytest.raises(OperatorError, match="nothing to back up"):
        make_backup(unused_database)


# --- files and databases that are refused


def test_a_wrong_or_missing_secret_key_is_refused(file: bytes, tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="does not fit this backup"):
        verify(file, operator=OperatorKey("another key of enough length", tmp_path / "secret.key"))
    with pytest.raises(OperatorError, match="the secret key of this backup is needed"):
        verify(file, operator=OperatorKey(None, tmp_path / "secret.key"))
    assert list(tmp_path.iterdir()) == [], "no key file is created"


def test_during_a_rotation_either_key_works_and_no_key_file_changes(
    testbed: DeliveryTestbed, customer: Customer, tmp_path: Path
) -> None:
    operator = OperatorKey(None, tmp_path / "secret.key")
    for now_, next_ in (
        (SECRET_KEY, "of a rotation that is not finished"),
        ("of before the rotation", SECRET_KEY),
    ):
        write_key_file(operator.file, now_)
        write_key_file(operator.file.with_name("secret.key.new"), next_)
        assert verify(make_backup(testbed.url, operator=operator)[0], operator=operator)
        assert sorted(path.read_text() for path in tmp_path.iterdir()) == sorted((now_, next_))


def test_a_file_with_a_mac_of_other_keys_is_refused(testbed: DeliveryTestbed, file: bytes) -> None:
    forged = io.BytesIO()
    ArchiveWriter(forged, verify(file).header).finish(
        keyring.Keyring(b"d" * 32, b"f" * 32).compute_backup_mac
    )
    with pytest.raises(BadInputError, match="was altered"):
        verify(forged.getvalue())


@pytest.mark.parametrize(
    "change",
    [{"data_key": "00" * 60}, {"check_value": "00"}, {"salt": "zz"}, {"more": "00"}, {"fingerprint_key": ""}],
)
def test_a_file_with_wrong_keys_in_its_header_is_refused(
    testbed: DeliveryTestbed, file: bytes, change: dict[str, str]
) -> None:
    header = verify(file).header
    with pytest.raises(OutcropError, match=r"are damaged|has no keys that"):
        verify(build_sealed_file(replace(header, keyring=header.keyring | change), testbed))


@pytest.mark.parametrize("tables_of", ["none", "unknown", "twice", "columns", "rows"])
def test_a_file_with_wrong_tables_is_refused_and_restores_nothing(
    testbed: DeliveryTestbed, file: bytes, unused_database: str, tables_of: str
) -> None:
    """A file with a valid MAC can only contain rows of our own tables."""
    archive, out = ArchiveReader(io.BytesIO(file), "it"), io.BytesIO()
    writer = ArchiveWriter(out, archive.header)
    for stored in archive.tables() if tables_of != "none" else ():
        pieces = list(stored.pieces)
        for _ in range(2 if tables_of == "twice" and stored.name == "rollup_deltas" else 1):
            columns = (
                stored.columns[:-1] if tables_of == "columns" and stored.name == "views" else stored.columns
            )
            writer.begin_table(
                "pg_authid" if tables_of == "unknown" and stored.name == "views" else stored.name, columns
            )
            for piece in pieces:
                writer.add_rows(piece)
            writer.end_table(stored.rows + (tables_of == "rows" and stored.name == "views"))
    writer.finish(testbed.backend.keys.compute_backup_mac)
    with pytest.raises(BadInputError, match="does not have the tables of schema"):
        restore(unused_database, out.getvalue())
    assert list_tables(unused_database) == set()


def test_a_file_that_changes_between_verification_and_restore_is_refused(
    testbed: DeliveryTestbed, file: bytes, unused_database: str
) -> None:
    other = make_backup(testbed.url)[0]
    with pytest.raises(BadInputError, match="was altered"):
        restore(unused_database, other, verify(file))
    assert list_tables(unused_database) == set()


def test_rows_that_the_database_rejects_are_reported_without_their_values(
    testbed: DeliveryTestbed, file: bytes, unused_database: str
) -> None:
    archive, out = ArchiveReader(io.BytesIO(file), "it"), io.BytesIO()
    writer = ArchiveWriter(out, archive.header)
    for stored in archive.tables():
        writer.begin_table(stored.name, stored.columns)
        for piece in stored.pieces:
            writer.add_rows(piece.replace(b"growth", b"\\xff\\xfe") if stored.name == "accounts" else piece)
        writer.end_table(stored.rows)
    writer.finish(testbed.backend.keys.compute_backup_mac)
    with pytest.raises(OutcropError) as error, database.convert_database_errors("nothing was restored"):
        restore(unused_database, out.getvalue())
    assert error.value.message == "nothing was restored: CharacterNotInRepertoire"
    assert list_tables(unused_database) == set()


def test_a_database_that_is_not_empty_is_refused_and_not_changed(
    testbed: DeliveryTestbed, file: bytes, unused_database: str
) -> None:
    before = select_rows(testbed.url, "findings")
    with pytest.raises(OperatorError, match="the database is not empty"):
        restore(testbed.url, file)
    assert select_rows(testbed.url, "findings") == before
    with psycopg.connect(unused_database, autocommit=True) as db:
        db.execute("CREATE TABLE somebody_elses (x int)")
        with pytest.raises(OperatorError, match="the database is not empty"):
            restore(unused_database, file)
        assert list_tables(unused_database) == {"somebody_elses"}
        db.execute("DROP TABLE somebody_elses")


def test_a_database_with_only_an_extension_counts_as_empty(cluster: str, unused_database: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(unused_database)["dbname"]

    async def main() -> None:
        url = psycopg.conninfo.make_conninfo(cluster, dbname=name)
        async with await database.connect(url) as db, db.transaction(force_rollback=True):
            await db.execute("CREATE EXTENSION pg_stat_statements")
            await schema.create_schema(db, 1)

    asyncio.run(main())
    assert list_tables(unused_database) == set()


def test_missing_rights_to_create_tables_are_reported_in_one_line(
    file: bytes, unused_database: str, cluster: str
) -> None:
    other_role_url = psycopg.conninfo.make_conninfo(
        unused_database,
        user=psycopg.conninfo.conninfo_to_dict(unused_database)["dbname"].replace("unused", "backup"),
    )
    with pytest.raises(OutcropError) as error, database.convert_database_errors("nothing was restored"):
        restore(other_role_url, file)
    assert error.value.message.startswith("nothing was restored: permission denied")


def test_a_restored_table_needs_no_vacuum(restored_database: tuple[str, RestoreSummary]) -> None:
    with psycopg.connect(restored_database[0]) as db:
        (pages, visible) = db.execute(
            "SELECT relpages, relallvisible FROM pg_class WHERE relname = 'findings'"
        ).fetchone() or (0, 0)
    assert pages == visible > 0


def test_a_restore_waits_for_a_slow_server_and_buffers_nothing(
    restored_database: tuple[str, RestoreSummary],
) -> None:
    sent_pieces: list[int] = []
    sent_while_stopped: list[int] = []

    def pieces(pid: int) -> Iterator[bytes]:
        def resume_server() -> None:
            sent_while_stopped.append(len(sent_pieces))
            os.kill(pid, signal.SIGCONT)

        os.kill(pid, signal.SIGSTOP)
        threading.Timer(0.5, resume_server).start()
        for number in range(30):
            sent_pieces.append(number)
            yield b"1\t%d\te\t" % number + b"x" * PIECE_SIZE + b"\n"

    async def main() -> int:
        async with await database.connect(restored_database[0]) as db, db.transaction():
            # COPY FREEZE needs a table that was created or truncated in this transaction.
            await db.execute("TRUNCATE etags")
            table = backup_tables.TableColumns("etags", ["account_id", "key", "etag", "body"])
            return await backup_tables.copy_table_in(db, table, pieces(db.info.backend_pid))

    assert asyncio.run(main()) == 30
    assert 0 < sent_while_stopped[0] < 5
