"""All encrypted values of the database: counted, checked, and encrypted with a new data key."""

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import pytest

from outcrop.domain.account import Account, Plan
from outcrop.domain.clock import now
from outcrop.domain.errors import OperatorError
from outcrop.domain.secret import Secret, reveal
from outcrop.runtime import prepare_database
from outcrop.services import accounts, maintenance, webhooks
from outcrop.services.exchange.importer import import_findings
from outcrop.settings import SecretText, Settings
from outcrop.store import boxes, operator_key
from outcrop.store.db import Connection, connect
from outcrop.store.keyring import DamagedValueError, Keyring
from outcrop.store.operator_key import OperatorKey
from tests.conftest import SECRET_KEY
from tests.support.backups import make_backup
from tests.support.databases import migrated_database
from tests.support.factories import make_line

T = TypeVar("T")
OPERATOR = OperatorKey(SECRET_KEY, Path("/nonexistent"))
BYTEA_WITHOUT_BOX = {
    "findings.fingerprint", "findings.identity", "findings.verdict_key", "api_keys.digest", "sources.tips", "etags.body", "occurrences.blob",
    "verdicts.fingerprint", "outbox.answer", "sessions.digest", "links.digest", "recovery_codes.digest",
    "imports.request_digest", "sign_in_attempts.email", "sign_in_attempts.network",
    "host_limits.key", "hooks.token_digest", "hook_deliveries.delivery", "pushes.repository", "scans.pushed_repository",
    "keyring.salt", "keyring.check_value", "keyring.data_key", "keyring.fingerprint_key", "keyring.previous_data_key",
}  # fmt: skip


def test_every_binary_column_is_walked_or_is_no_encrypted_value(database_url: str, keys: Keyring) -> None:
    with psycopg.connect(database_url) as db:
        columns = {
            name
            for (name,) in db.execute(
                """SELECT table_name || '.' || column_name FROM information_schema.columns
                   WHERE table_schema = current_schema() AND data_type = 'bytea'"""
            )
        }
    assert columns - BYTEA_WITHOUT_BOX == {column.name for column in boxes.BOX_COLUMNS}


def test_a_value_opens_with_both_keys_during_a_rotation_and_with_the_new_one_after_it(keys: Keyring) -> None:
    owner, other = UUID(int=1), UUID(int=2)
    box = keys.seal(Secret("a value"), 1, owner)
    both = Keyring(b"n" * 32, keys.fingerprint_key, keys.data_key)
    new = replace(both, previous_data_key=None)
    assert reveal(both.open(box, 1, owner, mask_all=True)) == "a value"
    newest = both.reencrypt(box, 1, owner, b"")
    assert newest is not None
    assert reveal(new.open(newest, 1, owner, mask_all=True)) == "a value"
    assert both.reencrypt(newest, 1, owner, b"") is None
    for keyring_, box_, owner_ in (
        (new, box, owner),
        (both, newest, other),
        (both, b"", owner),
        (both, box[:-1], owner),
    ):
        with pytest.raises(DamagedValueError):
            keyring_.open(box_, 1, owner_, mask_all=True)


@dataclass(frozen=True)
class Separate:
    """A database of its own with an account that has five findings. No connection is kept."""

    url: str
    account: Account
    keys: Keyring

    def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        return run_once(self.url, work)

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as db:
            cursor = db.execute(statement, values)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []


def run_once(url: str, work: Callable[[Connection], Awaitable[T]]) -> T:
    """Run a function on a new connection."""

    async def main() -> T:
        async with await connect(url) as db:
            return await work(db)

    return asyncio.run(main())


@pytest.fixture
def separate(cluster: str, worker_id: str) -> Separate:
    url = migrated_database(cluster, f"boxes_{worker_id}")
    keys = asyncio.run(prepare_database(Settings(database_url=url, secret_key=SecretText(SECRET_KEY)), url))
    file = io.BytesIO(b"".join(json.dumps(line).encode() + b"\n" for line in (make_line() for _ in range(5))))

    async def fill(db: Connection) -> Account:
        account = await accounts.create_account(
            db, slug="acme", plan=Plan.GROWTH, email="a@b.example", by="test", now=now()
        )
        await import_findings(db, keys, account, file, by="test", now=now(), progress=lambda _: None)
        return account

    return Separate(url, run_once(url, fill), keys)


