"""Create accounts, keys and findings in tests, and access the service by HTTP clients and plain SQL."""

import io
import json
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import uvicorn

from outcrop.asgi import create_app
from outcrop.cli.api_server import STATEMENT_TIMEOUT, ApiProtocol
from outcrop.domain.account import Account, Plan
from outcrop.domain.clock import now
from outcrop.domain.scan import ScanRun
from outcrop.limits import REQUEST_SECONDS
from outcrop.runtime import open_runtime
from outcrop.services import accounts
from outcrop.services import keys as key_service
from outcrop.services.exchange.importer import ImportSummary, import_findings
from outcrop.settings import Settings
from outcrop.store.db import Connection
from outcrop.store.findings import rollups
from outcrop.store.keyring import Keyring
from outcrop.store.runs import scans
from tests.support.connections import query, run_on_connection
from tests.support.rulesets import ruleset

T = TypeVar("T")
IN_TIME = {"statement_timeout": STATEMENT_TIMEOUT, "deadline": REQUEST_SECONDS}


@dataclass(frozen=True)
class Server:
    base_url: str


@contextmanager
def running_server(
    settings: Settings,
    *,
    base_url: str | None = None,
    rate_limit: int | None = None,
    protocol: type[ApiProtocol] = ApiProtocol,
    check_schema_every: float = 60.0,
    statement_timeout: float = 60.0,
    deadline: float = 60.0,
    **options: Any,
) -> Iterator[Server]:
    """Serve the application on a free loopback port, in a thread.

    Its statements and requests may take a minute, so that a busy machine fails no test. IN_TIME has the limits
    of the service.
    """
    ruleset()  # into the cache; otherwise the first note would make each server compile all rules
    runtime = open_runtime(
        settings, pool_size=8, statement_timeout=statement_timeout, check_schema_every=check_schema_every
    )
    app = create_app(
        runtime,
        base_url=base_url or "http://127.0.0.1",
        rate_limit=rate_limit,
        deadline=deadline,
        **options,
    )
    config = uvicorn.Config(
        app,
        port=0,
        http=protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=1,  # a test may have left a request open
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise RuntimeError("the test server did not start")
        time.sleep(0.01)
    try:
        yield Server(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}")
    finally:
        server.should_exit = True
        thread.join(60)


@dataclass(frozen=True)
class Tenant:
    """An account, its API key, and an HTTP client that uses the key."""

    account: Account
    key: str
    key_id: str
    client: httpx.Client

    def get(self, path: str, **params: Any) -> httpx.Response:
        return self.client.get(f"/api/v1{path}", params=params)

    def post(self, path: str, **params: Any) -> httpx.Response:
        return self.client.post(f"/api/v1{path}", params=params)

    def finding(self, id_: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/findings/{id_}").raise_for_status().json()["data"]
        return found


class Backend:
    """A database with the service's functions, and HTTP clients of the server at `base_url`."""

    def __init__(self, settings: Settings, keys: Keyring, base_url: str) -> None:
        self.settings = settings
        self.keys = keys
        self.base_url = base_url
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def tenant(self, plan: Plan = Plan.GROWTH, slug: str | None = None) -> Tenant:
        """Create an account with one API key."""
        slug = slug or f"t-{secrets.token_hex(6)}"
        account = self.run(
            lambda db: accounts.create_account(
                db, slug=slug, plan=plan, email=f"{slug}@example.com", by="test", now=now()
            )
        )
        key_id, token = self.key(account)
        return Tenant(account, token, key_id, self.client(token))

    def key(
        self, account: Account, *, member: str | None = None, expires_at: datetime | None = None
    ) -> tuple[str, str]:
        """Create an API key; return its id and its text."""
        new = self.run(
            lambda db: key_service.create_key(
                db, account, name="test", expires_at=expires_at, by="test", member=member, now=now()
            )
        )
        return str(new.key.id), new.token

    def client(self, token: str | None = None) -> httpx.Client:
        """Return an HTTP client that sends the token, until the backend is closed."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return self._stack.enter_context(
            httpx.Client(base_url=self.base_url, headers=headers, timeout=60, trust_env=False, verify=False)
        )

    def import_(self, account: Account, *lines: dict[str, Any]) -> ImportSummary:
        """Import findings as `outcrop import` does; see `make_line`."""
        file = io.BytesIO(b"".join(json.dumps(line).encode() + b"\n" for line in lines))

        async def work(db: Connection) -> ImportSummary:
            return await import_findings(
                db, self.keys, account, file, by="test", now=now(), progress=lambda _: None
            )

        return self.run(work, transaction=False)

    def scan(self, account: Account, run: ScanRun) -> None:
        self.run(lambda db: scans.insert(db, account.id, run))

    def fold(self) -> int:
        return self.run(rollups.fold_deltas, transaction=False)

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement in autocommit mode; return its rows."""
        assert self.settings.database_url is not None
        return query(self.settings.database_url, statement, *values)

    @contextmanager
    def without_tables(self, *tables: str) -> Iterator[None]:
        """Rename tables for the body, so that every statement on them fails."""
        for table in tables:
            self.sql(f"ALTER TABLE {table} RENAME TO {table}_away")
        try:
            yield
        finally:
            for table in tables:
                self.sql(f"ALTER TABLE {table}_away RENAME TO {table}")

    @contextmanager
    def failing_tables(self, sqlstate: str, *tables: str) -> Iterator[None]:
        """Make every statement that reads these tables fail with an SQLSTATE, during the body."""
        self.sql(
            "CREATE FUNCTION fail() RETURNS boolean STABLE LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '{sqlstate}'; END $$"
        )
        try:
            with self.without_tables(*tables):
                for table in tables:
                    self.sql(f"CREATE VIEW {table} AS SELECT * FROM {table}_away WHERE fail()")
                try:
                    yield
                finally:
                    self.sql(f"DROP VIEW {', '.join(tables)}")
        finally:
            self.sql("DROP FUNCTION fail()")

    def run(self, work: Callable[[Connection], Awaitable[T]], *, transaction: bool = True) -> T:
        """Run a function of a service or the store, in a transaction by default."""
        assert self.settings.database_url is not None
        return run_on_connection(self.settings.database_url, work, transaction=transaction)
