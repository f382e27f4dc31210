"""Runs of an account in tests: the real pipeline over a real database, git's own server and a stand-in for GitHub's API."""

import asyncio
import os
import secrets
import subprocess
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID, uuid4

import psycopg

from outcrop.domain.account import Account, Plan
from outcrop.domain.excerpt import Excerpt
from outcrop.domain.scan import ScanRun, Trigger
from outcrop.domain.secret import Secret
from outcrop.domain.target import OPTIONS, Schedule, Target, TargetKind, TargetSpec
from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.scanner.engine.load import compile_ruleset, save_ruleset
from outcrop.scanner.rules.example_templates import expand_template
from outcrop.scanner.rules.toml import parse_rule_file
from outcrop.services import accounts, findings
from outcrop.services.pipeline.context import RunContext
from outcrop.services.pipeline.enqueue import start_run
from outcrop.services.pipeline.foreground import run_in_foreground
from outcrop.services.pipeline.plan import plan_run
from outcrop.services.pipeline.run_source import scan_source
from outcrop.sources.isolated.process_pool import open_process_pool
from outcrop.store import db as database
from outcrop.store.keyring import Keyring
from outcrop.store.runs import scans, targets
from outcrop.validation.engine import ValidationMode, Validator
from tests.support.backend import now
from tests.support.git_host import GitHost, git_host
from tests.support.github_host import NAME, GitHubHost, github_host, merge_egress
from tests.support.rulesets import cached_in, ruleset

T = TypeVar("T")
DAY = 86_400
FIRST_DAY = 1_700_000_000
GIST = "gist.git.example"


def token(seed: object) -> str:
    """Make up a token that is found and has a right checksum."""
    return expand_template("ghp_{{base62 30}}{{crc32_base62}}", str(seed))


class Repo:
    """A repository as the git server serves it; commits are made without a working tree."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.made = 0
        path.mkdir(parents=True)
        self.git("init", "--quiet", "--bare", "--initial-branch=main")
        self.git("config", "uploadpack.allowAnySHA1InWant", "true")  # as GitHub does

    def git(self, *arguments: str, given: bytes = b"") -> str:
        authored = FIRST_DAY + DAY * self.made
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "Ada",
            "GIT_AUTHOR_EMAIL": "ada@example.org",
            "GIT_AUTHOR_DATE": f"{authored} +0000",
            "GIT_COMMITTER_NAME": "Ben",
            "GIT_COMMITTER_EMAIL": "ben@example.org",
            "GIT_COMMITTER_DATE": f"{authored} +0000",
        }
        ran = subprocess.run(
            ["git", *arguments], cwd=self.path, env=environment, input=given, capture_output=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return os.fsdecode(ran.stdout).strip()

    def commit(
        self,
        files: dict[str, str | bytes],
        *,
        branch: str = "main",
        parents: list[str] | None = None,
        message: str = "x",
    ) -> str:
        """Put a tree of exactly these files on a branch, after its tip or after other commits; give the commit's id."""
        tip = self.tip(branch)
        before = parents if parents is not None else [tip] if tip else []
        self.made += 1
        ref = f"refs/heads/{branch}"
        stream = [
            f"commit {ref}\ncommitter Ben <ben@example.org> {FIRST_DAY + DAY * self.made} +0000\n".encode()
        ]
        stream += [f"data {len(message.encode())}\n{message}\n".encode()]
        stream += [
            f"{'merge' if number else 'from'} {parent}\n".encode() for number, parent in enumerate(before)
        ]
        stream += [b"deleteall\n"]
        for path, content in files.items():
            raw = content if isinstance(content, bytes) else content.encode()
            quoted = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            stream += [f'M 100644 inline "{quoted}"\ndata {len(raw)}\n'.encode(), raw, b"\n"]
        if not before:  # a new history: fast-import would go on from the branch's tip
            stream.insert(0, f"reset {ref}\n\n".encode())
        self.git("fast-import", "--quiet", "--force", given=b"".join(stream))
        return self.tip(branch) or ""

    def tip(self, branch: str = "main") -> str | None:
        return self.git("for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}") or None

    def move(self, ref: str, to: str) -> None:
        self.git("update-ref", ref, to)

    def delete(self, ref: str) -> None:
        self.git("update-ref", "-d", ref)

    def reached(self) -> list[str]:
        """Give the commits that a ref reaches."""
        return self.git("rev-list", "--all").split()


