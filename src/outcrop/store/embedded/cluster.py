"""Runs a private PostgreSQL in the data folder, so that Outcrop needs one command on a fresh machine and the same SQL everywhere."""

import fcntl
import hashlib
import logging
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from outcrop.domain.errors import OperatorError
from outcrop.store.embedded.binaries import (
    USER_NAMESPACE,
    PostgresPrograms,
    find_programs,
    switch_to_unprivileged_account,
)
from outcrop.store.embedded.settings import MB, server_settings

DATABASE = USER = "outcrop"
SOCKET_NAME = ".s.PGSQL.5432"
MAX_SOCKET_PATH = 107  # what sockaddr_un holds
START_SECONDS = 60
LOG_LIMIT = 1_000_000
ROOM = 32  # MB

# What a killed server leaves behind for a moment: children that still hold its memory, or its lock files.
PASSING_COMPLAINTS = ("is still in use", "already exists")

_log = logging.getLogger(__name__)


@contextmanager
def embedded_postgres(
    data_dir: Path, bin_dir: Path | None = None, *, _fallback_base: Path = Path("/var/lib/outcrop")
) -> Iterator[str]:
    """Yield the conninfo of the database `outcrop`; the server is started if needed, and the last one out stops it."""
    data_dir = data_dir.resolve()
    root = data_dir / "postgres"
    with ExitStack() as stack:
        with _told_to_the_operator(data_dir):
            _make_private(root)
            with _locked(root / "start.lock", fcntl.LOCK_EX):
                users = stack.enter_context(
                    _locked(root / "users.lock", fcntl.LOCK_SH)
                )  # waits while someone stops the server
                cluster = _cluster(root, find_programs(bin_dir), _fallback_base)
                _make_socket_folder(
                    cluster
                )  # before any connection: someone else's folder could hold someone else's server
                stack.callback(_stop_if_last, cluster, users)
                _start(cluster)
        yield cluster.conninfo(DATABASE)


@dataclass(frozen=True)
class _Cluster:
    """Where things are: locks and log in `root`; data, socket and settings in `home`, which is `root` unless root cannot use it."""

    root: Path
    home: Path
    programs: PostgresPrograms

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def config(self) -> Path:
        return self.home / "outcrop.conf"

    @property
    def owner(self) -> int:
        return self.programs.account[0] if self.programs.account else os.geteuid()

    @property
    def socket_folder(self) -> Path:
        folder = self.home / "run"
        short = len(os.fsencode(folder / SOCKET_NAME)) < MAX_SOCKET_PATH
        # Other characters mean something in PostgreSQL's list of folders or to libpq, or depend on the locale.
        if short and re.fullmatch(r"[\w./+@:~-]+", str(folder), re.ASCII):
            return folder
        # Not $TMPDIR: every process that shares the server must come to the same folder.
        return Path("/tmp", f"outcrop-{self.owner}-{_digest(self.home)}")  # noqa: S108 - made 0700, its owner is checked

    def conninfo(self, database: str) -> str:
        """Whole enough that no PG* variable of our environment gets a word in."""
        return make_conninfo(
            host=str(self.socket_folder),
            port=5432,
            user=USER,
            dbname=database,
            hostaddr="",
            options="",
            client_encoding="UTF8",
        )

    def ping(self) -> int:
        return pq.PGconn.ping(self.conninfo("postgres").encode())

    def pg_ctl(self, *args: str, output: int = subprocess.PIPE) -> int:
        # By environment, not by -D: pg_ctl puts that through a shell, where a `$` in the path would count.
        return self.programs.run("pg_ctl", *args, env={"PGDATA": str(self.data)}, output=output)[0]

    def is_server(self, pid: int) -> bool:
        """Whether the process is a server started here for this cluster, and not one that got its number or an operator's own."""
        if not Path("/proc/self/cmdline").exists():
            return True
        with suppress(OSError):
            return os.fsencode(f"config_file={self.config}") in Path(
                f"/proc/{pid}/cmdline"
            ).read_bytes().split(b"\0")
        return False


def _cluster(root: Path, programs: PostgresPrograms, fallback_base: Path) -> _Cluster:
    if os.geteuid() != 0:
        return _Cluster(root, root, programs)
    link = root / "data"  # points to the cluster where it had to be made elsewhere
    elsewhere = link.is_symlink() and link.readlink().is_relative_to(fallback_base)
    if not elsewhere:
        mapped = replace(programs, prefix=USER_NAMESPACE)
        if mapped.can_run(root):
            return _Cluster(root, root, mapped)
        if link.exists():
            owner = link.stat().st_uid
            cure = (
                "allow user namespaces (unshare)"
                if owner == 0
                else f"run outcrop as the user with id {owner}"
            )
            raise OperatorError(
                f"PostgreSQL refuses to run as root and cannot be run otherwise in {root}: {cure}, or set OUTCROP_DATABASE_URL."
            )
    elif not link.exists():
        raise OperatorError(
            f"The database of this data folder was kept in {link.readlink()}, which is gone: restore it, or remove {link} to begin anew."
        )
    home = link.readlink().parent if elsewhere else fallback_base / _digest(root)
    return _Cluster(root, home, switch_to_unprivileged_account(programs, home))


