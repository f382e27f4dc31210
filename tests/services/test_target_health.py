"""The health of targets: their last runs, and the counts of findings in their sources."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from outcrop.domain.account import Role
from outcrop.domain.scan import Gap, ScanRun, ScanStatus
from outcrop.domain.target import (
    Schedule,
    Target,
    TargetHealth,
    TargetKind,
    TargetRun,
    TargetSpec,
    TargetState,
)
from outcrop.services import targets
from outcrop.store.db import Connection
from outcrop.store.runs import scan_sources, scans
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line, make_scan
from tests.support.portal_client import sign_in

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TARGET = Target(uuid4(), TargetSpec(TargetKind.OWNER, "github:acme"), Schedule.DAILY, NOW)


def _run(status: ScanStatus, hours: float = 1, gaps: int = 0) -> TargetRun:
    at = NOW - timedelta(hours=hours)
    ended = at if status in {ScanStatus.COMPLETED, ScanStatus.FAILED} else None
    return TargetRun(uuid4(), status, at, ended, gaps, None)


DONE, OLD = _run(ScanStatus.COMPLETED), _run(ScanStatus.COMPLETED, 49)


@pytest.mark.parametrize(
    ("last", "complete", "state"),
    [
        (None, None, TargetState.NEVER),
        (DONE, DONE, TargetState.GOOD),
        (OLD, OLD, TargetState.LATE),
        (_run(ScanStatus.FAILED), OLD, TargetState.FAILING),
        (_run(ScanStatus.FAILED), None, TargetState.FAILING),
        (_run(ScanStatus.RUNNING), OLD, TargetState.RUNNING),
        (_run(ScanStatus.QUEUED), None, TargetState.RUNNING),
        (_run(ScanStatus.INTERRUPTED), DONE, TargetState.WAITING),
        (gaps := _run(ScanStatus.COMPLETED, gaps=2), gaps, TargetState.GAPS),
    ],
)
def test_the_state_follows_from_the_last_runs(
    last: TargetRun | None, complete: TargetRun | None, state: TargetState
) -> None:
    assert TargetHealth(TARGET, last, complete).state(NOW) is state


def test_a_target_without_a_schedule_is_never_late() -> None:
    target = replace(TARGET, schedule=Schedule.OFF)
    assert TargetHealth(target, OLD, OLD).state(NOW + timedelta(days=900)) is TargetState.GOOD


def _add(backend: Backend, tenant: Tenant, text: str) -> Target:
    given: dict[str, Any] = {"kind": None, "include": (), "exclude": (), "chosen": {}, "credential": None}
    return backend.run(
        lambda db: targets.add_target(
            db, backend.keys, tenant.account, text, schedule=Schedule.OFF, by="test", now=NOW, **given
        )
    )


def _scan(backend: Backend, tenant: Tenant, target: Target, run: ScanRun, *sources: str) -> None:
    async def insert(db: Connection) -> None:
        await scans.insert(db, tenant.account.id, run, target_id=target.id)
        names = [(name, {}) for name in ("plan", *sources)]
        await scan_sources.add_sources(db, tenant.account.id, run.id, names)

    backend.run(insert)


def _health(backend: Backend, tenant: Tenant) -> dict[str, TargetHealth]:
    listed = backend.run(lambda db: targets.list_health(db, backend.keys, tenant.account.id))
    return {health.target.spec.name: health for health in listed}


def test_findings_and_runs_of_each_target_are_counted(backend: Backend) -> None:
    tenant, other = backend.tenant(), backend.tenant()
    lines = [
        make_line(repo_full_name=repo, source_url=f"https://github.com/{repo}/blob/main/a", file_path=f"f{n}")
        | more
        for n, (repo, more) in enumerate(
            [
                ("acme/shop", {}),
                ("acme/shop", {"validation_status": "invalid"}),
                ("acme/shop", {"suppressed_at": "2026-02-03T04:05:06+00:00"}),
                ("acme/shop", {"status": "stale"}),
                ("acme/site", {"validation_status": "error"}),
                ("acme/other", {}),
            ]
        )
    ]
    for account in (tenant.account, other.account):
        backend.import_(account, *[line | {"id": str(uuid4())} for line in lines])
    both, shop_only, empty = (
        _add(backend, tenant, text) for text in ("github:acme", "github:acme/shop", "github:empty")
    )
    shop, site = "https://github.com/acme/shop", "https://github.com/acme/site"
    backend.sql(
        "UPDATE findings SET source = 'https://github.com/' || repo_full_name WHERE account_id = ANY(%s)",
        [tenant.account.id, other.account.id],
    )
    done = make_scan(created_at=NOW, finished_at=NOW, coverage_gaps=(Gap("a", "big"), Gap("b", "big")))
    was = "https://github.com/acme/was-shop"  # its name at the time of the first run
    backend.sql(
        "INSERT INTO source_names (account_id, source, is_numbered) VALUES (%s, %s, false) ON CONFLICT DO NOTHING",
        tenant.account.id,
        shop,
    )
    backend.sql("INSERT INTO source_aliases VALUES (%s, %s, %s)", tenant.account.id, was, shop)
    for hours, name in ((0, shop), (1, was)):  # the same sources in two runs count once
        run = replace(done, id=uuid4(), created_at=NOW - timedelta(hours=hours))
        _scan(backend, tenant, both, run, name, site)
    failed = make_scan(status=ScanStatus.FAILED, created_at=NOW, finished_at=NOW, error="it is away")
    _scan(backend, tenant, shop_only, failed, shop)

    health = _health(backend, tenant)

    names = [target.spec.name for target in (both, shop_only, empty)]
    assert [(health[name].active, health[name].valid) for name in names] == [(3, 1), (2, 1), (0, 0)]
    found = health["github:acme"]
    assert found.last == found.complete
    assert found.last is not None
    assert (found.last.created_at, found.last.gaps) == (NOW, 2)
    assert [health[name].state(NOW) for name in names] == [
        TargetState.GAPS,
        TargetState.FAILING,
        TargetState.NEVER,
    ]
    person = sign_in(backend, tenant)
    page = person.page("/targets")
    assert f'<a href="/findings?target={both.id}">3</a>' in page
    assert page.count("<dd>unknown</dd>") == 3  # findings and gaps of the last one, gaps of the second
    for target, total in ((both, 3), (shop_only, 2), (empty, 0)):
        assert f"<strong>{total}</strong> finding" in person.page(f"/findings?target={target.id}")
    backend.run(lambda db: targets.remove_target(db, tenant.account, str(both.id), by="test", now=NOW))
    assert backend.sql(
        "SELECT target_id, source FROM target_sources WHERE account_id = %s", tenant.account.id
    ) == [(shop_only.id, shop)]


def test_a_run_of_one_pushed_repository_is_no_run_of_the_target(backend: Backend) -> None:
    tenant = backend.tenant()
    target = _add(backend, tenant, "github:acme")
    run = make_scan()
    backend.run(
        lambda db: scans.insert(db, tenant.account.id, run, target_id=target.id, pushed_repository=b"x")
    )
    assert _health(backend, tenant)["github:acme"].state(NOW) is TargetState.NEVER


def test_an_account_whose_targets_were_never_scanned_is_not_called_clear(backend: Backend) -> None:
    tenant = backend.tenant()
    person = sign_in(backend, tenant)
    assert "Nothing has been scanned yet" in person.page("/")
    target = _add(backend, tenant, "github:acme")
    assert "Not known yet." in (page := person.page("/"))
    assert "No active finding" not in page
    _scan(backend, tenant, target, make_scan(status=ScanStatus.FAILED, finished_at=NOW, error="away"))
    assert "Not known yet." in person.page("/")
    _scan(backend, tenant, target, make_scan(finished_at=NOW))
    assert "The next run shows whether something new appears." in person.page("/")
    _add(backend, tenant, "github:second")
    assert "No active finding in what was scanned." in person.page("/")


def test_the_page_of_a_failed_run_says_what_to_do(backend: Backend) -> None:
    tenant = backend.tenant()
    target = _add(backend, tenant, "gitlab:acme")
    error = "https://gitlab.com/api/v4/groups/acme: answered 401: invalid_token"
    run = make_scan(status=ScanStatus.FAILED, finished_at=NOW, error=error)
    _scan(backend, tenant, target, run)
    for role, may_change in ((Role.OWNER, True), (Role.MEMBER, False)):
        page = sign_in(backend, tenant, role).page(f"/scans/{run.id}")
        assert "Make a new token at the host" in page
        assert f'action="/targets/{target.id}/run"' in page
        assert (f'href="/targets/{target.id}"' in page) is may_change
