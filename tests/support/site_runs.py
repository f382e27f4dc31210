"""Run the real pipeline on web sites on loopback. Its HTTP client reaches the test's host by name only."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID, uuid4

from outcrop.domain.account import Account
from outcrop.domain.clock import now
from outcrop.domain.scan import ScanRun, Trigger
from outcrop.domain.secret import Secret
from outcrop.domain.target import OPTIONS, Schedule, Target, TargetKind, TargetSpec
from outcrop.net.guard import Egress, LookUp, look_up
from outcrop.net.http import open_http
from outcrop.services.pipeline.context import RUN_LIMITS, RunContext, RunLimits
from outcrop.services.pipeline.enqueue import start_run
from outcrop.services.pipeline.plan import plan_run
from outcrop.services.pipeline.run_source import scan_source
from outcrop.store.runs import targets
from tests.support.pipeline import Pipeline
from tests.support.web_host import START, Reply, Route, WebHost, page, web_host

T = TypeVar("T")
MAX_SECONDS = 120.0  # for one run


def site_spec(
    start: str = START,
    *include: str,
    exclude: tuple[str, ...] = (),
    kind: TargetKind = TargetKind.SITE,
    **options: int,
) -> TargetSpec:
    """Return the spec of a site target with these options."""
    return TargetSpec(kind, start, include, exclude, OPTIONS[kind] | options)


@dataclass
class SiteRuns:
    """Runs of one account on one web host."""

    pipeline: Pipeline
    account: Account
    host: WebHost
    egress: Egress | None = None
    look_up: LookUp = look_up
    limits: RunLimits = RUN_LIMITS
    _targets: dict[str, UUID] = field(default_factory=dict)

    def scan(self, spec: TargetSpec | None = None, *, credential: str | None = None) -> ScanRun:
        """Run a site target to its end, and check that no work folder is left."""
        run_id = self.wait(self.run(spec or site_spec(), credential=credential))
        self.pipeline.assert_no_work_folder()
        return self.pipeline.get_run(self.account, run_id)

    async def run(
        self, spec: TargetSpec, tools: RunContext | None = None, *, credential: str | None = None
    ) -> UUID:
        """Plan a run and scan its sources; return the id of the run."""
        target_id = await self._target(spec, credential) if credential else None
        run_id, names = await self.plan(spec, target_id)
        for name in names:
            await self.scan_source(run_id, name, tools)
        return run_id

    async def plan(self, spec: TargetSpec, target_id: UUID | None = None) -> tuple[UUID, list[str]]:
        """Plan a run; return its id and its sources."""
        tools = self.pipeline.context
        async with tools.pool.connection() as db, db.transaction():
            run = await start_run(
                db,
                tools.keys,
                self.account.id,
                spec,
                trigger=Trigger.CLI,
                target_id=target_id,
                moment=now(),
                by="a test",
                foreground=1,
            )
        return run.id, await plan_run(tools, self.account.id, run.id, deferred=False)

    async def scan_source(self, run_id: UUID, source: str, tools: RunContext | None = None) -> None:
        """Scan one source of a planned run, with an HTTP client that reaches the host of the test."""
        egress = self.egress or self.host.egress
        async with open_http(egress, look_up=self.look_up) as http:
            await scan_source(
                replace(tools or self.pipeline.context, http=http, egress=egress, limits=self.limits),
                self.account.id,
                run_id,
                source,
            )

    async def _target(self, spec: TargetSpec, credential: str) -> UUID:
        """Return the id of the target with this credential; create it on first use."""
        if credential not in self._targets:
            target = Target(uuid4(), spec, Schedule.OFF, now())
            keys = self.pipeline.context.keys
            box = keys.seal(Secret(credential), self.account.id, target.id)
            url_box = keys.seal_url(spec.name, self.account.id, target.id) if spec.has_query else None
            async with self.pipeline.context.pool.connection() as db, db.transaction():
                await targets.insert(db, self.account.id, target, box, url_box)
            self._targets[credential] = target.id
        return self._targets[credential]

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self.pipeline.wait(asyncio.wait_for(work, MAX_SECONDS))

    # --- Results

    @property
    def findings(self) -> list[dict[str, Any]]:
        return self.pipeline.findings(self.account)

    @property
    def finding(self) -> dict[str, Any]:
        return self.pipeline.finding(self.account)

    def at(self, path: str) -> dict[str, Any]:
        """Return the only finding at a path."""
        (finding,) = [finding for finding in self.findings if finding["file_path"] == path]
        return finding

    @property
    def paths(self) -> list[str]:
        return [finding["file_path"] for finding in self.findings]

    @property
    def statuses(self) -> dict[str, str]:
        return {finding["file_path"]: finding["status"] for finding in self.findings}

    @property
    def events(self) -> list[str]:
        return [name for name, _ in self.pipeline.events(self.account)]

    def tables_with(self, *values: str) -> set[str]:
        """Return the tables that contain one of these values anywhere, as text or as bytes."""
        names = self.pipeline.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        texts = [*values, *(value.encode().hex() for value in values)]
        query = """SELECT 1 FROM (SELECT t::text AS row_text FROM "{}" t) r, unnest(%s::text[]) v
            WHERE strpos(row_text, v) > 0 LIMIT 1"""
        return {name for (name,) in names if self.pipeline.sql(query.format(name), texts)}


@contextmanager
def served(
    pipeline: Pipeline,
    account: Account,
    routes: dict[str, Route],
    *names: str,
    limits: RunLimits = RUN_LIMITS,
    look_up: LookUp = look_up,
    **more: Any,
) -> Iterator[SiteRuns]:
    """Serve a site for runs of an account; its routes may be changed between the runs."""
    with web_host(routes, *names, **more) as host:
        yield SiteRuns(pipeline, account, host, look_up=look_up, limits=limits)


def linked(*paths: str, value: str | None = None) -> Route:
    """Return a page with these links and, if given, a value."""
    return page(
        "".join(f'<a href="{path}">{path}</a>' for path in paths) + (f"<p>key = {value}</p>" if value else "")
    )


class Gate:
    """A route that holds its response back until `open` is set."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.requested, self.open = threading.Event(), threading.Event()

    def __call__(self, _: object) -> Reply:
        self.requested.set()
        self.open.wait(60)
        return self.reply

    async def reached(self) -> None:
        """Wait until the route is requested."""
        assert await asyncio.to_thread(self.requested.wait, 60)


def gap_reasons(run: ScanRun, part: str = "") -> list[str]:
    """Return the reasons of the run's gaps whose address contains `part`."""
    return [gap.why for gap in run.coverage_gaps if part in gap.what]
