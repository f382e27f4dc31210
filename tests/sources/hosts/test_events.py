"""Pushes in the lists of events of GitLab and Gitea, on stand-ins: what is new, and what may be missing."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from outcrop.sources.code_host.events import Poll, PushEvent
from outcrop.sources.code_host.host import CodeHost
from tests.sources.hosts.test_every_host import KINDS, Kind, Running
from tests.support.code_hosts.stand_in import answer_json, run_stand_in
from tests.support.fake_https import FakeResponse

SHA = "c" * 40
GITLAB, GITEA = KINDS[0], KINDS[2]
LISTS = {GITLAB: "/events?", GITEA: "/activities/feeds?"}


@pytest.fixture(params=LISTS, ids=str)
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    kind: Kind = request.param
    with run_stand_in(kind.make(), tmp_path / "tls") as stand_in:
        stand_in.add(f"{kind.project}/shop")
        stand_in.add("other/thing")
        yield Running(kind, stand_in)


def event(kind: Kind, id_: int, repository: int = 100) -> dict[str, Any]:
    """Return a push as the host writes it."""
    if kind is GITLAB:
        push_data = {"ref": "main", "commit_to": SHA, "ref_type": "branch"}
        fields = {"action_name": "pushed to", "author_username": "ada", "push_data": push_data}
        return {"id": id_, "project_id": repository} | fields
    repo = {"id": repository, "full_name": "acme/shop"}
    fields = {"op_type": "commit_repo", "ref_name": "refs/heads/main", "act_user": {"login": "ada"}}
    return {"id": id_, "repo": repo} | fields


def serve(running: Running, events: Sequence[Any], **headers: str) -> None:
    running.stand_in.always = {LISTS[running.kind]: answer_json(list(events), headers=headers)}


def poll(running: Running, known: Sequence[str] | None, etag: str | None = None) -> Poll:
    async def ask(host: CodeHost) -> Poll:
        feed = await host.event_feed(running.kind.owner, is_owner=True, is_own_token=True)
        assert feed is not None
        return await feed.poll(known, etag)

    result: Poll = running.call(ask, running.kind.token)
    return result


def test_only_pushes_after_the_known_events_are_new(running: Running) -> None:
    kind = running.kind
    serve(running, [event(kind, 2), event(kind, 1)], ETag='"one"')
    first = poll(running, None)
    assert (first.pushes, first.known, first.etag, first.is_complete) == ((), ("2", "1"), '"one"', True)
    other = {"id": 4, "op_type": "create_repo", "action_name": "joined"}
    serve(running, [event(kind, 5), other, event(kind, 3), event(kind, 2), event(kind, 1)])
    second = poll(running, first.known, first.etag)
    after = SHA if kind is GITLAB else None
    assert second.pushes == (PushEvent("100", "acme/shop", "main", "ada", after),) * 2
    assert second.known is not None
    assert set(second.known) == {"1", "2", "3", "4", "5"}
    asked = [request for request in running.stand_in.requests if LISTS[kind][:-1] in request.path]
    assert asked[-1].headers["If-None-Match"] == '"one"'
    assert poll(running, second.known).pushes == ()


def test_an_unchanged_list_has_nothing_new_and_keeps_its_etag(running: Running) -> None:
    running.stand_in.always = {LISTS[running.kind]: FakeResponse(304, {"X-Poll-Interval": "90"})}
    unchanged = poll(running, ("1",), '"one"')
    assert (unchanged.pushes, unchanged.known, unchanged.etag) == ((), None, '"one"')
    assert unchanged.seconds == 90.0


@pytest.mark.parametrize(("given", "seconds"), [("1", 60.0), ("9" * 30, 60.0), ("999999", 3_600.0)])
def test_the_interval_of_the_host_is_bounded(running: Running, given: str, seconds: float) -> None:
    serve(running, [], **{"X-Poll-Interval": given})
    assert poll(running, None).seconds == seconds


def test_events_that_the_list_no_longer_has_are_noticed(running: Running) -> None:
    serve(running, [event(running.kind, 50)])
    assert not poll(running, ("1", "2")).is_complete
    assert poll(running, ()).is_complete  # the list was empty before


def test_endless_pages_and_strange_events_are_bounded(running: Running) -> None:
    kind = running.kind
    strange = [None, 7, {}, {"id": [1]}, event(kind, 1, True), {"id": 2, "push_data": [], "repo": 5}]  # type: ignore[arg-type]
    url = str(running.kind.url or "https://gitlab.com")
    api = "/api/v1" if kind is GITEA else "/api/v4"
    serve(running, strange, Link=f'<{url}{api}{LISTS[kind]}page=2>; rel="next"')
    assert poll(running, ("x",)).pushes == ()
    assert len([path for path in running.stand_in.paths if path.endswith(LISTS[kind][:-1])]) == 3
    serve(running, [event(kind, 3)], Link='<https://127.0.0.2/events>; rel="next"')
    with pytest.raises(Exception, match="at another host"):
        poll(running, ("x",))
    running.stand_in.always = {LISTS[kind]: answer_json({"message": "no"})}
    with pytest.raises(Exception, match="not a list"):
        poll(running, ("x",))


def test_a_push_to_a_project_of_another_group_is_none(tmp_path: Path) -> None:
    with run_stand_in(GITLAB.make(), tmp_path / "tls") as stand_in:
        stand_in.add("acme/shop")
        stand_in.add("acme2/thing")
        running = Running(GITLAB, stand_in)
        serve(running, [event(GITLAB, 3, 101), event(GITLAB, 2, 999), event(GITLAB, 1, 100)])
        assert [push.full_name for push in poll(running, ()).pushes] == ["acme/shop"]
