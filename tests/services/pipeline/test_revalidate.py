"""Stored credentials: asked about again when a person wants to know, and erased some time after their finding was closed."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from outcrop import worker
from outcrop.domain.account import Account
from outcrop.domain.errors import BadInputError, NotFoundError, OperatorError
from outcrop.net.http import open_http
from outcrop.services.pipeline.context import RunContext, now
from outcrop.services.pipeline.enqueue import request_validation
from outcrop.services.pipeline.maintenance import ERASE_AFTER, erase_secrets
from outcrop.services.pipeline.revalidate import revalidate_due, revalidate_finding
from outcrop.validation.engine import ValidationMode, Validator
from tests.support.fake_https import FakeResponse, FakeServer, serve_https
from tests.support.pipeline import Pipeline, repository_spec, token

JSON = {"Content-Type": "application/json"}
ALIVE = FakeResponse(200, JSON | {"X-OAuth-Scopes": "repo"}, b'{"login": "octo"}')
DEAD = FakeResponse(401, JSON, b'{"message": "Bad credentials"}')


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with serve_https(tmp_path_factory.mktemp("issuer"), ("api.github.com",), lambda _: ALIVE) as running:
        yield running


@pytest.fixture
def tools(pipeline: Pipeline, stand_in: FakeServer) -> Iterator[RunContext]:
    stack = AsyncExitStack()
    stand_in.requests.clear()
    stand_in.respond = lambda _: ALIVE
    pipeline.sql("TRUNCATE procrastinate_jobs, verdicts CASCADE")  # asking again is for all accounts
    http = pipeline.wait(stack.enter_async_context(open_http(stand_in.egress)))
    yield replace(pipeline.context, validator=Validator(http, ValidationMode.SAFE, requests_per_second=1000))
    pipeline.wait(stack.aclose())


Found = Callable[..., dict[str, Any]]


@pytest.fixture
def found(pipeline: Pipeline, account: Account, tools: RunContext) -> Found:
    """Scan a repository with these files; give its findings by path."""

    def scan(files: dict[str, str], using: RunContext | None = None) -> dict[str, Any]:
        name = f"{pipeline.add_owner()}/shop"
        pipeline.add_repository(name, dict(files))
        pipeline.scan(account, repository_spec(name), using or tools)
        return {one["file_path"]: one for one in pipeline.findings(account)}

    return scan


def audited(pipeline: Pipeline, account: Account, *actions: str) -> list[tuple[Any, ...]]:
    return pipeline.sql(
        "SELECT action, actor, target, outcome, detail FROM audit WHERE account_id = %s AND action = ANY(%s) ORDER BY id",
        account.id,
        list(actions),
    )


# --- on demand


def test_a_person_asks_and_every_finding_of_the_credential_has_the_answer(
    pipeline, account, tools, stand_in, found
):
    there = found({"a.py": token("twice"), "b.py": token("twice"), "c.py": token("another")})
    stand_in.respond = lambda _: DEAD
    stand_in.requests.clear()
    told = pipeline.wait(revalidate_finding(tools, account.id, there["a.py"]["id"], by="ada@example.com"))
    assert (told.validation_status, told.composite_score <= 15) == ("invalid", True)
    assert len(stand_in.requests) == 1, "however fresh the last verdict is"
    after = {one["file_path"]: one for one in pipeline.findings(account)}
    assert {path: one["validation_status"] for path, one in after.items()} == {
        "a.py": "invalid",
        "b.py": "invalid",
        "c.py": "valid",
    }
    assert after["b.py"]["score_detail"]["parts"]["liveness"] == 0
    lines = audited(pipeline, account, "finding.revalidate", "finding.validate")
    assert lines[0] == ("finding.revalidate", "ada@example.com", str(there["a.py"]["id"]), "ok", {})
    changes = [(actor, target, detail["from"], detail["to"]) for _, actor, target, _, detail in lines[1:]]
    assert sorted(changes) == sorted(
        ("ada@example.com", str(there[path]["id"]), "valid", "invalid") for path in ("a.py", "b.py")
    )


def test_asking_without_a_change_is_in_the_trail_as_well(pipeline, account, tools, found):
    there = found({"a.py": token("same")})
    pipeline.wait(revalidate_finding(tools, account.id, there["a.py"]["id"], by="ada"))
    assert [line[0] for line in audited(pipeline, account, "finding.revalidate", "finding.validate")] == [
        "finding.revalidate"
    ]


def test_what_cannot_be_asked_about_is_told(pipeline, account, tools, found):
    there = found({"a.py": token("unknown")})
    id_ = there["a.py"]["id"]
    with pytest.raises(NotFoundError):
        pipeline.wait(revalidate_finding(tools, account.id, uuid4(), by="ada"))
    with pytest.raises(NotFoundError):
        pipeline.wait(revalidate_finding(tools, pipeline.create_account().id, id_, by="ada"))
    with pytest.raises(OperatorError, match="switched off"):
        pipeline.wait(revalidate_finding(pipeline.context, account.id, id_, by="ada"))
    pipeline.sql("UPDATE findings SET rule = 'gone' WHERE id = %s", id_)
    with pytest.raises(BadInputError, match="no rule"):
        pipeline.wait(revalidate_finding(tools, account.id, id_, by="ada"))
    pipeline.sql("UPDATE findings SET secret_box = NULL WHERE id = %s", id_)
    with pytest.raises(BadInputError, match="not stored"):
        pipeline.wait(revalidate_finding(tools, account.id, id_, by="ada"))


def request(pipeline: Pipeline, account: Account, finding_id: UUID, note: str | None = None) -> None:
    async def work() -> None:
        async with pipeline.context.pool.connection() as db, db.transaction():
            await request_validation(
                db, pipeline.context.keys, account.id, finding_id, note=note, by="ada", moment=now()
            )

    pipeline.wait(work())


def waiting(pipeline: Pipeline) -> int:
    return int(pipeline.sql("SELECT count(*) FROM procrastinate_jobs")[0][0])


def work_off(pipeline: Pipeline, tools: RunContext) -> None:
    """Take jobs as a worker does until none is left."""

    async def work() -> None:
        taking = asyncio.create_task(worker._run_queues(worker._build_app(pipeline.url, tools), 1, 20))
        for _ in range(400):
            if not waiting(pipeline):
                break
            await asyncio.sleep(0.05)
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)

    pipeline.wait(work())
    assert waiting(pipeline) == 0


def test_a_request_is_done_by_a_worker_once(pipeline, account, tools, stand_in, found):
    id_ = found({"a.py": token("queued")})["a.py"]["id"]
    stand_in.respond = lambda _: DEAD
    stand_in.requests.clear()
    request(pipeline, account, id_)
    request(pipeline, account, id_)
    assert waiting(pipeline) == 1
    work_off(pipeline, tools)
    assert pipeline.finding(account)["validation_status"] == "invalid"
    assert len(stand_in.requests) == 1
    lines = audited(pipeline, account, "finding.revalidate", "finding.validate")
    assert [(line[0], line[1]) for line in lines] == [("finding.revalidate", "ada")] * 2 + [
        ("finding.validate", "ada")
    ]


def test_the_note_of_a_request_is_in_the_trail_without_the_credential(pipeline, account, tools, found):
    one = found({"a.py": token("noted")})["a.py"]
    request(pipeline, account, one["id"], f"was {token('noted')} rotated?")
    ((*_, detail),) = audited(pipeline, account, "finding.revalidate")
    assert detail == {"note": f"was {one['matched_text']} rotated?"}
    work_off(pipeline, tools)


def test_a_request_that_cannot_be_met_ends_with_a_line_in_the_trail(pipeline, account, tools, found):
    id_ = found({"a.py": token("unmet")})["a.py"]["id"]
    request(pipeline, account, id_)
    pipeline.sql("UPDATE findings SET secret_box = NULL WHERE id = %s", id_)
    with pytest.raises(BadInputError, match="not stored"):
        request(pipeline, account, id_)
    work_off(pipeline, tools)
    _, (_, _, _, outcome, detail) = audited(pipeline, account, "finding.revalidate")
    assert (outcome, "not stored" in detail["reason"]) == ("failed", True)


# --- by itself


def age(pipeline: Pipeline, account: Account, by: timedelta) -> None:
    pipeline.sql("UPDATE verdicts SET checked_at = checked_at - %s WHERE account_id = %s", by, account.id)


def test_what_nobody_could_tell_is_asked_about_sooner(pipeline, account, tools, stand_in, found):
    stand_in.respond = lambda _: FakeResponse(503)
    found({"a.py": token("down")})
    assert pipeline.finding(account)["validation_status"] == "error"
    stand_in.respond = lambda _: ALIVE
    assert pipeline.wait(revalidate_due(tools)) == 0
    age(pipeline, account, timedelta(hours=2))
    assert pipeline.wait(revalidate_due(tools)) == 1
    assert pipeline.finding(account)["validation_status"] == "valid"
    age(pipeline, account, timedelta(hours=2))
    assert pipeline.wait(revalidate_due(tools)) == 0, "what is told holds for a day"


def test_what_was_found_while_nobody_was_asked_is_asked_about_when_that_is_allowed(
    pipeline, account, tools, stand_in, found
):
    found({"a.py": token("later")}, pipeline.context)
    assert (pipeline.finding(account)["validation_status"], stand_in.requests) == ("unvalidated", [])
    assert "checked_at" not in pipeline.finding(account)["validation_detail"]
    assert pipeline.wait(revalidate_due(pipeline.context)) == 0
    assert pipeline.wait(revalidate_due(tools)) == 1
    assert pipeline.finding(account)["validation_status"] == "valid"


def test_a_rule_that_is_gone_does_not_keep_the_others_waiting(pipeline, account, tools, stand_in, found):
    there = found({f"{n}.py": token(f"many {n}") for n in range(3)})
    pipeline.sql("UPDATE findings SET rule = 'gone' WHERE id = %s", there["1.py"]["id"])
    age(pipeline, account, timedelta(days=2))
    stand_in.requests.clear()
    assert pipeline.wait(asyncio.wait_for(revalidate_due(tools), 20)) == 2
    assert len(stand_in.requests) == 2


def test_two_workers_do_not_ask_twice(pipeline, account, tools, stand_in, found):
    found({f"{n}.py": token(f"shared {n}") for n in range(5)})
    age(pipeline, account, timedelta(days=2))
    stand_in.requests.clear()
    stand_in.respond = lambda _: replace(ALIVE, delay=0.1)

    async def both() -> list[int]:
        return list(await asyncio.gather(revalidate_due(tools), revalidate_due(tools)))

    assert sorted(pipeline.wait(both())) == [0, 5]
    assert len(stand_in.requests) == 5


def test_a_run_that_hears_something_else_says_so_of_every_place(pipeline, account, tools, stand_in, found):
    found({"a.py": token("moved")})
    age(pipeline, account, timedelta(days=2))
    stand_in.respond = lambda _: DEAD
    there = found({"b.py": token("moved")})  # another repository
    assert {path: one["validation_status"] for path, one in there.items()} == {
        "a.py": "invalid",
        "b.py": "invalid",
    }
    ((_, actor, target, _, change),) = audited(pipeline, account, "finding.validate")
    assert (actor, target, change["from"], change["to"]) == (
        "scan",
        str(there["a.py"]["id"]),
        "valid",
        "invalid",
    )


# --- erased


def close(pipeline: Pipeline, account: Account, status: str, *, ago: timedelta) -> None:
    pipeline.sql("UPDATE findings SET status = %s WHERE account_id = %s", status, account.id)
    pipeline.sql("UPDATE findings SET closed_at = closed_at - %s WHERE account_id = %s", ago, account.id)


def has_box(pipeline: Pipeline, account: Account) -> bool:
    return pipeline.finding(account)["secret_box"] is not None


@pytest.mark.parametrize(
    ("status", "ago", "erased"),
    [
        ("false_positive", ERASE_AFTER + timedelta(hours=1), True),
        ("customer_restricted", ERASE_AFTER + timedelta(hours=1), True),
        ("false_positive", ERASE_AFTER - timedelta(hours=1), False),
        ("stale", timedelta(days=400), False),
        ("active", timedelta(days=400), False),
    ],
)
def test_a_credential_is_erased_a_while_after_its_finding_was_closed(
    pipeline, account, tools, found, status, ago, erased
):
    found({"a.py": token(f"{status} {ago}")})
    close(pipeline, account, status, ago=ago)
    pipeline.wait(erase_secrets(tools))
    assert has_box(pipeline, account) is not erased
    lines = audited(pipeline, account, "secrets.erase")
    assert [(actor, detail) for _, actor, _, _, detail in lines] == (
        [("upkeep", {"findings": 1})] if erased else []
    )
    assert pipeline.wait(erase_secrets(tools)) == 0


def test_the_time_of_closing_is_that_of_the_last_change(pipeline, account, tools, found):
    found({"a.py": token("closing")})
    pipeline.sql(
        "UPDATE findings SET status = 'resolved', resolved_at = now() - interval '90 days', auto_resolved = false WHERE account_id = %s",
        account.id,
    )
    closed = pipeline.finding(account)["closed_at"]
    assert now() - closed > timedelta(days=89)
    pipeline.sql("UPDATE findings SET seen_count = 9 WHERE account_id = %s", account.id)
    assert pipeline.finding(account)["closed_at"] == closed
    pipeline.sql(
        "UPDATE findings SET status = 'active', resolved_at = NULL, auto_resolved = NULL WHERE account_id = %s",
        account.id,
    )
    assert pipeline.finding(account)["closed_at"] is None


@pytest.mark.parametrize(("status", "kept"), [("resolved", True), ("false_positive", False)])
def test_what_is_seen_again_is_stored_again_where_the_finding_is_open_again(
    pipeline, account, tools, status, kept
):
    name = f"{pipeline.add_owner()}/shop"
    hosted = pipeline.add_repository(name, {"a.py": token(f"again {status}")})
    pipeline.scan(account, repository_spec(name), tools)
    resolved = (
        "resolved_at = now() - interval '90 days', auto_resolved = true," if status == "resolved" else ""
    )
    pipeline.sql(f"UPDATE findings SET {resolved} status = %s WHERE account_id = %s", status, account.id)
    pipeline.sql(
        "UPDATE findings SET closed_at = now() - interval '90 days' WHERE account_id = %s", account.id
    )
    pipeline.wait(erase_secrets(tools))
    assert not has_box(pipeline, account)
    hosted.push({"a.py": token(f"again {status}"), "b.py": "more"})
    pipeline.scan(account, repository_spec(name), tools)
    assert (pipeline.finding(account)["status"] == "active", has_box(pipeline, account)) == (kept, kept)


def test_where_none_are_kept_none_are_stored_and_those_from_before_are_erased(
    pipeline, account, tools, found
):
    none = replace(tools, keep_secrets=False)
    found({"a.py": token("before")})
    found({"b.py": token("none")}, none)
    assert {one["file_path"]: one["secret_box"] is None for one in pipeline.findings(account)} == {
        "a.py": False,
        "b.py": True,
    }
    assert pipeline.wait(erase_secrets(none)) >= 1
    assert {one["secret_box"] for one in pipeline.findings(account)} == {None}
