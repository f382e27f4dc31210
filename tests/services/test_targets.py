"""Test targets on a real database: separate for each account, encrypted credentials, due times."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from outcrop.domain.account import Account
from outcrop.domain.audit import AuditFilter
from outcrop.domain.errors import BadInputError, NotFoundError
from outcrop.domain.scan import Trigger
from outcrop.domain.secret import Secret, reveal
from outcrop.domain.target import OPTIONS, Schedule, Target, TargetKind, TargetSpec
from outcrop.services import accounts
from outcrop.services import targets as service
from outcrop.services.pipeline.enqueue import start_run
from outcrop.store import audit
from outcrop.store import db as database
from outcrop.store.keyring import DamagedValueError
from outcrop.store.runs import targets
from tests.support.backend import Backend

NOW = datetime(2026, 4, 5, 6, 7, 8, tzinfo=UTC)
TOKEN = "ghp_" + "made0up1for2tests3only" * 2
RANDOM = "Xq7Rz2" + "Lm9Tw4Kd8Vb3"  # looks like a token


@pytest.fixture
def account(backend: Backend) -> Account:
    """Return a new account."""
    return backend.tenant().account


@pytest.fixture(autouse=True)
def _no_targets_left(backend: Backend) -> Iterator[None]:
    """Delete all targets after a test, because due targets are selected over all accounts."""
    yield
    backend.sql("DELETE FROM targets")


def add(backend: Backend, account: Account, text: str, **fields: Any) -> Target:
    """Add a target with these fields."""
    return backend.run(lambda db: service.add_target(db, backend.keys, account, text, **arguments(**fields)))


def arguments(**fields: Any) -> dict[str, Any]:
    """Return the arguments of `add_target`, with defaults."""
    defaults: dict[str, Any] = {
        "kind": None,
        "schedule": Schedule.OFF,
        "include": [],
        "exclude": [],
        "chosen": {},
        "credential": None,
    }
    return defaults | {"by": "test", "now": NOW} | fields


def trail(backend: Backend, account: Account) -> list[audit.AuditLine]:
    """Return the audit lines about targets, oldest first."""
    page = backend.run(
        lambda db: audit.select_page(db, account.id, AuditFilter("target"), limit=100, before=None)
    )
    return [line for _, line in reversed(page)]


def test_a_stored_target_equals_the_added_one(backend: Backend, account: Account) -> None:
    added = add(
        backend,
        account,
        "github:acme",
        schedule=Schedule.DAILY,
        include=["shop-*", "ü*"],
        exclude=["old"],
        chosen={"forks": True},
    )
    options = OPTIONS[TargetKind.OWNER] | {"forks": True}
    spec = TargetSpec(TargetKind.OWNER, "github:acme", ("shop-*", "ü*"), ("old",), options)
    assert added == Target(added.id, spec, Schedule.DAILY, NOW, NOW, has_credential=False)
    assert backend.run(lambda db: service.get_target(db, backend.keys, account, str(added.id))) == added
    assert backend.run(lambda db: service.list_targets(db, backend.keys, account)) == [added]


def test_targets_are_listed_oldest_first_and_one_without_a_schedule_is_never_due(
    backend: Backend, account: Account
) -> None:
    second = add(backend, account, "github:b", now=NOW + timedelta(seconds=1))
    first = add(backend, account, "github:c")
    assert backend.run(lambda db: service.list_targets(db, backend.keys, account)) == [first, second]
    assert first.next_run_at is None
    assert due(backend, NOW + timedelta(days=999), account) == []


def test_a_credential_is_stored_encrypted_for_this_target_only(backend: Backend, account: Account) -> None:
    added = add(backend, account, "github:acme", credential=Secret(TOKEN))
    other = add(backend, account, "github:other")
    assert added.has_credential
    assert not other.has_credential
    box = backend.run(lambda db: targets.select_credential_box(db, account.id, added.id))
    assert box is not None
    assert reveal(backend.keys.open(box, account.id, added.id, mask_all=True)) == TOKEN
    with pytest.raises(DamagedValueError):
        backend.keys.open(box, account.id, other.id, mask_all=True)
    assert backend.run(lambda db: targets.select_credential_box(db, account.id, other.id)) is None
    assert backend.run(lambda db: targets.select_credential_box(db, account.id, uuid4())) is None
    ((row, bytes_),) = backend.sql("SELECT t::text, credential_box FROM targets t WHERE id = %s", added.id)
    assert TOKEN not in row
    assert TOKEN.encode() not in bytes_


def test_the_audit_trail_masks_what_looks_like_a_token_in_addresses_and_patterns(
    backend: Backend, account: Account
) -> None:
    address = f"https://example.com/production-settings/{RANDOM[:4]}%{ord(RANDOM[4]):02x}{RANDOM[5:]}/feed"
    target = add(backend, account, address, include=["docs/*", f"/{RANDOM}/*"])
    backend.run(
        lambda db: start_run(
            db,
            backend.keys,
            account.id,
            target.spec,
            trigger=Trigger.CLI,
            target_id=target.id,
            moment=NOW,
            by="test",
        )
    )
    commit = add(backend, account, "https://github.com/acme/app/commit/" + "0a1b2c3d4e" * 4)
    backend.run(lambda db: service.remove_target(db, account, str(target.id), by="test", now=NOW))
    stored = backend.sql("SELECT action, detail FROM audit WHERE account_id = %s ORDER BY id", account.id)
    details = [detail for action, detail in stored if action.startswith(("target", "scan"))]
    shown = "https://example.com/production-settings/********/feed"
    assert [detail["target"] for detail in details] == [shown, shown, commit.spec.name, shown]
    assert details[0]["include"] == ["docs/*", "/********/*"]


def test_the_audit_trail_has_the_changes_without_credential_and_query(
    backend: Backend, account: Account
) -> None:
    added = add(
        backend,
        account,
        "https://example.com/a?token=tok4567890",
        schedule=Schedule.HOURLY,
        credential=Secret(f"Bearer {TOKEN}"),
        by="jo",
    )
    assert added.spec.name.endswith("?token=tok4567890")
    backend.run(
        lambda db: service.remove_target(db, account, str(added.id), by="al", now=NOW + timedelta(hours=1))
    )
    first, second = trail(backend, account)
    assert (first.at, first.actor, first.action, first.target, first.outcome) == (
        NOW,
        "jo",
        "target.add",
        str(added.id),
        "ok",
    )
    spec = {"kind": "site", "target": "https://example.com/a"}
    settings = {
        "schedule": "hourly",
        "include": [],
        "exclude": [],
        "options": OPTIONS[TargetKind.SITE],
        "has_credential": True,
    }
    assert first.detail == spec | settings
    assert (second.at, second.actor, second.action, second.target) == (
        NOW + timedelta(hours=1),
        "al",
        "target.remove",
        str(added.id),
    )
    assert second.detail == spec
    text = json.dumps([first.detail, second.detail])
    assert TOKEN not in text
    assert "tok4567890" not in text


@pytest.mark.parametrize(
    ("first", "duplicate"),
    [
        ("github:acme/shop", "https://GitHub.com/Acme/Shop.git"),
        ("github:acme", "https://github.com/ACME/"),
        ("https://example.com", "https://EXAMPLE.com:443/#top"),
        ("https://gist.github.com/jo/aa5a315d61ae9438b18d", "https://gist.github.com/aa5a315d61ae9438b18d"),
    ],
)
def test_a_duplicate_target_is_refused_with_the_id_of_the_first(
    backend: Backend, account: Account, first: str, duplicate: str
) -> None:
    existing = add(backend, account, first)
    with pytest.raises(BadInputError, match=str(existing.id)):
        add(backend, account, duplicate)
    assert len(trail(backend, account)) == 1
    add(backend, backend.tenant().account, duplicate)
    backend.run(lambda db: service.remove_target(db, account, str(existing.id), by="test", now=NOW))
    add(backend, account, duplicate)


def test_an_address_may_be_both_a_site_and_a_page(backend: Backend, account: Account) -> None:
    add(backend, account, "https://example.com")
    add(backend, account, "https://example.com", kind=TargetKind.PAGE)
    assert len(backend.run(lambda db: service.list_targets(db, backend.keys, account))) == 2


def test_of_two_concurrent_requests_for_the_same_target_one_is_refused(
    backend: Backend, account: Account
) -> None:
    async def add_slowly(url: str) -> Target:
        async with await database.connect(url) as db, db.transaction():
            target = await service.add_target(db, backend.keys, account, "github:acme", **arguments())
            await asyncio.sleep(0.2)  # so that the other request begins before this one is committed
            return target

    async def both() -> list[Target | BaseException]:
        url = backend.settings.database_url
        assert url is not None
        return list(await asyncio.gather(add_slowly(url), add_slowly(url), return_exceptions=True))

    kinds = sorted(type(result).__name__ for result in asyncio.run(both()))
    assert kinds == ["BadInputError", "Target"]
    assert len(backend.run(lambda db: service.list_targets(db, backend.keys, account))) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"include": [""]},
        {"exclude": ["  "]},
        {"include": ["a" * 501]},
        {"exclude": ["a\0"]},
        {"include": ["\udcff"]},
        {"include": ["a"] * 101},
        {"chosen": {"depth": 2}},
        {"credential": Secret("")},
        {"credential": Secret(" ")},
        {"credential": Secret(f"{TOKEN}\r\nX-Evil: 1")},
        {"credential": Secret("\udcff" + TOKEN)},
        {"credential": Secret(f"Bearer {TOKEN}")},
        {"credential": Secret(TOKEN * 200)},
    ],
)
def test_invalid_input_is_refused_and_nothing_is_stored(
    backend: Backend, account: Account, wrong: dict[str, Any]
) -> None:
    with pytest.raises(BadInputError) as refused:
        add(backend, account, "github:acme", **wrong)
    assert TOKEN not in refused.value.message
    assert backend.run(lambda db: service.list_targets(db, backend.keys, account)) == []
    assert trail(backend, account) == []


def test_patterns_and_credentials_at_their_limits_are_accepted(backend: Backend, account: Account) -> None:
    added = add(backend, account, "github:acme", include=["a" * 500] * 100, credential=Secret("x" * 8_000))
    assert added.spec.include == ("a" * 500,) * 100
    assert add(
        backend, account, "https://git.example/a.git", credential=Secret("jo:a pass phrase")
    ).has_credential


def test_a_credential_for_plain_http_is_refused(backend: Backend, account: Account) -> None:
    with pytest.raises(BadInputError, match="https only"):
        add(backend, account, "http://example.com", credential=Secret(TOKEN))


def test_a_target_may_be_on_a_github_enterprise_host(backend: Backend, account: Account) -> None:
    target = add(backend, account, "github:acme/shop", web_host="ghe.example")
    assert target.spec.name == "https://ghe.example/acme/shop"
    with pytest.raises(BadInputError, match=str(target.id)):
        add(backend, account, "https://ghe.example/ACME/shop", web_host="ghe.example")


@pytest.mark.parametrize("id_", ["", "no-id", "00000000-0000-4000-8000-000000000000", "\0"])
def test_an_unknown_id_is_not_found(backend: Backend, account: Account, id_: str) -> None:
    with pytest.raises(NotFoundError):
        backend.run(lambda db: service.get_target(db, backend.keys, account, id_))
    with pytest.raises(NotFoundError):
        backend.run(lambda db: service.remove_target(db, account, id_, by="test", now=NOW))
    assert trail(backend, account) == []


def test_the_target_of_another_account_is_not_found_and_not_changed(
    backend: Backend, account: Account
) -> None:
    stranger = backend.tenant().account
    target = add(backend, account, "github:acme", schedule=Schedule.DAILY, credential=Secret(TOKEN))
    for call in (
        lambda db, *a: service.get_target(db, backend.keys, *a),
        lambda *a: service.remove_target(*a, by="test", now=NOW),
    ):
        with pytest.raises(NotFoundError):
            backend.run(lambda db, call=call: call(db, stranger, str(target.id)))
    assert backend.run(lambda db: service.list_targets(db, backend.keys, stranger)) == []
    assert backend.run(lambda db: targets.select_credential_box(db, stranger.id, target.id)) is None
    backend.run(lambda db: targets.update_next_run(db, stranger.id, target.id, None))
    assert backend.run(lambda db: service.list_targets(db, backend.keys, account)) == [target]


def test_removing_a_target_deletes_its_credential(backend: Backend, account: Account) -> None:
    kept, removed = (
        add(backend, account, "github:a"),
        add(backend, account, "github:b", credential=Secret(TOKEN)),
    )
    assert (
        backend.run(lambda db: service.remove_target(db, account, str(removed.id), by="test", now=NOW))
        == removed
    )
    assert backend.run(lambda db: service.list_targets(db, backend.keys, account)) == [kept]
    assert backend.run(lambda db: targets.select_credential_box(db, account.id, removed.id)) is None
    with pytest.raises(NotFoundError):
        backend.run(lambda db: service.remove_target(db, account, str(removed.id), by="test", now=NOW))


def test_due_targets_of_all_accounts_are_selected(backend: Backend, account: Account) -> None:
    other = backend.tenant().account
    late = add(backend, account, "github:late", schedule=Schedule.HOURLY, now=NOW)
    early = add(backend, other, "github:early", schedule=Schedule.WEEKLY, now=NOW - timedelta(hours=1))
    add(backend, account, "github:later", schedule=Schedule.DAILY, now=NOW + timedelta(seconds=1))
    add(backend, account, "github:off")
    assert due(backend, NOW, account, other) == [(other.id, early.id), (account.id, late.id)]
    backend.run(lambda db: targets.update_next_run(db, account.id, late.id, NOW + timedelta(hours=1)))
    backend.run(lambda db: targets.update_next_run(db, other.id, early.id, None))
    assert due(backend, NOW, account, other) == []
    assert (account.id, late.id) in due(backend, NOW + timedelta(hours=1), account, other)
    assert (other.id, early.id) not in due(backend, NOW + timedelta(days=99), account, other)


def due(backend: Backend, now: datetime, *accounts: Account) -> list[tuple[int, UUID]]:
    """Return the due targets of these accounts; other tests may have left targets of others."""
    selected = backend.run(lambda db: targets.lock_due(db, now, limit=1_000))
    return [(owner, target.id) for owner, target in selected if owner in {account.id for account in accounts}]


def test_a_due_target_that_one_scheduler_has_locked_is_skipped_by_another(
    backend: Backend, account: Account
) -> None:
    held = add(backend, account, "github:held", schedule=Schedule.HOURLY)
    url = backend.settings.database_url
    assert url is not None

    async def main() -> tuple[list[tuple[int, Target]], list[tuple[int, Target]]]:
        async with (
            await database.connect(url) as first_db,
            await database.connect(url) as second_db,
            first_db.transaction(),
            second_db.transaction(),
        ):
            return (
                await targets.lock_due(first_db, NOW, limit=1_000),
                await asyncio.wait_for(targets.lock_due(second_db, NOW, limit=1_000), 60),
            )

    first, second = asyncio.run(main())
    assert (account.id, held) in first
    assert second == []


def test_deleting_an_account_deletes_its_targets(backend: Backend, account: Account) -> None:
    add(backend, account, "github:acme", credential=Secret(TOKEN))
    backend.run(lambda db: accounts.delete_account(db, account.slug))
    assert backend.sql("SELECT count(*) FROM targets WHERE account_id = %s", account.id) == [(0,)]