def _start(cluster: _Cluster) -> None:
    _trim_log(cluster.log)
    if _ready(cluster) is None:
        return
    if (cluster.data / "PG_VERSION").exists():
        _check_version(cluster)
    else:
        _initdb(cluster)
    link = cluster.root / "data"
    if cluster.home != cluster.root and not link.is_symlink():
        link.symlink_to(cluster.data)
    _write_settings(cluster)
    _launch(cluster)


def _launch(cluster: _Cluster) -> None:
    """Start the server, and again if need be: what a killed one left takes a moment to go."""
    options = f"-c config_file={shlex.quote(str(cluster.config))}"
    deadline = time.monotonic() + START_SECONDS
    failures, complaint = 0, ""
    with _opened(cluster.log, os.O_APPEND) as log:
        while (refusal := _ready(cluster)) is not None:
            answer = cluster.ping()
            if answer == pq.Ping.REJECT:
                deadline = (
                    time.monotonic() + START_SECONDS
                )  # recovering, or shutting down: takes as long as it takes
            elif answer == pq.Ping.NO_ATTEMPT or failures == 3 or time.monotonic() > deadline:
                reason = complaint or describe_full_disk(cluster.home) or refusal
                raise OperatorError(
                    f"The database in {cluster.data} does not start: {reason} (log: {cluster.log})"
                )
            elif answer == pq.Ping.NO_RESPONSE:
                _remove_stale_locks(cluster)
                begin = os.fstat(log).st_size
                code = cluster.pg_ctl(
                    "start", "--silent", "--wait", "--timeout=10", "--options", options, output=log
                )
                complaints = _complaints(os.pread(log, LOG_LIMIT, begin))
                complaint = complaints[-1] if complaints else complaint
                failures += code != 0 and not any(
                    passing in line for line in complaints for passing in PASSING_COMPLAINTS
                )
            time.sleep(0.05)


def describe_full_disk(folder: Path) -> str:
    """Say so where the disk is about full: the server cannot always say it itself."""
    free = shutil.disk_usage(folder).free // MB
    return f"only {free} MB are free on its disk" if free < ROOM else ""


def _ready(cluster: _Cluster) -> str | None:
    """Connect and see that the database is there; None when all is well, else what libpq says."""
    try:
        with psycopg.connect(cluster.conninfo("postgres"), connect_timeout=5, autocommit=True) as db:
            if db.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone() is None:
                db.execute(f"CREATE DATABASE {DATABASE}")
    except psycopg.Error as error:
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return None


def _stop_if_last(cluster: _Cluster, users: int) -> None:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    pid = None
    with suppress(OSError):
        pid = _pid_in(cluster.data / "postmaster.pid")
    if pid is not None and cluster.is_server(pid):
        # A fast stop while the server recovers from a crashed backend never ends (seen with 18.6); an immediate one is as safe.
        for mode in ("fast", "immediate") if cluster.ping() == pq.Ping.OK else ("immediate",):
            if (
                cluster.pg_ctl("stop", "--silent", f"--mode={mode}", "--wait", f"--timeout={START_SECONDS}")
                == 0
            ):
                break
        else:
            _log.warning("postgres_not_stopped", extra={"data": str(cluster.data)})
        for _ in range(100):  # pg_ctl is content when the pid file is gone, a moment before the process is
            if not cluster.is_server(pid):
                break
            time.sleep(0.01)
    if cluster.socket_folder.parent != cluster.home:
        with suppress(OSError):
            cluster.socket_folder.rmdir()