@dataclass
class Hosted:
    """A repository of the stand-in, with what the API tells about it."""

    repo: Repo
    full_name: str
    hub: GitHubHost
    pushes: int = 0

    def push(self, files: dict[str, str | bytes], **more: Any) -> str:
        """Commit, and let the API know."""
        made = self.repo.commit(files, **more)
        self.pushed()
        return made

    def pushed(self, *, kept: bool = True) -> None:
        """Let the API tell of a push. Commits that no ref reaches any more are still served, as GitHub does, unless not kept."""
        self.pushes += 1
        self.hub.repos[self.full_name]["pushed_at"] = f"2026-01-01T00:00:{self.pushes:02}Z"
        held = self.hub.commits[self.full_name] if kept else []
        self.hub.commits[self.full_name] = list(dict.fromkeys([*held, *self.repo.reached()]))

    @property
    def id(self) -> int:
        return int(self.hub.repos[self.full_name]["id"])

    @property
    def source(self) -> str:
        return f"github.example/repositories/{self.id}"


@dataclass
class Pipeline:
    """What the tests of runs work with."""

    loop: asyncio.Runner
    url: str
    tools: RunContext
    git: GitHost
    hub: GitHubHost
    served: Path
    cache: Path

    # --- what is looked at

    def owner(self, **more: Any) -> str:
        name = f"acme-{secrets.token_hex(4)}"
        self.hub.add_user(name, **more)
        return name

    def hosted(self, full_name: str, files: dict[str, str | bytes] | None = None, **fields: Any) -> Hosted:
        """Make a repository that the API tells of and the git server serves; no files: an empty one."""
        self.hub.add_repo(full_name, commits=(), **({"has_wiki": False} | fields))
        made = Hosted(Repo(self.served / f"{full_name}.git"), full_name, self.hub)
        if files is not None:
            made.push(files)
        return made

    def gist(
        self, login: str | None, files: dict[str, str | bytes], **more: Any
    ) -> tuple[dict[str, Any], Repo]:
        told = self.hub.add_gist(login, **more)
        repo = Repo(self.served / "gist" / f"{told['id']}.git")
        repo.commit(files)
        return told, repo

    # --- runs

    def account(self) -> Account:
        slug = f"p-{secrets.token_hex(6)}"

        async def make() -> Account:
            async with self.tools.pool.connection() as db, db.transaction():
                return await accounts.create_account(
                    db, slug=slug, plan=Plan.GROWTH, email=f"{slug}@example.com", by="test", now=now()
                )

        return self.wait(make())

    def scan(self, account: Account, spec: TargetSpec, tools: RunContext | None = None) -> ScanRun:
        """Run a target in the foreground, as `outcrop scan --account` does. No work is left behind."""
        run = self.wait(run_in_foreground(tools or self.tools, account, spec, lambda _: None, by="a test"))
        assert run.finished_at is not None
        self.assert_no_work_is_left()
        return run

    def scan_with(self, account: Account, spec: TargetSpec, credential: str) -> ScanRun:
        """Run a target that has a credential of its own, as a worker does."""
        target = Target(uuid4(), spec, Schedule.OFF, now())

        async def add() -> None:
            box = self.tools.keys.seal(Secret(credential), account.id, target.id)
            async with self.tools.pool.connection() as db, db.transaction():
                await targets.insert(db, account.id, target, box)

        self.wait(add())
        run_id, names = self.planned(account, spec, target_id=target.id)
        for name in names:
            self.look(account, run_id, name)
        return self.told(account, run_id)

    def planned(
        self, account: Account, spec: TargetSpec, target_id: UUID | None = None
    ) -> tuple[UUID, list[str]]:
        """Make a run and plan it; give its id and the names of its sources."""

        async def plan() -> tuple[UUID, list[str]]:
            async with self.tools.pool.connection() as db, db.transaction():
                run = await start_run(
                    db,
                    account.id,
                    spec,
                    trigger=Trigger.CLI,
                    target_id=target_id,
                    moment=now(),
                    by="a test",
                    foreground=1,
                )
            return run.id, await plan_run(self.tools, account.id, run.id, deferred=False)

        return self.wait(plan())

    def look(self, account: Account, run_id: UUID, source: str) -> None:
        self.wait(scan_source(self.tools, account.id, run_id, source))

    def told(self, account: Account, run_id: UUID) -> ScanRun:
        async def select() -> ScanRun:
            async with self.tools.pool.connection() as db:
                run = await scans.select(db, account.id, run_id)
            assert run is not None
            return run

        return self.wait(select())

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run(work)

    @contextmanager
    def rules(self, text: str) -> Iterator[RunContext]:
        """Give tools that know these rules and no others; the child processes find them in the cache."""
        ruleset = compile_ruleset(parse_rule_file(text, "own.toml"), secrets.token_hex(16))
        save_ruleset(self.cache, ruleset)
        stack = AsyncExitStack()
        crew = self.wait(_entered(stack, open_process_pool(1, [], ruleset, self.tools.egress, self.cache)))
        try:
            yield replace(self.tools, ruleset=ruleset, process_pool=crew)
        finally:
            self.wait(stack.aclose())

    # --- what came of it

    def sql(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as db:
            cursor = db.execute(query.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def findings(self, account: Account) -> list[dict[str, Any]]:
        """Give the findings of an account as they stand in the database, by path."""
        with psycopg.connect(self.url, autocommit=True) as db:
            cursor = db.execute(
                "SELECT * FROM findings WHERE account_id = %s ORDER BY file_path, matched_text, id",
                [account.id],
            )
            names = [column.name for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def finding(self, account: Account) -> dict[str, Any]:
        """Give the one finding of an account."""
        (found,) = self.findings(account)
        return found

    def excerpt(self, account: Account, id_: UUID) -> Excerpt | None:
        """Give the lines around a finding, as they are shown."""

        async def read() -> Excerpt | None:
            async with self.tools.pool.connection() as db:
                return await findings.get_excerpt(db, self.tools.keys, account.id, id_)

        return self.wait(read())

    def events(self, account: Account) -> list[tuple[str, UUID]]:
        """Give the events that wait to be sent, in no order."""
        return self.sql(
            "SELECT event, finding_id FROM outbox WHERE account_id = %s ORDER BY event", account.id
        )  # type: ignore[return-value]

    def blobs(self, account: Account) -> set[bytes]:
        return {
            blob for (blob,) in self.sql("SELECT blob FROM occurrences WHERE account_id = %s", account.id)
        }

    def assert_no_work_is_left(self) -> None:
        assert list((self.cache / "work").glob("scan-*")) == []


async def _entered(stack: AsyncExitStack, context: Any) -> Any:
    return await stack.enter_async_context(context)


def owner_spec(owner: str, *include: str, exclude: tuple[str, ...] = (), **options: bool) -> TargetSpec:
    return TargetSpec(
        TargetKind.OWNER, f"github:{owner}", include, exclude, OPTIONS[TargetKind.OWNER] | options
    )


def repository_spec(full_name: str, *include: str, exclude: tuple[str, ...] = ()) -> TargetSpec:
    """Name a repository of the stand-in."""
    return TargetSpec(
        TargetKind.REPOSITORY,
        f"https://{NAME}/{full_name}",
        include,
        exclude,
        dict(OPTIONS[TargetKind.REPOSITORY]),
    )


def plain_spec(name: str, *include: str, exclude: tuple[str, ...] = ()) -> TargetSpec:
    """Name a repository of a host without an API."""
    return TargetSpec(TargetKind.REPOSITORY, f"https://git.example/{name}.git", include, exclude)


@contextmanager
def open_pipeline(url: str, keys: Keyring, folder: Path) -> Iterator[Pipeline]:
    """Open everything once for many tests: two child processes, which find the rules compiled."""
    cache = cached_in(folder / "cache") / "outcrop"
    served = folder / "served"
    served.mkdir()
    with git_host(served, folder) as git, github_host(folder, limit=10**9) as hub, asyncio.Runner() as loop:
        stack = AsyncExitStack()
        egress = merge_egress(folder, git.egress, hub.egress)
        tools = loop.run(_tools(stack, url, keys, egress, hub.base_url, cache))
        try:
            yield Pipeline(loop, url, tools, git, hub, served, cache)
        finally:
            loop.run(stack.aclose())


def _tools(
    stack: AsyncExitStack, url: str, keys: Keyring, egress: Egress, github_url: str, cache: Path
) -> Coroutine[Any, Any, RunContext]:
    async def make() -> RunContext:
        return RunContext(
            pool=await stack.enter_async_context(database.open_pool(url, size=8, statement_timeout=30)),
            keys=keys,
            ruleset=ruleset(),
            process_pool=await stack.enter_async_context(open_process_pool(2, [], ruleset(), egress, cache)),
            http=(http := await stack.enter_async_context(open_http(egress))),
            validator=Validator(http, ValidationMode.OFF),
            egress=egress,
            github_url=github_url,
            jobs=2,
            work=cache,
        )

    return make()
