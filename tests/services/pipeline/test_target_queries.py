"""The query of a site's address may be a token: it is stored encrypted, with the target and with its runs."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from outcrop.domain.account import Account
from outcrop.domain.clock import now
from outcrop.domain.target import ENCRYPTED, Schedule, Target, TargetKind
from outcrop.services import targets as service
from outcrop.services.pipeline.maintenance import encrypt_addresses
from outcrop.store.db import Connection
from tests.support.pipeline import Pipeline
from tests.support.site_runs import served
from tests.support.web_host import page

T = TypeVar("T")
SITE = "http://site.example"
QUERY = "5ECRET-of-an-address"
ADDRESS = f"{SITE}/page?key={QUERY}"
STORED = f"{ENCRYPTED}{SITE}/page"


def add_page(pipeline: Pipeline, account: Account) -> Target:
    """Add a target with a query."""

    async def add(db: Connection) -> Target:
        return await service.add_target(
            *(db, pipeline.context.keys, account, ADDRESS),
            kind=TargetKind.PAGE,
            schedule=Schedule.OFF,
            include=[],
            exclude=[],
            chosen={},
            credential=None,
            by="a test",
            now=now(),
        )

    return write(pipeline, add)


def write(pipeline: Pipeline, work: Callable[[Connection], Awaitable[T]]) -> T:
    """Run a function in a transaction of its own."""

    async def main() -> T:
        async with pipeline.context.pool.connection() as db, db.transaction():
            return await work(db)

    return pipeline.wait(main())


def test_a_page_is_read_with_its_query_which_is_stored_nowhere_in_clear_text(
    pipeline: Pipeline, account: Account
) -> None:
    target = add_page(pipeline, account)
    assert target.spec.name == ADDRESS
    assert pipeline.sql("SELECT name FROM targets WHERE id = %s", target.id) == [(STORED,)]
    keys = pipeline.context.keys
    assert write(pipeline, lambda db: service.list_targets(db, keys, account)) == [target]
    with served(pipeline, account, {f"/page?key={QUERY}": page("<p>clean</p>")}) as runs:
        run_id, (source,) = runs.wait(runs.plan(target.spec, target.id))
        assert source == SITE
        assert runs.tables_with(QUERY) == set()
        runs.wait(runs.scan_source(run_id, source))
        assert runs.host.paths() == [f"/page?key={QUERY}"]
        assert runs.tables_with(QUERY) == set()
    run = pipeline.get_run(account, run_id)
    assert (run.status, run.target) == ("completed", f"{SITE}/page")
    assert pipeline.sql("SELECT url_box FROM scans WHERE id = %s", run_id) == [(None,)]


def test_what_an_older_release_has_stored_is_encrypted_and_stripped(
    pipeline: Pipeline, account: Account
) -> None:
    target = add_page(pipeline, account)
    pipeline.sql("UPDATE targets SET name = %s, url_box = NULL WHERE id = %s", ADDRESS, target.id)
    with served(pipeline, account, {f"/page?key={QUERY}": page("<p>clean</p>")}) as runs:
        run_id, (source,) = runs.wait(runs.plan(target.spec, target.id))
        runs.wait(runs.scan_source(run_id, source))
    name, url = (
        "jsonb_set(spec, '{name}', to_jsonb(%s::text))",
        "jsonb_set(spec, '{url}', to_jsonb(%s::text))",
    )
    pipeline.sql(f"UPDATE scans SET spec = {name} WHERE id = %s", ADDRESS, run_id)
    statement = f"UPDATE scan_sources SET spec = {url} WHERE scan_id = %s AND source <> 'plan'"
    pipeline.sql(statement, ADDRESS, run_id)
    assert runs.tables_with(QUERY) == {"targets", "scans", "scan_sources"}
    pipeline.wait(encrypt_addresses(pipeline.context))
    assert runs.tables_with(QUERY) == set()
    found = write(pipeline, lambda db: service.get_target(db, pipeline.context.keys, account, str(target.id)))
    assert found.spec.name == ADDRESS
    assert pipeline.sql("SELECT spec ->> 'name' FROM scans WHERE id = %s", run_id) == [(f"{SITE}/page",)]


@pytest.mark.parametrize("case", ["damaged", "planned by an older release"])
def test_no_other_page_is_read_if_the_address_is_missing(
    pipeline: Pipeline, account: Account, case: str
) -> None:
    target = add_page(pipeline, account)
    with served(pipeline, account, {f"/page?key={QUERY}": page("<p>clean</p>")}) as runs:
        run_id, (source,) = runs.wait(runs.plan(target.spec, target.id))
        if case == "damaged":
            pipeline.sql("UPDATE scans SET url_box = 'damaged' WHERE id = %s", run_id)
        else:  # which takes the name for the address
            source = f"{ENCRYPTED}//"
            rename = "UPDATE scan_sources SET source = %s WHERE scan_id = %s AND source <> 'plan'"
            pipeline.sql(rename, source, run_id)
        runs.wait(runs.scan_source(run_id, source))
        assert runs.host.paths() == []
    assert pipeline.get_run(account, run_id).status == "failed"