def _initdb(cluster: _Cluster) -> None:
    """Make the cluster beside its place and move it there when it is whole."""
    for leftover in cluster.home.glob("initdb-*"):
        shutil.rmtree(leftover, ignore_errors=True)  # a killed process's initdb may still write there
    fresh = Path(tempfile.mkdtemp(prefix="initdb-", dir=cluster.home))
    try:
        if cluster.programs.account:
            os.chown(fresh, *cluster.programs.account)
        options = (
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--auth=trust",
            f"--username={USER}",
            "--no-instructions",
        )
        code, text = cluster.programs.run("initdb", *options, env={"PGDATA": str(fresh)})
        if code != 0:
            with suppress(OSError), _opened(cluster.log, os.O_APPEND) as log:
                os.write(log, text.encode())
            reason = (_complaints(text.encode()) or ["initdb failed"])[0]
            raise OperatorError(
                f"The database in {cluster.data} cannot be made: {reason} (log: {cluster.log})"
            )
        fresh.rename(cluster.data)
        with _opened(cluster.home, os.O_DIRECTORY) as folder:
            os.fsync(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _check_version(cluster: _Cluster) -> None:
    made_by = (cluster.data / "PG_VERSION").read_text().strip()
    if made_by != str(cluster.programs.major):
        raise OperatorError(
            f"The database in {cluster.data} was made by PostgreSQL {made_by}, the programs in {cluster.programs.bin_dir} are PostgreSQL"
            f" {cluster.programs.major}: set OUTCROP_POSTGRES_BIN to the folder of a PostgreSQL {made_by}, and to move on"
            " make a backup with it (outcrop backup) and restore that into an empty data folder without it."
        )


def _write_settings(cluster: _Cluster) -> None:
    """Ours come after the cluster's own file, so they hold at every start; the rest of that file stays the operator's."""
    fresh = cluster.config.with_suffix(".new")
    lines = [
        "# Rewritten at every start; own settings belong in data/postgresql.conf.",
        "include 'data/postgresql.conf'",
    ]
    lines += [f"{name} = '{value}'" for name, value in server_settings(cluster.socket_folder).items()]
    with _opened(fresh, os.O_TRUNC) as fd:
        os.write(fd, "\n".join([*lines, ""]).encode())
        if cluster.programs.account:
            os.fchown(fd, -1, cluster.programs.account[1])
            os.fchmod(fd, 0o640)
    fresh.replace(cluster.config)


def _make_socket_folder(cluster: _Cluster) -> None:
    folder = cluster.socket_folder
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if cluster.programs.account and stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
        os.chown(folder, *cluster.programs.account)
        found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != cluster.owner or found.st_mode & 0o077:
        raise OperatorError(
            f"The folder for the database's socket, {folder}, is not a private folder of the user with id {cluster.owner}: remove it."
        )


def _remove_stale_locks(cluster: _Cluster) -> None:
    """PostgreSQL clears a dead server's lock files itself, but not an unreadable one, nor one whose number another process now has."""
    for lock in (cluster.data / "postmaster.pid", cluster.socket_folder / f"{SOCKET_NAME}.lock"):
        with suppress(OSError):
            pid = _pid_in(lock)
            if pid is None or _is_foreign(pid, cluster.data):
                lock.unlink()


def _is_foreign(pid: int, data: Path) -> bool:
    """Whether a process of that number has nothing to do with the data folder, in which all of PostgreSQL's processes work."""
    process = Path("/proc", str(pid))
    try:
        return (process / "cwd").readlink() != data.resolve()
    except PermissionError:
        return (process / "comm").read_text() != "postgres\n"
    except FileNotFoundError:
        return process.exists()  # a zombie; else it is dead


def _pid_in(lock: Path) -> int | None:
    first = lock.read_text().partition("\n")[0].strip().lstrip("-")  # negative in single-user mode
    return int(first) if first.isdecimal() else None


def _complaints(text: bytes) -> list[str]:
    """What the programs say against starting, without times and without phrases that explain nothing."""
    hollow = ("the database system is", "pg_ctl: ")
    lines = [
        line
        for line in text.decode(errors="replace").splitlines()
        if not any(phrase in line for phrase in hollow)
    ]
    return [
        line.partition("] ")[2] or line for line in lines if re.search("FATAL:|PANIC:|error:|could not", line)
    ]


def _trim_log(log: Path) -> None:
    """Keep at most one old log's end; emptied in place, since the server appends to the open file."""
    with _opened(log, 0) as fd:
        size = os.fstat(fd).st_size
        if size > LOG_LIMIT:
            with suppress(OSError), _opened(log.with_name("log.1"), os.O_TRUNC) as old:
                os.write(old, os.pread(fd, LOG_LIMIT, size - LOG_LIMIT))
            os.ftruncate(fd, 0)


def _make_private(folder: Path) -> None:
    """Missing parents too are made for us alone; what is there already keeps its mode, except our own last folder."""
    for path in (*reversed(folder.parents), folder):
        if not path.exists():
            path.mkdir(mode=0o700, exist_ok=True)
    if stat.S_IMODE(folder.stat().st_mode) != 0o700:
        folder.chmod(0o700)


@contextmanager
def _opened(path: Path, how: int) -> Iterator[int]:
    access = os.O_RDONLY if how == os.O_DIRECTORY else os.O_RDWR | os.O_CREAT
    fd = os.open(path, how | access | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _locked(path: Path, how: int) -> Iterator[int]:
    with _opened(path, 0) as fd:
        fcntl.flock(fd, how)
        try:
            yield fd
        finally:
            fcntl.flock(
                fd, fcntl.LOCK_UN
            )  # also for a forked child's copy, which closing alone would leave locked


@contextmanager
def _told_to_the_operator(data_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OperatorError(
            f"The data folder {data_dir} cannot be used: {error.strerror}: {error.filename or data_dir}"
        ) from error


def _digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
