"""Run the real pipeline on a real database, git's own server and a stand-in for the GitHub API."""

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

from outcrop.domain.account import Account, Plan
from outcrop.domain.clock import now
from outcrop.domain.excerpt import Excerpt
from outcrop.domain.scan import ScanRun, Trigger
from outcrop.domain.secret import Secret
from outcrop.domain.target import OPTIONS, Schedule, Target, TargetKind, TargetSpec
from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.runtime import Runtime
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
from tests.support.connections import borrow_connection, query
from tests.support.git_host import NO_MAINTENANCE, GitHost, git_host
from tests.support.github_host import NAME, GitHubHost, github_host, merge_egress
from tests.support.rulesets import cached_in, ruleset

T = TypeVar("T")
DAY = 86_400
FIRST_DAY = 1_700_000_000
GIST = "gist.git.example"


def token(seed: object) -> str:
    """Return a GitHub token with a correct checksum, the same for the same seed."""
    return expand_template("ghp_{{base62 30}}{{crc32_base62}}", str(seed))


class Repo:
    """A bare repository that the git server serves; commits are written without a working tree."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.commit_count = 0  # gives each commit its own date
        path.mkdir(parents=True)
        self.git("init", "--quiet", "--bare", "--initial-branch=main")
        with (path / "config").open("a") as config:
            config.write("[uploadpack]\n\tallowAnySHA1InWant = true\n")  # as GitHub does

    def git(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run git in the repository and return its output."""
        authored = FIRST_DAY + DAY * self.commit_count
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            **NO_MAINTENANCE,
            "GIT_AUTHOR_NAME": "Ada",
            "GIT_AUTHOR_EMAIL": "ada@example.org",
            "GIT_AUTHOR_DATE": f"{authored} +0000",
            "GIT_COMMITTER_NAME": "Ben",
            "GIT_COMMITTER_EMAIL": "ben@example.org",
            "GIT_COMMITTER_DATE": f"{authored} +0000",
        }
        ran = subprocess.run(
            ["git", *arguments], cwd=self.path, env=environment, input=stdin, capture_output=True, check=False
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
        """Commit exactly these files to a branch and return the commit's id.

        `parents` defaults to the tip of the branch; an empty list begins a new history.
        """
        tip = self.tip(branch)
        if parents is None:
            parents = [tip] if tip else []
        self.commit_count += 1
        ref = f"refs/heads/{branch}"
        stream = [
            f"commit {ref}\ncommitter Ben <ben@example.org> {FIRST_DAY + DAY * self.commit_count} +0000\n".encode()
        ]
        stream += [f"data {len(message.encode())}\n{message}\n".encode()]
        stream += [
            f"{'merge' if number else 'from'} {parent}\n".encode() for number, parent in enumerate(parents)
        ]
        stream += [b"deleteall\n"]
        for path, content in files.items():
            raw = content if isinstance(content, bytes) else content.encode()
            quoted = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            stream += [f'M 100644 inline "{quoted}"\ndata {len(raw)}\n'.encode(), raw, b"\n"]
        if not parents:  # otherwise fast-import would continue from the branch's tip
            stream.insert(0, f"reset {ref}\n\n".encode())
        self.git("fast-import", "--quiet", "--force", stdin=b"".join(stream))
        return self.tip(branch) or ""

    def tip(self, branch: str = "main") -> str | None:
        """Return the newest commit of a branch; None if there is no such branch.

        The file of the branch is read, if there is one: that is quicker than to start git.
        """
        file = self.path / "refs/heads" / branch
        if file.is_file():
            return file.read_text().strip()
        return self.git("for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}") or None

    def set_ref(self, ref: str, commit: str) -> None:
        self.git("update-ref", ref, commit)

    def delete_ref(self, ref: str) -> None:
        self.git("update-ref", "-d", ref)

    def reachable_commits(self) -> list[str]:
        """Return the commits that a ref reaches."""
        return self.git("rev-list", "--all").split()


@dataclass
class ServedRepository:
    """A repository of the git server, with its entry in the GitHub API."""

    repo: Repo
    full_name: str
    hub: GitHubHost
    pushes: int = 0

    def push(self, files: dict[str, str | bytes], **options: Any) -> str:
        """Commit files and update the API; return the commit's id."""
        commit = self.repo.commit(files, **options)
        self.update_api()
        return commit

    def update_api(self, *, keep_commits: bool = True) -> None:
        """Set a new push time of the repository in the API.

        With `keep_commits` the API still serves commits that no ref reaches, as GitHub does.
        """
        self.pushes += 1
        self.hub.repos[self.full_name]["pushed_at"] = f"2026-01-01T00:00:{self.pushes:02}Z"
        old = self.hub.commits[self.full_name] if keep_commits else []
        self.hub.commits[self.full_name] = list(dict.fromkeys([*old, *self.repo.reachable_commits()]))

    @property
    def id(self) -> int:
        return int(self.hub.repos[self.full_name]["id"])

    @property
    def source(self) -> str:
        return f"github.example/repositories/{self.id}"


@dataclass
class Pipeline:
    """The pipeline with its database, hosts and clients, and shortcuts for tests."""

    loop: asyncio.Runner
    url: str
    context: RunContext
    git: GitHost
    hub: GitHubHost
    served: Path
    cache: Path

    # --- repositories to scan

    def add_owner(self, **fields: Any) -> str:
        """Add an owner to the GitHub API and return its name."""
        name = f"acme-{secrets.token_hex(4)}"
        self.hub.add_user(name, **fields)
        return name

    def add_repository(
        self, full_name: str, files: dict[str, str | bytes] | None = None, **fields: Any
    ) -> ServedRepository:
        """Add a repository to the API and the git server, with one commit of these files, or empty."""
        self.hub.add_repo(full_name, commits=(), **({"has_wiki": False} | fields))
        repository = ServedRepository(Repo(self.served / f"{full_name}.git"), full_name, self.hub)
        if files is not None:
            repository.push(files)
        return repository

    def add_gist(
        self, login: str | None, files: dict[str, str | bytes], **fields: Any
    ) -> tuple[dict[str, Any], Repo]:
        """Add a gist with these files; return its entry in the API and its repository."""
        entry = self.hub.add_gist(login, **fields)
        repo = Repo(self.served / "gist" / f"{entry['id']}.git")
        repo.commit(files)
        return entry, repo

    # --- runs

    def create_account(self) -> Account:
        """Create an account with a random name."""
        slug = f"p-{secrets.token_hex(6)}"

        async def create() -> Account:
            async with self.context.pool.connection() as db, db.transaction():
                return await accounts.create_account(
                    db, slug=slug, plan=Plan.GROWTH, email=f"{slug}@example.com", by="test", now=now()
                )

        return self.wait(create())

    def scan(self, account: Account, spec: TargetSpec, context: RunContext | None = None) -> ScanRun:
        """Scan a target as `outcrop scan --account` does, and check that no work folder is left."""
        run = self.wait(
            run_in_foreground(context or self.context, account, spec, lambda _: None, by="a test")
        )
        assert run.finished_at is not None
        self.assert_no_work_folder()
        return run

    def with_limits(self, **limits: Any) -> RunContext:
        """Return the context with other limits; see `RunLimits`."""
        return replace(self.context, limits=replace(self.context.limits, **limits))

    def add_target(self, account: Account, spec: TargetSpec, credential: str | None = None) -> Target:
        """Store a target that has no schedule; return it."""
        target = Target(uuid4(), spec, Schedule.OFF, now(), has_credential=credential is not None)
        keys = self.context.keys
        box = None if credential is None else keys.seal(Secret(credential), account.id, target.id)

        async def add() -> None:
            async with self.context.pool.connection() as db, db.transaction():
                await targets.insert(db, account.id, target, box)

        self.wait(add())
        return target

    def scan_with(self, account: Account, spec: TargetSpec, credential: str) -> ScanRun:
        """Run a scan of a target with its own credential, as a worker does."""
        target = self.add_target(account, spec, credential)
        run_id, names = self.plan(account, spec, target_id=target.id)
        for name in names:
            self.scan_source(account, run_id, name)
        return self.get_run(account, run_id)

    def plan(
        self, account: Account, spec: TargetSpec, target_id: UUID | None = None, *, deferred: bool = False
    ) -> tuple[UUID, list[str]]:
        """Create a run and plan it; return its id and the names of its sources."""
        run_id = self.start(account, spec, target_id, deferred=deferred)
        return run_id, self.wait(plan_run(self.context, account.id, run_id, deferred=deferred))

    def start(
        self, account: Account, spec: TargetSpec, target_id: UUID | None = None, *, deferred: bool = False
    ) -> UUID:
        """Create a run and return its id."""

        async def start() -> UUID:
            async with self.context.pool.connection() as db, db.transaction():
                run = await start_run(
                    db,
                    self.context.keys,
                    account.id,
                    spec,
                    trigger=Trigger.CLI,
                    target_id=target_id,
                    moment=now(),
                    by="a test",
                    foreground=None if deferred else 1,
                )
            return run.id

        return self.wait(start())

    def scan_source(
        self, account: Account, run_id: UUID, source: str, context: RunContext | None = None
    ) -> None:
        """Scan one source of a planned run."""
        self.wait(scan_source(context or self.context, account.id, run_id, source))

    def get_run(self, account: Account, run_id: UUID) -> ScanRun:
        """Return a run as it is stored."""

        async def select() -> ScanRun:
            async with self.context.pool.connection() as db:
                run = await scans.select(db, account.id, run_id)
            assert run is not None
            return run

        return self.wait(select())

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run(work)

    @contextmanager
    def open_rules(self, text: str) -> Iterator[RunContext]:
        """Open a context with these rules only; the child processes load them from the cache."""
        ruleset = compile_ruleset(parse_rule_file(text, "own.toml"), secrets.token_hex(16))
        save_ruleset(self.cache, ruleset)
        stack = AsyncExitStack()
        process_pool = self.wait(
            _enter(stack, open_process_pool(1, [], ruleset, self.context.egress, self.cache))
        )
        try:
            yield replace(self.context, ruleset=ruleset, process_pool=process_pool)
        finally:
            self.wait(stack.aclose())

    # --- results

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement on the database and return its rows."""
        return query(self.url, statement, *values)

    @property
    def runtime(self) -> Runtime:
        """The runtime of a worker on this database."""
        return Runtime(self.context.pool, self.context.keys, self.url)

    @contextmanager
    def keep_no_secrets(self) -> Iterator[None]:
        """Set the database to store no credentials during the block."""
        self.sql("UPDATE keyring SET keep_secrets = 'none'")
        try:
            yield
        finally:
            self.sql("UPDATE keyring SET keep_secrets = 'active'")

    def findings(self, account: Account) -> list[dict[str, Any]]:
        """Return the findings of an account as database rows, ordered by path."""
        with borrow_connection(self.url) as db:
            cursor = db.execute(
                "SELECT * FROM findings WHERE account_id = %s ORDER BY file_path, matched_text, id",
                [account.id],
            )
            names = [column.name for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def finding(self, account: Account) -> dict[str, Any]:
        """Return the only finding of an account."""
        (finding,) = self.findings(account)
        return finding

    def excerpt(self, account: Account, id_: UUID) -> Excerpt | None:
        """Return the excerpt of a finding as users see it."""

        async def read() -> Excerpt | None:
            async with self.context.pool.connection() as db:
                return await findings.get_excerpt(db, self.context.keys, account.id, id_)

        return self.wait(read())

    def events(self, account: Account) -> list[tuple[str, UUID]]:
        """Return the waiting events as event type and finding id, ordered by type."""
        return self.sql(
            "SELECT event, finding_id FROM outbox WHERE account_id = %s ORDER BY event", account.id
        )  # type: ignore[return-value]

    def blobs(self, account: Account) -> set[bytes]:
        """Return the ids of all blobs that hold a finding of the account."""
        return {
            blob for (blob,) in self.sql("SELECT blob FROM occurrences WHERE account_id = %s", account.id)
        }

    def assert_no_work_folder(self) -> None:
        """Check that no scan has left a work folder."""
        assert list((self.cache / "work").glob("scan-*")) == []


async def _enter(stack: AsyncExitStack, context: Any) -> Any:
    return await stack.enter_async_context(context)


def owner_spec(owner: str, *include: str, exclude: tuple[str, ...] = (), **options: bool) -> TargetSpec:
    """Return the target of all repositories of an owner."""
    return TargetSpec(
        TargetKind.OWNER, f"github:{owner}", include, exclude, OPTIONS[TargetKind.OWNER] | options
    )


def repository_spec(full_name: str, *include: str, exclude: tuple[str, ...] = ()) -> TargetSpec:
    """Return the target of a repository on the GitHub stand-in."""
    return TargetSpec(
        TargetKind.REPOSITORY,
        f"https://{NAME}/{full_name}",
        include,
        exclude,
        dict(OPTIONS[TargetKind.REPOSITORY]),
    )


def plain_spec(name: str, *include: str, exclude: tuple[str, ...] = ()) -> TargetSpec:
    """Return the target of a repository on a host without an API."""
    return TargetSpec(TargetKind.REPOSITORY, f"https://git.example/{name}.git", include, exclude)


@contextmanager
def open_pipeline(url: str, keys: Keyring, folder: Path) -> Iterator[Pipeline]:
    """Open the pipeline for many tests, with two child processes that load compiled rules."""
    cache = cached_in(folder / "cache") / "outcrop"
    served = folder / "served"
    served.mkdir()
    with git_host(served, folder) as git, github_host(folder, limit=10**9) as hub, asyncio.Runner() as loop:
        stack = AsyncExitStack()
        egress = merge_egress(folder, git.egress, hub.egress)
        context = loop.run(_open_context(stack, url, keys, egress, hub.base_url, cache))
        try:
            yield Pipeline(loop, url, context, git, hub, served, cache)
        finally:
            loop.run(stack.aclose())


async def _open_context(
    stack: AsyncExitStack, url: str, keys: Keyring, egress: Egress, github_url: str, cache: Path
) -> RunContext:
    """Open the clients of a run; `stack` closes them."""
    http = await stack.enter_async_context(open_http(egress))
    return RunContext(
        pool=await stack.enter_async_context(database.open_pool(url, size=8, statement_timeout=30)),
        keys=keys,
        ruleset=ruleset(),
        process_pool=await stack.enter_async_context(open_process_pool(2, [], ruleset(), egress, cache)),
        http=http,
        validator=Validator(http, ValidationMode.OFF),
        egress=egress,
        github_url=github_url,
        jobs=2,
        work=cache,
    )
