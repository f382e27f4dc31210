"""Test `outcrop backup` and `outcrop restore` as an operator calls them.

The tests also check what a wrong call, a signal or a full disk leaves behind.
"""

import json
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.cli.conftest import Outcrop
from tests.support.backups import list_tables
from tests.support.databases import new_database
from tests.support.factories import make_line
from tests.support.workers import until

FIELDS = ["file", "bytes", "made_at", "schema", "accounts", "findings", "rows"]


@pytest.fixture
def other(cluster: str, worker_id: str) -> str:
    """Create an empty database."""
    return new_database(cluster, f"other_{worker_id}")


@pytest.fixture
def file(outcrop: Outcrop, tmp_path: Path) -> Path:
    """Create a backup of an account with findings; the secret key is a file in the data folder."""
    outcrop("account", "create", "acme", "--plan", "growth", "--email", "a@acme.example")
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps(make_line(file_path=f"{n}.py")) + "\n" for n in range(3))
    )
    outcrop("import", "--account", "acme", "in.jsonl")
    (tmp_path / "in.jsonl").unlink()
    assert outcrop("backup", "it.backup").code == 0
    return tmp_path / "it.backup"


def test_a_backup_shows_what_it_holds_and_what_it_does_not(
    outcrop: Outcrop, environment: dict[str, str], file: Path, tmp_path: Path
) -> None:
    made = outcrop("backup", "again.backup", "--json").json
    assert list(made) == FIELDS
    assert made | {"made_at": "", "schema": 0, "rows": 0} == {
        "file": str(tmp_path / "again.backup"),
        "bytes": (tmp_path / "again.backup").stat().st_size,
        "made_at": "",
        "schema": 0,
        "accounts": 1,
        "findings": 3,
        "rows": 0,
    }
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    key = Path(environment["OUTCROP_DATA_DIR"]) / "secret.key"
    last = outcrop("backup", "third.backup").out.splitlines()[-1]
    assert (
        last == f"The secret key ({key}) is not in the backup, and a restore needs it. Keep a copy elsewhere."
    )
    assert key.read_bytes().strip() not in file.read_bytes()


def test_what_is_restored_is_served_by_every_command(outcrop: Outcrop, file: Path, other: str) -> None:
    exported = outcrop("export", "--account", "acme", "--format", "jsonl").out
    done = outcrop("restore", "it.backup", "--json", OUTCROP_DATABASE_URL=other).json
    assert list(done) == [
        "file",
        "made_at",
        "schema",
        "migrated",
        *FIELDS[4:],
        "deliveries_unknown",
        "runs_ended",
    ]
    assert (done["accounts"], done["findings"], done["migrated"], done["deliveries_unknown"]) == (1, 3, [], 0)
    assert all(check["ok"] for check in outcrop("doctor", "--json", OUTCROP_DATABASE_URL=other).json)
    assert (
        outcrop("export", "--account", "acme", "--format", "jsonl", OUTCROP_DATABASE_URL=other).out
        == exported
    )
    (line,) = [
        line
        for line in outcrop("audit", "--account", "acme", "--json", OUTCROP_DATABASE_URL=other).json
        if line["action"] == "database.restore"
    ]
    assert (line["actor"], line["outcome"], line["detail"]["made_at"]) == ("operator", "ok", done["made_at"])
    second = outcrop("restore", "it.backup", OUTCROP_DATABASE_URL=other)
    assert (second.code, second.out) == (2, "")
    assert second.err.startswith("outcrop: the database is not empty: restore into a new one")


