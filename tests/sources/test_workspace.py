"""Work folders, and scans that are killed or interrupted: no process and no folder is left."""

import fcntl
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from outcrop.domain.errors import OperatorError
from outcrop.sources.workspace import cache_folder, remove_abandoned_folders, work_folder
from tests.sources.conftest import Outcrop, Repo, Scan, token, without_override
from tests.support.calls import before_call
from tests.support.command import run
from tests.support.rulesets import cached_in

FIRST = token("first")


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """Return a repository whose scan takes some seconds: large blobs in which every line has a trigger."""
    repo = Repo(tmp_path_factory.mktemp("slow") / "repo")
    repo.git("config", "core.compression", "1")
    for number in range(3):
        # No line has a valid checksum.
        lines = b"".join(b"ghp_%036d\n" % (number << 20 | line) for line in range(200_000))
        repo.commit({f"f{number}": lines, "key": f"{number}\n{FIRST}\n"})
    return repo


def eventually(condition: Callable[[], bool], seconds: float = 60) -> bool:
    """Whether the condition becomes true within this time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def processes_with(mark: str) -> list[int]:
    """Return the processes whose arguments or environment contain `mark`, the name of the test's folder."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                text = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            except OSError:
                continue
            if mark.encode() in text:
                found.append(int(process.name))
    return found


@contextmanager
def running(
    command: tuple[list[str], dict[str, str]], home: Path, target: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a scan and wait until it is scanning. Its cache folder in `home` has the compiled rules."""
    program, environment = command
    cache = home / "outcrop"
    cache.mkdir(parents=True)
    for file in (Path(environment["XDG_CACHE_HOME"]) / "outcrop").glob("rules-*"):
        (cache / file.name).write_bytes(file.read_bytes())
    with subprocess.Popen(
        [*program, "scan", "--json", "--no-cache", "--jobs", "2", str(target)],
        env=environment | {"XDG_CACHE_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert eventually(lambda: bool(work_folders(home)) and len(processes_with(str(home))) >= 2), (
                "the scan and its processes are not running"
            )
            assert process.poll() is None, "the scan ended too early"
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def work_folders(home: Path) -> list[Path]:
    """Return the work folders in the cache in `home`."""
    return list((home / "outcrop" / "work").glob("scan-*"))


def test_a_killed_scan_leaves_no_process_and_the_next_scan_removes_its_folder(
    slow: Repo, command: tuple[list[str], dict[str, str]], outcrop: Outcrop, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with running(command, home, slow.path) as process:
        assert len(work_folders(home)) == 1
        process.kill()
        process.wait()
    assert eventually(lambda: not processes_with(str(home))), "no process is left"
    assert len(work_folders(home)) == 1
    small = Repo(tmp_path / "small")
    assert outcrop("scan", small.path, XDG_CACHE_HOME=str(home)).code == 0
    assert work_folders(home) == []


def test_an_interrupted_scan_ends_with_code_130_and_leaves_nothing(
    slow: Repo, command: tuple[list[str], dict[str, str]], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with running(command, home, slow.path) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")
    assert eventually(lambda: not processes_with(str(home)))
    assert work_folders(home) == []


def test_a_folder_in_use_is_not_removed(tmp_path: Path) -> None:
    with work_folder(tmp_path) as first:
        with work_folder(tmp_path) as second:
            assert first.is_dir()
            assert second.is_dir()
        assert not second.exists()
    assert not first.exists()


def test_a_folder_without_a_lock_is_removed_when_it_is_old(tmp_path: Path) -> None:
    young, old = tmp_path / "scan-young", tmp_path / "scan-old"
    for folder in (young, old):
        folder.mkdir()
    os.utime(old, (1, 1))
    remove_abandoned_folders(tmp_path)
    assert young.exists()
    assert not old.exists()


def test_removing_folders_does_not_follow_links(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / ".lock").touch()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "scan-link").symlink_to(precious)
    remove_abandoned_folders(tmp_path / "work")
    assert (precious / ".lock").exists()


@pytest.mark.usefixtures("only_github_rules")  # without a cache the rules are compiled
def test_a_scan_works_if_the_cache_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    repo = Repo(tmp_path / "repo")
    repo.commit({"a": FIRST})
    ran = run("scan", "--json", repo.path, folder=tmp_path, cache=tmp_path / "home")
    assert (ran.code, ran.err) == (1, "")
    assert len(ran.json) == 1


def test_a_scan_works_if_the_cache_cannot_be_written(tmp_path: Path, outcrop: Outcrop) -> None:
    work = cached_in(tmp_path / "home") / "outcrop" / "work"
    work.mkdir(parents=True)
    work.chmod(0o500)
    repo = Repo(tmp_path / "repo")
    repo.commit({"a": FIRST})
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    ran = outcrop(
        "scan",
        repo.path,
        before=without_override,
        XDG_CACHE_HOME=str(tmp_path / "home"),
        TMPDIR=str(temporary),
    )
    assert (ran.code, ran.err) == (1, "")
    assert [list(folder.iterdir()) for folder in temporary.iterdir()] == [[]]


def test_a_user_without_a_home_has_a_temporary_work_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with before_call(pwd.getpwuid, unknown):  # only root can become a user that the system does not know
        cache = cache_folder()
    with work_folder(cache, tmp_path) as folder:
        assert folder.parent == tmp_path / f"outcrop-{os.getuid()}"


def test_a_folder_that_other_users_can_write_to_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / f"outcrop-{os.getuid()}"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(OperatorError, match="XDG_CACHE_HOME"), work_folder(Path("/dev/null"), tmp_path):
        pass
    shared.rename(tmp_path / "private")
    (tmp_path / "private").chmod(0o700)
    shared.symlink_to("private")
    with pytest.raises(OperatorError, match="XDG_CACHE_HOME"), work_folder(Path("/dev/null"), tmp_path):
        pass


def test_a_scan_cache_that_cannot_be_replaced_leaves_no_temporary_file(
    repo: Repo, scan: Scan, tmp_path: Path
) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    scan(repo.path, cache=tmp_path / "cache")
    (file,) = (tmp_path / "cache" / "seen").iterdir()
    file.unlink()
    file.mkdir()
    assert scan(repo.path, cache=tmp_path / "cache").secrets == [FIRST]
    assert list((tmp_path / "cache" / "seen").iterdir()) == [file]


def test_a_folder_that_another_process_removes_before_it_is_locked_is_created_again(tmp_path: Path) -> None:
    removed: list[Path] = []

    def remove_first(call: int) -> None:
        if call == 1:
            removed.extend((tmp_path / "work").iterdir())
            remove_abandoned_folders(tmp_path / "work")

    # The other process comes between two statements of `work_folder`.
    with before_call(fcntl.flock, remove_first), work_folder(tmp_path) as folder:
        assert len(removed) == 1
        assert folder not in removed
        (folder / "file").write_text("x")
    assert list((tmp_path / "work").iterdir()) == []
