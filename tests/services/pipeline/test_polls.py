"""Test that pushes in a code host's list of events start runs, each once, and that none is lost."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import structlog

from outcrop.domain.account import Account
from outcrop.domain.scan import Trigger
from outcrop.domain.secret import Secret
from outcrop.services.pipeline.enqueue import POLL_TASK
from outcrop.services.pipeline.pushes.poll import enqueue_due_polls, poll_target
from tests.services.pipeline.test_pushes import execute, runs
from tests.support.github_host import error
from tests.support.pipeline import Pipeline, ServedRepository, owner_spec, token

TOKEN = "made-up-member"


@pytest.fixture
def shop(pipeline: Pipeline) -> ServedRepository:
    """Return a repository of an organisation, in which the user of TOKEN is a member."""
    member = pipeline.add_owner()
    owner = pipeline.add_owner(organisation=True, members=(member,))
    pipeline.hub.tokens[TOKEN] = member
    pipeline.add_repository(f"{owner}/other", {"a.md": "hello\n"})
    return pipeline.add_repository(f"{owner}/shop", {"readme.md": "hello\n"})


def events_path(pipeline: Pipeline, shop: ServedRepository) -> str:
    return f"users/{pipeline.hub.tokens[TOKEN]}/events/orgs/{shop.full_name.partition('/')[0]}"


def add_target(
    pipeline: Pipeline,
    account: Account,
    shop: ServedRepository,
    credential: str | None = TOKEN,
    **options: bool,
) -> UUID:
    """Add a target of the organisation that is polled, and poll it once."""
    spec = owner_spec(shop.full_name.partition("/")[0], **({"poll": True} | options))
    target = pipeline.add_target(account, spec, credential)
    pipeline.hub.events.setdefault(events_path(pipeline, shop), [])
    pipeline.wait(enqueue_due_polls(pipeline.context))
    poll(pipeline, account, target.id)
    return target.id


def poll(pipeline: Pipeline, account: Account, target_id: UUID, **changes: Any) -> int:
    return pipeline.wait(poll_target(replace(pipeline.context, **changes), account.id, target_id))


def due_in(pipeline: Pipeline, target_id: UUID) -> float:
    (row,) = pipeline.sql(
        "SELECT extract(epoch FROM due_at - clock_timestamp())::float FROM polls WHERE target_id = %s",
        target_id,
    )
    return float(row[0])


def test_a_push_in_the_events_is_a_run_of_that_repository_and_only_one(
    pipeline: Pipeline, account: Account, shop: ServedRepository
) -> None:
    target_id = add_target(pipeline, account, shop)
    commit = shop.push({"a.env": f"token = {token('polled')}\n"})
    leak = token("branch")
    pipeline.hub.add_event(events_path(pipeline, shop), shop.full_name, commit, f"refs/heads/{leak}")
    pipeline.hub.poll_interval = 120
    assert poll(pipeline, account, target_id) == 1
    assert 60 < due_in(pipeline, target_id) <= 120
    assert poll(pipeline, account, target_id) == 0
    assert pipeline.hub.requests[-1].status == 304
    (run,) = runs(pipeline, account)
    assert run.push is not None
    assert (run.trigger, run.push.repository, run.push.commit) == (Trigger.PUSH, shop.full_name, commit)
    stored = pipeline.sql("SELECT s::text, p::text FROM scans s, polls p WHERE s.account_id = %s", account.id)
    assert leak not in repr(stored)
    assert execute(pipeline, account, run).findings_new == 1


def test_events_that_were_missed_lead_to_a_comparison(
    pipeline: Pipeline, account: Account, shop: ServedRepository
) -> None:
    target_id, path = add_target(pipeline, account, shop), events_path(pipeline, shop)
    pipeline.hub.add_event(path, shop.full_name, "1" * 40)
    assert poll(pipeline, account, target_id) == 1
    known = pipeline.hub.events[path].pop()
    pipeline.hub.add_event(path, shop.full_name, "2" * 40)["id"] = known["id"] + "9"
    assert poll(pipeline, account, target_id) == 1
    assert [run.push is None for run in runs(pipeline, account)] == [False, True]
    assert poll(pipeline, account, target_id) == 0


def test_a_failure_is_logged_and_loses_no_push(
    pipeline: Pipeline, account: Account, shop: ServedRepository
) -> None:
    target_id = add_target(pipeline, account, shop)
    pipeline.hub.add_event(events_path(pipeline, shop), shop.full_name, "1" * 40)
    refusal = error(403, "Resource protected by organization SAML enforcement")
    refusal.path = "/events/orgs/"
    pipeline.hub.faults.append(refusal)
    with structlog.testing.capture_logs() as logs:
        assert poll(pipeline, account, target_id) == 0
    assert [entry["event"] for entry in logs] == ["poll_failed"]
    assert 60 < due_in(pipeline, target_id) <= 300
    assert poll(pipeline, account, target_id) == 1


def test_the_operators_token_shows_public_events_only(
    pipeline: Pipeline, account: Account, shop: ServedRepository
) -> None:
    owner = shop.full_name.partition("/")[0]
    pipeline.hub.events[f"orgs/{owner}/events"] = []
    target_id = add_target(pipeline, account, shop, credential=None)
    pipeline.hub.add_event(events_path(pipeline, shop), shop.full_name, "1" * 40)
    assert poll(pipeline, account, target_id, github_token=Secret(TOKEN)) == 0
    pipeline.hub.add_event(f"orgs/{owner}/events", shop.full_name, "1" * 40)
    assert poll(pipeline, account, target_id, github_token=Secret(TOKEN)) == 1


def test_a_target_is_queued_when_it_is_due_and_only_if_it_wants_that(
    pipeline: Pipeline, account: Account, shop: ServedRepository
) -> None:
    def queued() -> list[Any]:
        pipeline.wait(enqueue_due_polls(pipeline.context))
        return pipeline.sql(
            "DELETE FROM procrastinate_jobs WHERE task_name = %s AND (args ->> 'account_id')::int = %s RETURNING 1",
            *(POLL_TASK, account.id),
        )

    add_target(pipeline, account, shop, poll=False)
    assert queued() == []
    assert pipeline.sql("SELECT 1 FROM polls WHERE account_id = %s", account.id) == []
    pipeline.sql(
        "UPDATE targets SET options = options || '{\"poll\": true}' WHERE account_id = %s", account.id
    )
    assert len(queued()) == 1
    assert queued() == []
    pipeline.sql("UPDATE polls SET due_at = due_at - interval '1 day' WHERE account_id = %s", account.id)
    assert len(queued()) == 1