def test_wrong_calls_are_one_line_each_and_leave_nothing(
    outcrop: Outcrop, file: Path, other: str, tmp_path: Path
) -> None:
    (tmp_path / "cut.backup").write_bytes(file.read_bytes()[:-1])
    (tmp_path / "text").write_text("no backup\n")
    os.mkfifo(tmp_path / "pipe")
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    before = sorted(tmp_path.iterdir())
    elsewhere = {"OUTCROP_DATABASE_URL": other}
    for arguments, more, said in (
        (("backup",), {}, "Missing argument"),
        (("backup", "it.backup"), {}, "exists already"),
        (("backup", "no/it.backup"), {}, "cannot write"),
        (("backup", "."), {}, "exists already"),
        (("backup", "new"), elsewhere, "nothing to back up"),
        (
            ("backup", "new"),
            {"OUTCROP_SECRET_KEY": "some other key of enough length"},
            "does not fit this database",
        ),
        (
            ("backup", "new"),
            {"OUTCROP_DATABASE_URL": "postgresql://u:pass-word@127.0.0.1:1/x"},
            "cannot reach the database",
        ),
        (("restore", "missing"), elsewhere, "cannot read missing: No such file"),
        (("restore", "."), elsewhere, "cannot read .: Is a directory"),
        (("restore", "pipe"), elsewhere, "it is read twice"),
        (("restore", "text"), elsewhere, "text is not a backup of Outcrop"),
        (("restore", "cut.backup"), elsewhere, "cut.backup is incomplete or was altered"),
        (
            ("restore", "it.backup"),
            elsewhere | {"OUTCROP_SECRET_KEY": "some other key of enough length"},
            "does not fit this backup",
        ),
        (
            ("restore", "it.backup"),
            elsewhere | {"OUTCROP_DATA_DIR": str(tmp_path / "new")},
            "the secret key of this backup is needed",
        ),
        (
            ("restore", "it.backup"),
            {"OUTCROP_DATABASE_URL": "postgresql://u:pass-word@127.0.0.1:1/x"},
            "cannot reach the database",
        ),
    ):
        ran = outcrop(*arguments, **more)
        assert (ran.code, ran.out) == (2, ""), arguments
        assert said in ran.err, arguments
        assert "pass-word" not in ran.err
        if arguments != ("backup",):
            assert len(ran.err.splitlines()) == 1
    os.close(writer)
    assert sorted(tmp_path.iterdir()) == before
    assert list_tables(other) == set()


# --- in the middle

AT_A_POINT = """
import itertools, os, signal, sys
from outcrop.cli import main
from outcrop.services import backup as service
from outcrop.store.backup import archive, tables
where, number, how = sys.argv[1:4]
owner = {"end_table": archive.ArchiveWriter, "copy_table_in": tables, "_end_runs": service}[where]
real, calls = getattr(owner, where), itertools.count(1)
def struck(*given, **more):
    if next(calls) == int(number):
        os.kill(os.getpid(), getattr(signal, how))
    return real(*given, **more)
setattr(owner, where, struck)
sys.argv[1:4] = []
main()
"""


def struck(
    environment: dict[str, str], folder: Path, *arguments: str, limit: Callable[[], None] | None = None
) -> tuple[int, str]:
    """Run a command that gets a signal at the n-th call of a function; return its exit code and stderr."""
    command = [sys.executable, "-c", AT_A_POINT, *arguments]
    ran = subprocess.run(
        command,
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
        timeout=60,
    )
    assert ran.stdout == ""
    return ran.returncode, ran.stderr


def test_a_backup_that_is_broken_off_leaves_no_file(
    environment: dict[str, str], file: Path, tmp_path: Path
) -> None:
    before = sorted(tmp_path.iterdir())
    for how, code in (("SIGKILL", -signal.SIGKILL), ("SIGINT", 130), ("SIGTERM", 143)):
        assert struck(environment, tmp_path, "end_table", "6", how, "backup", "new.backup")[0] == code
        assert sorted(tmp_path.iterdir()) == before


def test_a_restore_that_is_broken_off_leaves_an_empty_database(
    outcrop: Outcrop, environment: dict[str, str], file: Path, other: str
) -> None:
    theirs = environment | {"OUTCROP_DATABASE_URL": other}
    here = (
        "SELECT count(*) = 0 FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    for where, number, how, code in (
        ("copy_table_in", "6", "SIGKILL", -signal.SIGKILL),
        ("_end_runs", "1", "SIGKILL", -signal.SIGKILL),
        ("copy_table_in", "6", "SIGINT", 130),
    ):
        assert struck(theirs, file.parent, where, number, how, "restore", "it.backup")[0] == code
        with psycopg.connect(other, autocommit=True) as db:
            until(
                lambda db=db: (db.execute(here).fetchone() or (False,))[0],
                "the dead command's connection to be gone",
            )
        assert list_tables(other) == set()
    reported = outcrop("restore", "it.backup", OUTCROP_DATABASE_URL=other).out.splitlines()[-1]
    assert reported.startswith("Keys, members and passwords are as of 20")


def test_a_disk_that_is_full_is_one_line_and_leaves_no_file(
    environment: dict[str, str], file: Path, tmp_path: Path
) -> None:
    """As far as a limit of the size of files is like it."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    before = sorted(tmp_path.iterdir())
    code, said = struck(
        environment, tmp_path, "end_table", "0", "SIGKILL", "backup", "new.backup", limit=limit
    )
    assert (code, said) == (2, f"outcrop: cannot write {tmp_path / 'new.backup'}: File too large\n")
    assert sorted(tmp_path.iterdir()) == before
