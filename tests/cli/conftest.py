"""The command as users call it, on a database of its own."""

import asyncio
import io
import json
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from outcrop.cli import run_command
from outcrop.store.db import connect
from outcrop.store.schema import migrate
from tests.support.databases import migrated_database
from tests.support.rulesets import only_github_rules

__all__ = ["only_github_rules"]


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


Outcrop = Callable[..., Ran]


@pytest.fixture(scope="session")
def service(cluster: str, worker_id: str) -> tuple[str, list[str]]:
    """Create a database for this worker's commands; return its URL and the tables that are empty at first."""
    url = migrated_database(cluster, f"cli_{worker_id}")

    async def made() -> None:
        async with await connect(url) as db:
            await migrate(db)

    asyncio.run(made())
    with psycopg.connect(url) as db:
        tables = [
            name
            for (name,) in db.execute(
                "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'"
            )
        ]
        return url, [
            table for table in tables if db.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is None
        ]


@pytest.fixture
def environment(service: tuple[str, list[str]], tmp_path: Path) -> dict[str, str]:
    """Empty the database, and return an environment with it and an empty data folder."""
    url, tables = service
    with psycopg.connect(url) as db:
        db.execute("SET session_replication_role = replica")  # in any order, the audit trail too
        db.execute("; ".join(f"DELETE FROM {table}" for table in tables))
    return os.environ | {
        "OUTCROP_DATABASE_URL": url,
        "OUTCROP_DATA_DIR": str(tmp_path / "data"),
        "COLUMNS": "200",
    }


@pytest.fixture
def outcrop(environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outcrop:
    """Run the command in this process: a new one would spend most of the test's time on loading."""

    def run(*arguments: str, stdin: str | bytes = b"", **more: str) -> Ran:
        raw = stdin.encode() if isinstance(stdin, str) else stdin
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        with monkeypatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name, value in (environment | more).items():
                patch.setenv(name, value)
            patch.chdir(tmp_path)
            patch.setattr(sys, "argv", ["outcrop", *arguments])
            patch.setattr(os, "setpriority", lambda *_: None)  # it would hold for all tests that come after
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
            try:
                run_command()
                code = 0
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 0
        return Ran(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))  # type: ignore[attr-defined]

    return run