def test_a_rotation_that_was_killed_goes_on_and_leaves_damaged_values(separate: Separate) -> None:
    account_id = separate.account.id
    ids = [id_ for (id_,) in separate.sql("SELECT id FROM findings ORDER BY id")]
    for number, id_ in enumerate(ids):
        box = separate.keys.seal(Secret(f"value {number}"), account_id, id_)
        path = b"\1" + separate.keys.seal(Secret("a/path"), account_id, id_)
        separate.sql("UPDATE findings SET secret_box = %s, source_path = %s WHERE id = %s", box, path, id_)
    separate.run(
        lambda db: webhooks.save_webhook(
            db, separate.keys, separate.account, "https://a.example/T0KEN", by="test", now=now()
        )
    )
    separate.sql("UPDATE findings SET secret_box = 'damaged' WHERE id = %s", ids[3])
    separate.sql("UPDATE findings SET source_path = '\\x002f' WHERE id = %s", ids[4])
    before = separate.run(lambda db: boxes.count_damaged(db, separate.keys))
    assert {c.column.name: (c.total, c.damaged, c.example) for c in before if c.total} == {
        "findings.secret_box": (5, 1, ids[3]),
        "findings.source_path": (4, 0, None),
        "webhooks.url_box": (1, 0, None),
        "webhooks.secret_box": (1, 0, None),
    }
    # The first attempt is killed after the first of the columns.
    separate.run(lambda db: operator_key.begin_data_key_rotation(db, OPERATOR, b"1" * 32))
    half = separate.run(lambda db: operator_key.unlock_keyring(db, OPERATOR, b""))
    assert (half.data_key, half.previous_data_key) == (b"1" * 32, separate.keys.data_key)
    separate.run(lambda db: boxes._walk(db, half, boxes.BOX_COLUMNS[0], write=True))
    checks = separate.run(lambda db: maintenance.run_health_checks(db, OPERATOR, None))
    (doctor,) = (check for check in checks if check.name == "encrypted values")
    assert not doctor.ok
    assert f"1 of 5 in findings.secret_box damaged, such as of {ids[3]}" in doctor.detail
    assert "the data key is being replaced" in doctor.detail
    with pytest.raises(OperatorError, match="first finish `outcrop secrets rotate --data-key`"):
        make_backup(separate.url, operator=OPERATOR)
    # The second one goes on with the key of the first.
    done = separate.run(lambda db: maintenance.rotate_data_key(db, OPERATOR, b"2" * 32, by="test", now=now()))
    assert (done.values, done.damaged) == (11, 1)
    after = separate.run(lambda db: operator_key.unlock_keyring(db, OPERATOR, b""))
    assert after == Keyring(b"1" * 32, separate.keys.fingerprint_key)
    webhook = separate.run(lambda db: webhooks.get_webhook(db, after, account_id))
    assert webhook is not None
    assert webhook.url == "https://a.example/T0KEN"
    for number in (0, 1, 2, 4):
        ((box, path),) = separate.sql(
            "SELECT secret_box, source_path FROM findings WHERE id = %s", ids[number]
        )
        assert reveal(after.open(box, account_id, ids[number], mask_all=True)) == f"value {number}"
        if number != 4:
            assert reveal(after.open(path[1:], account_id, ids[number], mask_all=True)) == "a/path"
    assert separate.sql("SELECT detail FROM audit WHERE action = 'secrets.rotate'") == [
        ({"data_key": True, "values": 11, "damaged": 1},)
    ]


def test_a_secret_key_that_is_replaced_meanwhile_protects_both_data_keys(separate: Separate) -> None:
    separate.run(lambda db: operator_key.begin_data_key_rotation(db, OPERATOR, b"1" * 32))
    separate.run(
        lambda db: operator_key.rotate_operator_key(db, OPERATOR, "another key of enough length", b"s" * 16)
    )
    other = OperatorKey("another key of enough length", Path("/nonexistent"))
    assert separate.run(lambda db: operator_key.unlock_keyring(db, other, b"")) == Keyring(
        b"1" * 32, separate.keys.fingerprint_key, separate.keys.data_key
    )


def test_the_data_key_is_not_replaced_while_another_program_is_connected(separate: Separate) -> None:
    with (
        psycopg.connect(separate.url),
        pytest.raises(OperatorError, match="1 other connection to the database"),
    ):
        separate.run(lambda db: operator_key.begin_data_key_rotation(db, OPERATOR, b"1" * 32))
    assert separate.run(lambda db: operator_key.unlock_keyring(db, OPERATOR, b"")) == separate.keys
