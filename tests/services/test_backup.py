"""A backup holds everything of one moment, and what is restored from it is the same, but for what must not happen twice."""

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
from outcrop.store import keyring, schema
from outcrop.store.backup import tables as backup_tables
from outcrop.store.backup.archive import PIECE_SIZE, ArchiveHeader, ArchiveReader, ArchiveWriter
from outcrop.store.keyring import OperatorKey
from tests.support import backups
from tests.support.backups import (
    CREDENTIAL,
    OPERATOR,
    backed_up,
    checked,
    fill,
    form,
    kept,
    plain_owner,
    restored,
    rows,
    tables,
)
from tests.support.deliveries import HOST, SECRET_KEY, Customer, Office, open_office, receiver
from tests.support.fake_https import FakeServer
from tests.support.workers import new_database


@pytest.fixture(scope="module")
def office(cluster: str, worker_id: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with open_office(plain_owner(cluster, f"backup_{worker_id}"), tmp_path_factory.mktemp("office")) as made:
        yield made


@pytest.fixture(scope="module")
def customer(office: Office) -> Customer:
    return fill(office)


@pytest.fixture(scope="module")
def file(office: Office, customer: Customer) -> bytes:
    return backed_up(office.url)[0]


@pytest.fixture
def empty(cluster: str, worker_id: str) -> str:
    """A database to restore into."""
    return plain_owner(cluster, f"restore_{worker_id}")


@pytest.fixture(scope="module")
def barren(cluster: str, worker_id: str) -> str:
    """A database that stays empty, as nothing is to be restored into it."""
    return plain_owner(cluster, f"barren_{worker_id}")


@pytest.fixture(scope="module")
def back(cluster: str, worker_id: str, file: bytes) -> tuple[str, RestoreSummary]:
    """A database that was restored, to be looked at."""
    url = plain_owner(cluster, f"back_{worker_id}")
    return url, restored(url, file)


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with receiver(tmp_path_factory.mktemp("receiver"), HOST) as made:
        yield made


def examined(url: str) -> dict[str, bool]:
    async def main() -> dict[str, bool]:
        async with await database.connect(url) as db:
            return {check.name: check.ok for check in await maintenance.run_health_checks(db, OPERATOR)}

    return asyncio.run(main())


# --- what is in it


def test_every_table_is_backed_up_or_left_out_for_a_reason(office: Office) -> None:
    assert set(backup_tables.TABLES) | backup_tables.EXCLUDED_TABLES.keys() == tables(office.url)
    assert not set(backup_tables.TABLES) & backup_tables.EXCLUDED_TABLES.keys()


def test_everything_comes_back_as_it_was_for_an_owner_who_is_no_superuser(
    office: Office, back: tuple[str, RestoreSummary]
) -> None:
    url, done = back
    changed = {
        "audit": ("id",),
        "outbox": ("claimed_at", "outcome", "reason"),
        "scans": ("status", "finished_at", "error", "progress"),
    }
    for table in sorted(kept(office.url)):
        before, after = (rows(url, table, changed.get(table, ())) for url in (office.url, back[0]))
        assert before, f"{table}: nothing to compare"
        if table == "audit":
            assert set(before) < set(after), "lines are added"
        else:
            assert before == after, table
    assert form(url) == form(office.url)
    assert rows(url, "keyring") == rows(office.url, "keyring")
    assert rows(url, "migrations", ("applied_at",)) == rows(office.url, "migrations", ("applied_at",))
    for table in ("sessions", "links", "sign_in_attempts", "rate_windows", "procrastinate_jobs"):
        assert rows(office.url, table), "it was there"
        assert rows(url, table) == []
    assert set(examined(url).values()) == {True}
    assert (done.migrated, done.deliveries, done.runs) == ([], 2, 1)


def test_a_stored_credential_opens_after_a_restore_and_is_in_no_backup_in_plain_text(
    office: Office, customer: Customer, file: bytes, back: tuple[str, RestoreSummary]
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
        office.backend.keys.data_key,
        office.backend.keys.fingerprint_key,
    ):
        for written in (secret, secret.hex().encode()):
            assert written not in text
            assert written not in file
    with psycopg.connect(back[0]) as db:
        query = "SELECT secret_box, account_id, id FROM findings WHERE secret_box IS NOT NULL"
        opened = {
            reveal(office.backend.keys.open(box, account, id_, mask_all=True))
            for box, account, id_ in db.execute(query)
        }
    assert opened == {CREDENTIAL, CREDENTIAL + "x"}


def test_numbers_that_were_given_out_are_not_given_out_again(
    office: Office, customer: Customer, empty: str
) -> None:
    gone = office.customer().account
    office.backend.run(lambda db: accounts.delete_account(db, gone.slug))
    restored(empty, backed_up(office.url)[0])
    with psycopg.connect(empty) as db:
        query = "INSERT INTO accounts (slug, plan, email, created_at) VALUES ('new', 'growth', '', now()) RETURNING id"
        (made,) = db.execute(query).fetchone() or (0,)
        (line,) = db.execute(
            "INSERT INTO audit (at, actor, action, outcome) VALUES (now(), '', '', 'ok') RETURNING id"
        ).fetchone() or (0,)
        assert made > gone.id
        assert line > office.backend.sql("SELECT max(id) FROM audit")[0][0]


def test_what_is_written_meanwhile_is_wholly_in_it_or_not_at_all(
    office: Office, customer: Customer, empty: str
) -> None:
    office.backend.sql(
        "INSERT INTO views SELECT account_id, gen_random_uuid(), 'short-lived', '', '', now() FROM webhooks"
    )
    before = {table: rows(office.url, table) for table in kept(office.url)}
    came: list[int] = []

    def meanwhile(_: int) -> None:
        if not came:  # the first table is being read
            came.append(office.customer().account.id)
            office.backend.sql("UPDATE findings SET composite_score = 1")
            office.backend.sql("DELETE FROM views WHERE name = 'short-lived'")
            office.backend.fold()

    file = backed_up(office.url, progress=meanwhile)[0]
    assert came
    assert rows(office.url, "findings") != before["findings"], "it was not waited for"
    restored(empty, file)
    for table in sorted(before.keys() - {"audit", "outbox", "scans"}):
        assert rows(empty, table) == before[table], table
    assert examined(empty)["counts"]


# --- what must not happen twice


def test_nothing_is_sent_that_may_have_been_sent_since(
    office: Office, hooks: FakeServer, empty: str, tmp_path: Path
) -> None:
    office.backend.sql(
        "UPDATE outbox SET claimed_at = now(), outcome = 'failed' WHERE outcome IS NULL"
    )  # of other tests
    one = office.customer()
    (sent,) = office.event(one)
    office.deliver(hooks.egress)
    waiting = office.event(one, 3)
    office.backend.sql("UPDATE outbox SET claimed_at = now(), claimer = 5 WHERE id = %s", waiting[0])
    file = backed_up(office.url)[0]
    office.backend.sql("UPDATE outbox SET claimed_at = NULL, claimer = NULL WHERE id = %s", waiting[0])
    office.deliver(hooks.egress)
    assert {asked.headers["webhook-id"] for asked in hooks.requests} >= {str(id_) for id_ in (sent, *waiting)}
    hooks.requests.clear()
    done = restored(empty, file)
    assert done.deliveries == 3
    with open_office(empty, tmp_path) as after:
        after.deliver(hooks.egress)
        assert hooks.requests == []
        unknown = ("unknown", None, "restored from a backup: it may have been sent since")
        assert after.outcomes(one) == [("ok", 200, None), *[unknown] * 3]
        told = {target: outcome for target, outcome, _ in after.trail(one)}
        assert told == {str(sent): "ok"} | {str(id_): "unknown" for id_ in waiting}
        (new,) = after.event(one)
        after.deliver(hooks.egress)
        assert [asked.headers["webhook-id"] for asked in hooks.requests] == [str(new)]


def test_runs_that_had_not_ended_have_failed_and_every_account_is_told(
    back: tuple[str, RestoreSummary],
) -> None:
    with psycopg.connect(back[0]) as db:
        assert db.execute("SELECT count(*) FROM scans WHERE finished_at IS NULL").fetchone() == (0,)
        why = "it was still running when the backup was made"
        assert db.execute("SELECT status, error FROM scans WHERE error IS NOT NULL").fetchall() == [
            ("failed", why)
        ]
        lines = db.execute("SELECT outcome, detail FROM audit WHERE action = 'scan.finish'").fetchall()
        assert lines == [("failed", {"new": 0, "seen": 0, "resolved": 0, "error": why})]
        told = db.execute(
            "SELECT account_id, actor, detail FROM audit WHERE action = 'database.restore'"
        ).fetchall()
        every = db.execute("SELECT id FROM accounts").fetchall()
    assert sorted(account for account, _, _ in told) == sorted(account for (account,) in every)
    assert {actor for _, actor, _ in told} == {"test"}
    assert all(
        set(detail) == {"made_at", "made_by", "deliveries_unknown", "runs_ended"} for _, _, detail in told
    )


# --- other versions


def test_a_backup_of_an_older_schema_is_migrated_and_counts_are_right(
    cluster: str, worker_id: str, empty: str
) -> None:
    older = new_database(cluster, f"older_{worker_id}")

    async def make() -> None:
        async with await database.connect(older) as db, db.transaction():
            await schema.create_schema(db, 7)
            await keyring.upsert_wrapped_keys(
                db, keyring._wrap(keyring.Keyring(b"d" * 32, b"f" * 32), SECRET_KEY, b"s" * 16)
            )
            await db.execute(
                """INSERT INTO accounts (slug, plan, email, created_at) VALUES ('acme', 'growth', '', now())"""
            )
            await db.execute(
                """INSERT INTO findings (account_id, id, status, validation_status, validation_confidence, validation_detail,
                       composite_score, source_type, source_visibility, matched_text, pattern_name, pattern_secret_type,
                       first_seen_at, last_seen_at, seen_count, secret_box)
                   SELECT 1, gen_random_uuid(), status, 'valid', 'high', '{"enabled_services": ["aws"]}',
                          50, 'repo', 'public', '', '', 'aws', now(), now(), 1, 'x'
                   FROM unnest('{active,customer_restricted}'::text[]) AS t (status)"""
            )

    asyncio.run(make())
    file, done = backed_up(older)
    assert done.schema == 7
    assert "0008_asking_again" not in str(rows(older, "migrations")), "a backup changes nothing"
    back = restored(empty, file)
    assert back.migrated[0] == "0008_asking_again"
    assert back.migrated[-1] == max(back.migrated)
    assert set(examined(empty).values()) == {True}
    with psycopg.connect(empty) as db:
        assert db.execute("SELECT status FROM findings WHERE closed_at IS NOT NULL").fetchall() == [
            ("customer_restricted",)
        ]
        assert db.execute("SELECT n FROM rollups WHERE kind = 11 ORDER BY n").fetchall() == [(1,), (1,)]


def sealed(header: ArchiveHeader, office: Office) -> bytes:
    """A file that the database's own keys vouch for, without a table."""
    file = io.BytesIO()
    ArchiveWriter(file, header).finish(office.backend.keys.compute_backup_mac)
    return file.getvalue()


def test_a_newer_schema_is_refused(office: Office, file: bytes) -> None:
    header = checked(file).header
    newer = replace(header, schema=schema.newest_version() + 1)
    with pytest.raises(BadInputError, match="newer version of Outcrop: upgrade"):
        checked(sealed(newer, office))


def test_a_database_of_a_newer_program_is_not_backed_up_nor_an_empty_one(
    back: tuple[str, RestoreSummary], barren: str
) -> None:
    with psycopg.connect(back[0], autocommit=True) as db:
        db.execute("INSERT INTO migrations VALUES (9999, 'from the future', now())")
        with pytest.raises(OperatorError, match="newer version"):
            backed_up(back[0])
        db.execute("DELETE FROM migrations WHERE version = 9999")
    with pytest.raises(OperatorError, match="nothing to back up"):
        backed_up(barren)


# --- files and databases that are refused


def test_another_key_is_refused_and_none_too(file: bytes, tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="does not fit this backup"):
        checked(file, operator=OperatorKey("another key of enough length", tmp_path / "secret.key"))
    with pytest.raises(OperatorError, match="the secret key of this backup is needed"):
        checked(file, operator=OperatorKey(None, tmp_path / "secret.key"))
    assert list(tmp_path.iterdir()) == [], "no key is made"


def test_a_rotation_that_is_under_way_is_left_alone_and_either_key_will_do(
    office: Office, customer: Customer, tmp_path: Path
) -> None:
    operator = OperatorKey(None, tmp_path / "secret.key")
    for now_, next_ in (
        (SECRET_KEY, "of a rotation that is not finished"),
        ("of before the rotation", SECRET_KEY),
    ):
        operator.file.write_text(now_)
        operator.file.with_name("secret.key.new").write_text(next_)
        assert checked(backed_up(office.url, operator=operator)[0], operator=operator)
        assert sorted(path.read_text() for path in tmp_path.iterdir()) == sorted((now_, next_))


def test_a_file_that_somebody_without_the_keys_has_sealed_is_refused(office: Office, file: bytes) -> None:
    forged = io.BytesIO()
    ArchiveWriter(forged, checked(file).header).finish(
        keyring.Keyring(b"d" * 32, b"f" * 32).compute_backup_mac
    )
    with pytest.raises(BadInputError, match="was altered"):
        checked(forged.getvalue())


@pytest.mark.parametrize(
    "change",
    [{"data_key": "00" * 60}, {"check_value": "00"}, {"salt": "zz"}, {"more": "00"}, {"fingerprint_key": ""}],
)
def test_a_file_with_other_keys_in_its_head_is_refused(
    office: Office, file: bytes, change: dict[str, str]
) -> None:
    header = checked(file).header
    with pytest.raises(OutcropError, match=r"are damaged|has no keys that"):
        checked(sealed(replace(header, keyring=header.keyring | change), office))


@pytest.mark.parametrize("tables_of", ["none", "unknown", "twice", "columns", "rows"])
def test_a_file_with_other_tables_is_refused_and_nothing_is_left(
    office: Office, file: bytes, barren: str, tables_of: str
) -> None:
    """Not even the keys let a file bring more than rows of our own tables."""
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
    writer.finish(office.backend.keys.compute_backup_mac)
    with pytest.raises(BadInputError, match="does not have the tables of schema"):
        restored(barren, out.getvalue())
    assert tables(barren) == set()


def test_a_file_that_changes_between_the_two_readings_is_refused(
    office: Office, file: bytes, barren: str, monkeypatch
) -> None:
    other = backed_up(office.url)[0]
    known = checked(file)
    monkeypatch.setattr(backups, "checked", lambda _: known)
    with pytest.raises(BadInputError, match="was altered"):
        restored(barren, other)
    assert tables(barren) == set()


def test_rows_that_the_database_does_not_take_are_told_without_their_values(
    office: Office, file: bytes, barren: str
) -> None:
    archive, out = ArchiveReader(io.BytesIO(file), "it"), io.BytesIO()
    writer = ArchiveWriter(out, archive.header)
    for stored in archive.tables():
        writer.begin_table(stored.name, stored.columns)
        for piece in stored.pieces:
            writer.add_rows(piece.replace(b"growth", b"\\xff\\xfe") if stored.name == "accounts" else piece)
        writer.end_table(stored.rows)
    writer.finish(office.backend.keys.compute_backup_mac)
    with pytest.raises(OutcropError) as told, database.convert_database_errors("nothing was restored"):
        restored(barren, out.getvalue())
    assert told.value.message == "nothing was restored: CharacterNotInRepertoire"
    assert tables(barren) == set()


def test_a_database_that_holds_anything_is_refused_and_stays_as_it_is(
    office: Office, file: bytes, barren: str
) -> None:
    before = rows(office.url, "findings")
    with pytest.raises(OperatorError, match="the database is not empty"):
        restored(office.url, file)
    assert rows(office.url, "findings") == before
    with psycopg.connect(barren, autocommit=True) as db:
        db.execute("CREATE TABLE somebody_elses (x int)")
        with pytest.raises(OperatorError, match="the database is not empty"):
            restored(barren, file)
        assert tables(barren) == {"somebody_elses"}
        db.execute("DROP TABLE somebody_elses")


def test_an_extension_of_the_operator_does_not_make_a_database_used(cluster: str, barren: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(barren)["dbname"]

    async def main() -> None:
        url = psycopg.conninfo.make_conninfo(cluster, dbname=name)
        async with await database.connect(url) as db, db.transaction(force_rollback=True):
            await db.execute("CREATE EXTENSION pg_stat_statements")
            await schema.create_schema(db, 1)

    asyncio.run(main())
    assert tables(barren) == set()


def test_who_may_not_make_tables_is_told_in_one_line(file: bytes, barren: str, cluster: str) -> None:
    stranger = psycopg.conninfo.make_conninfo(
        barren, user=psycopg.conninfo.conninfo_to_dict(barren)["dbname"].replace("barren", "backup")
    )
    with pytest.raises(OutcropError) as told, database.convert_database_errors("nothing was restored"):
        restored(stranger, file)
    assert told.value.message.startswith("nothing was restored: permission denied")


def test_a_restored_table_needs_no_vacuum(back: tuple[str, RestoreSummary]) -> None:
    with psycopg.connect(back[0]) as db:
        (pages, visible) = db.execute(
            "SELECT relpages, relallvisible FROM pg_class WHERE relname = 'findings'"
        ).fetchone() or (0, 0)
    assert pages == visible > 0


def test_a_server_that_is_slow_is_waited_for_and_nothing_is_gathered_meanwhile(
    back: tuple[str, RestoreSummary],
) -> None:
    taken: list[int] = []
    while_it_stood: list[int] = []

    def pieces(pid: int) -> Iterator[bytes]:
        def go_on() -> None:
            while_it_stood.append(len(taken))
            os.kill(pid, signal.SIGCONT)

        os.kill(pid, signal.SIGSTOP)
        threading.Timer(0.5, go_on).start()
        for number in range(30):
            taken.append(number)
            yield b"1\t%d\te\t" % number + b"x" * PIECE_SIZE + b"\n"

    async def main() -> int:
        async with await database.connect(back[0]) as db, db.transaction():
            await db.execute("TRUNCATE etags")  # rows are frozen only where nobody can have seen others
            table = backup_tables.TableColumns("etags", ["account_id", "key", "etag", "body"])
            return await backup_tables.copy_table_in(db, table, pieces(db.info.backend_pid))

    assert asyncio.run(main()) == 30
    assert 0 < while_it_stood[0] < 5
