"""Test that processes which read foreign data cannot write files or connect to hosts."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from outcrop.limits import SOURCE_LIMITS
from outcrop.net.guard import Egress
from outcrop.sandbox import (
    READ_ONLY,
    Owner,
    Sandbox,
    become,
    become_nobody,
    find_missing,
    find_owner,
    hand_over,
    restrict,
    start_restricted,
)
from outcrop.sources.fork_pool import run_in_processes
from outcrop.sources.git import command
from outcrop.sources.isolated import process_pool
from tests.support.git_host import ENV

pytestmark = pytest.mark.skipif(bool(find_missing()), reason="the kernel has no Landlock or no seccomp")
_TRY = """
import os, signal, socket, sys
for path in sys.argv[2:]:
    try:
        with open(path, "a") as file: file.write("x")
        print("wrote")
    except OSError as error: print(error.strerror)
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_PACKET):
    try: socket.socket(family, socket.SOCK_DGRAM).close(); print("socket")
    except OSError as error: print(error.strerror)
try: os.kill(int(sys.argv[1]), 0); print("signal")
except OSError as error: print(error.strerror)
"""
DENIED, SCOPED = "Permission denied", "Operation not permitted"


def attempt(sandbox: Sandbox, *paths: Path) -> list[str]:
    """Try to write to these paths, to create sockets and to signal this process; return what happens."""
    done = start_restricted(
        sandbox,
        lambda: subprocess.run(
            [sys.executable, "-c", _TRY, str(os.getpid()), *map(str, paths)],
            capture_output=True,
            text=True,
            check=True,
        ),
    )
    return done.stdout.splitlines()


def test_a_restricted_program_reads_everything_and_writes_only_where_it_may(tmp_path: Path) -> None:
    allowed, file = tmp_path / "allowed", tmp_path / "file"
    allowed.mkdir()
    file.write_text("kept")
    inside = allowed / "new"
    outside = [tmp_path / "new", file, allowed / ".." / "new"]
    found = attempt(Sandbox((allowed, tmp_path / "missing")), inside, *outside, Path("/dev/null"))
    assert found[:5] == ["wrote", DENIED, DENIED, DENIED, "wrote"]
    assert found[5:9] == [DENIED] * 4
    assert (file.read_text(), inside.read_text()) == ("kept", "x")


def test_a_program_with_network_has_sockets_and_still_cannot_write(tmp_path: Path) -> None:
    found = attempt(Sandbox(network=True), tmp_path / "new")
    assert found[:4] == [DENIED, DENIED, "socket", "socket"]  # not to Unix sockets, such as the database's


def read_in(sandbox: Sandbox, *paths: Path) -> list[str]:
    """Try to read these files; return what happens."""
    script = """
import sys
for path in sys.argv[1:]:
    try: open(path).close(); print("read")
    except OSError as error: print(error.strerror)
"""
    command = [sys.executable, "-c", script, *map(str, paths)]
    done = start_restricted(
        sandbox, lambda: subprocess.run(command, capture_output=True, text=True, check=True)
    )
    return done.stdout.splitlines()


def test_a_repository_job_cannot_read_the_data_folder(tmp_path: Path) -> None:
    data, work, ca_file = tmp_path / "data", tmp_path / "data" / "scans", tmp_path / "data" / "ca.pem"
    beside = tmp_path / "beside"
    for folder in (work, beside):
        folder.mkdir(parents=True)
    for file in (data / "secret.key", ca_file, work / "clone", beside / "file"):
        file.write_text("x")
    config = process_pool._ChildConfig(
        [], "", Egress.parse([], [], ca_file), work, SOURCE_LIMITS, work, None, hidden=data
    )
    readable = [ca_file, work / "clone", beside / "file", Path("/etc/passwd"), Path("/proc/self/status")]
    assert read_in(config.sandbox, *readable) == ["read"] * 5
    assert read_in(config.sandbox, data / "secret.key") == [DENIED]


def test_the_settings_are_erased_from_the_memory_of_a_process() -> None:
    script = """
