"""The command as users call it, on a database of its own."""

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

from outcrop.cli import main


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


@pytest.fixture
def environment(cluster: str, tmp_path: Path, worker_id: str) -> dict[str, str]:
    """An empty database of its own on the shared server, and an empty data folder."""
    name = f"cli_{worker_id}"
    with psycopg.connect(cluster, autocommit=True) as db:
        db.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        db.execute(f"CREATE DATABASE {name}")
    url = psycopg.conninfo.make_conninfo(cluster, dbname=name)
    return os.environ | {"OUTCROP_DATABASE_URL": url, "OUTCROP_DATA_DIR": str(tmp_path / "data"), "COLUMNS": "200"}


@pytest.fixture
def outcrop(environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outcrop:
    """Run the command in this process: a new one would spend most of the test's time on loading."""

    def run(*arguments: str, stdin: str = "", **more: str) -> Ran:
        out, err = io.StringIO(), io.StringIO()
        with monkeypatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name, value in (environment | more).items():
                patch.setenv(name, value)
            patch.chdir(tmp_path)
            patch.setattr(sys, "argv", ["outcrop", *arguments])
            patch.setattr(os, "setpriority", lambda *_: None)  # it would hold for all tests that come after
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            try:
                main()
                code = 0
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 0
        return Ran(code, out.getvalue(), err.getvalue())

    return run
