"""A push to a repository of an owner leads to the source that the owner's list has, on every code host."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from outcrop.domain.clock import now
from outcrop.domain.push import HookHost
from outcrop.domain.target import OPTIONS, Schedule, Target, TargetKind, TargetSpec
from outcrop.net.http import open_http
from outcrop.services.pipeline.pushes.start import covers
from outcrop.sources.code_host.host import HostAccess
from outcrop.sources.code_host.registry import open_host
from outcrop.sources.hooks.delivery import build_push
from outcrop.sources.resolve_target import ScanSource, resolve_pushed, resolve_target
from tests.sources.hosts.test_every_host import KINDS, Kind, Running
from tests.support.code_hosts.stand_in import run_stand_in


@pytest.fixture(params=KINDS, ids=str)
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    kind: Kind = request.param
    with run_stand_in(kind.make(), tmp_path / "tls") as stand_in:
        stand_in.add(f"{kind.project}/shop")
        stand_in.add(f"{kind.project}/other")
        yield Running(kind, stand_in)


def test_a_push_leads_to_the_source_of_the_list(running: Running) -> None:
    kind = running.kind
    spec = TargetSpec(
        TargetKind.OWNER,
        f"{kind.name}:{kind.owner}",
        options=dict(OPTIONS[TargetKind.OWNER]),
        host_url=kind.url,
    )

    async def main() -> tuple[list[ScanSource], list[list[ScanSource]]]:
        assert running.stand_in.server is not None
        async with open_http(running.stand_in.server.egress) as http:
            host = open_host(kind.name, HostAccess(http=http, url=kind.url))
            listed = [
                source async for source in resolve_target(spec, host, has_credential=False, gaps=running.gaps)
            ]
            found = []
            for source in listed:
                push = build_push(
                    HookHost(kind.name),
                    repository_id="1",
                    full_name=source.full_name,
                    addresses=(source.url, source.html_url),
                    branches=("main",),
                    author=None,
                )
                assert covers(Target(uuid4(), spec, Schedule.OFF, now()), push), push
                stranger = TargetSpec(TargetKind.OWNER, f"{kind.name}:{kind.owner}2", host_url=kind.url)
                assert not covers(Target(uuid4(), stranger, Schedule.OFF, now()), push)
                assert push.url is not None
                found.append(
                    await resolve_pushed(spec, push.url, host, has_credential=False, gaps=running.gaps)
                )
            return listed, found

    listed, found = asyncio.run(main())
    assert len(listed) == 2
    assert [[source.source for source in sources] for sources in found] == [[s.source] for s in listed]
    assert running.gaps == []