import os
from outcrop.sandbox import forget_settings
forget_settings()
print(os.environ.get("OUTCROP_SECRET_KEY"), os.environ["KEPT"], open("/proc/self/environ").read())
"""
    environment = os.environ | {"OUTCROP_SECRET_KEY": "to-be-erased", "KEPT": "a value"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("None a value ")
    assert "KEPT=a value" in done.stdout
    assert "to-be-erased" not in done.stdout


def test_a_restricted_program_cannot_signal_others(tmp_path: Path) -> None:
    assert attempt(READ_ONLY)[-1] in {SCOPED, "signal"}  # before version 6, Landlock does not limit signals
    assert tmp_path.is_dir()


def test_the_caller_keeps_its_rights_and_gets_the_exception(tmp_path: Path) -> None:
    def fail() -> None:
        raise FileNotFoundError("no such program")

    with pytest.raises(FileNotFoundError, match="no such program"):
        start_restricted(READ_ONLY, fail)
    (tmp_path / "new").write_text("x")
    socket.socket().close()


def in_fork(work: Callable[[], int]) -> int:
    """Run `work` in a forked process and return its result."""
    if (pid := os.fork()) == 0:
        os._exit(work())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_the_processes_that_search_text_can_neither_write_nor_connect(tmp_path: Path) -> None:
    def work(batches: object, emit: Callable[[object], None]) -> None:
        for action in (lambda: (tmp_path / "new").write_text("x"), lambda: socket.socket().close()):
            try:
                action()
                emit("done")
            except OSError as error:
                emit(type(error).__name__)

    assert sorted(run_in_processes([1], work, 1)) == ["PermissionError"] * 2


def test_git_that_reads_a_repository_cannot_write_elsewhere(tmp_path: Path) -> None:
    """The alias starts a shell, which does what a git does that a damaged object has taken over."""
    for name in ("one", "two"):
        subprocess.run(["git", "init", "--quiet", "--bare", name], cwd=tmp_path, env=ENV, check=True)
    target = tmp_path / "two" / "taken"
    script = f"!echo x > {target}; echo x > own; cat {tmp_path / 'two' / 'HEAD'}"
    with command.start(tmp_path / "one", ["take"], config={"alias.take": script}) as process:
        output, _ = process.communicate()
    assert output.startswith(b"ref:")
    assert (target.exists(), (tmp_path / "one" / "own").exists()) == (False, True)


def test_restricting_several_times_only_takes_more(tmp_path: Path) -> None:
    def work() -> int:
        for _ in range(10):
            if restrict(Sandbox((tmp_path,))):
                return 1
        (tmp_path / "first").write_text("x")
        restrict(READ_ONLY)
        try:
            (tmp_path / "second").write_text("x")
        except PermissionError:
            return 0
        return 2

    assert in_fork(work) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_becomes_the_owner_of_the_data_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "link").symlink_to("/etc/passwd")
    assert find_owner(folder) is None  # it belongs to root
    hand_over(folder, Owner(1234, 1235))
    assert [(path.lstat().st_uid, path.lstat().st_gid) for path in (folder, *folder.rglob("*"))] == [
        (1234, 1235)
    ] * 3
    assert Path("/etc/passwd").stat().st_uid == 0

    def work() -> int:
        become(Owner(1234, 1235))
        try:
            os.setuid(0)
        except PermissionError:
            return 0 if (os.getuid(), os.getgid(), os.getgroups()) == (1234, 1235, []) else 2
        return 1

    assert in_fork(work) == 0

    def work_as_nobody() -> int:
        become_nobody()
        return int(os.geteuid() == 0)

    assert in_fork(work_as_nobody) == 0


def test_finding_out_what_is_missing_restricts_nobody(tmp_path: Path) -> None:
    find_missing.cache_clear()
    assert find_missing() == ()
    (tmp_path / "new").write_text("x")
    threads = [threading.Thread(target=lambda: (tmp_path / "other").write_text("x"))]
    for thread in threads:
        thread.start()
        thread.join()
    assert (tmp_path / "other").exists()
