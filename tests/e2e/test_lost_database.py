"""A command whose database goes away prints one line and exits with 2."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from outcrop.store.embedded.server import embedded_postgres
from tests.support.factories import make_line
from tests.support.rulesets import cached_in

COMMAND = str(Path(sys.executable).with_name("outcrop"))
SESSION = "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'outcrop%'"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the folder of a database with an account and 4,000 findings, which no other process keeps running."""
    folder = tmp_path_factory.mktemp("lost")
    cached_in(folder / "cache")
    done = start(folder, "account", "create", "acme", "--plan", "growth", "--email", "sec@acme.example")
    assert done.communicate(timeout=120) is not None
    assert done.returncode == 0
    lines = "\n".join(json.dumps(make_line()) for _ in range(4_000))
    done = start(folder, "import", "--account", "acme", "-")
    assert done.communicate(lines, 120) is not None
    assert done.returncode == 0
    yield folder
    with embedded_postgres(folder / "data"):
        pass


def start(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    """Start a command on the folder's embedded database."""
    environment = os.environ | {
        "OUTCROP_DATA_DIR": str(folder / "data"),
        "OUTCROP_LOG_FORMAT": "json",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    return subprocess.Popen(
        [COMMAND, *arguments],
        env=environment,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lose_database(folder: Path, process: "subprocess.Popen[str]", pause: float = 0.0) -> None:
    """Kill the database when the process has had a session for `pause` seconds; the process is frozen meanwhile."""
    pid_file = folder / "data/postgres/data/postmaster.pid"
    with embedded_postgres(folder / "data") as url, psycopg.connect(url, autocommit=True) as db:
        deadline = time.monotonic() + 120
        while db.execute(SESSION).fetchone() is None:
            assert process.poll() is None
            assert time.monotonic() < deadline
        time.sleep(pause)
        os.kill(process.pid, signal.SIGSTOP)
        postmaster = int(pid_file.read_text().split()[0])
        os.kill(postmaster, signal.SIGKILL)
        with suppress(psycopg.Error):
            while time.monotonic() < deadline:  # the server processes end a moment after the postmaster
                db.execute("SELECT 1")
        os.kill(process.pid, signal.SIGCONT)


def fails_with_one_line(process: "subprocess.Popen[str]") -> str:
    """Assert that the command ends with 2 and one line, and return the line."""
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2, errors
    (line,) = errors.splitlines()
    assert line.startswith("outcrop: ")
    return line


@pytest.mark.parametrize(
    "arguments",
    [
        ("export", "--account", "acme", "--format", "jsonl"),
        ("audit", "--account", "acme"),
        ("backup", "FILE"),
        ("scan", "--account", "acme", "."),
        ("doctor",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_whose_database_is_killed_prints_one_line(
    folder: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    arguments = tuple(str(tmp_path / "backup") if part == "FILE" else part for part in arguments)
    process = start(folder, *arguments)
    lose_database(folder, process)
    assert "database" in fails_with_one_line(process) or arguments[0] == "backup"
    assert not (tmp_path / "backup").exists()


def test_an_import_whose_database_is_killed_while_it_reads_prints_one_line(folder: Path) -> None:
    process = start(folder, "import", "--account", "acme", "-")
    lose_database(folder, process, pause=1.0)
    assert process.stdin is not None
    process.stdin.write(json.dumps(make_line()))
    assert "database" in fails_with_one_line(process)


def test_an_export_whose_database_is_killed_while_its_reader_waits_prints_one_line(folder: Path) -> None:
    process = start(folder, "export", "--account", "acme", "--format", "jsonl")
    lose_database(folder, process, pause=1.0)  # the pipe is full, and nobody reads it
    assert "database" in fails_with_one_line(process)
