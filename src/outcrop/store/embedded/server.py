"""Start a private PostgreSQL server in the data folder for all processes that need it, and stop it.

So Outcrop needs one command on a new machine, and has the same SQL everywhere. Two files in the data folder
coordinate all processes: `start.lock` is held during a start, and every user of the server holds a shared
lock on `users.lock`. A process that can get it exclusively is the last user and stops the server.

A server process or a worker also watches the server, and starts it again if it dies. Its shared lock keeps
all others from stopping the server meanwhile; it leaves a start to the process that holds `start.lock`.
"""

import fcntl
import os
import shlex
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
from psycopg import pq

from outcrop import metrics
from outcrop.domain.errors import OperatorError
from outcrop.lazy_logger import get_logger
from outcrop.store.embedded.binaries import find_programs
from outcrop.store.embedded.cluster import (
    DATABASE,
    Cluster,
    choose_cluster,
    find_errors,
    make_socket_folder,
    prepare_cluster,
    read_pid,
    remove_stale_lock_files,
)
from outcrop.store.embedded.files import (
    MAX_LOG_BYTES,
    lock_file,
    make_private_folder,
    open_fd,
    trim_log,
    try_lock_file,
)
from outcrop.store.embedded.recovery import RecoveryWatch
from outcrop.store.embedded.settings import MB
from outcrop.store.embedded.watch import keep_running

START_SECONDS = 60
MAX_FAILED_STARTS = 3
MIN_FREE_MB = 32

# Errors that a killed server causes for a moment: its children still hold the shared memory, or its lock
# files still exist.
TRANSIENT_ERRORS = ("is still in use", "already exists")

log = get_logger()


@contextmanager
def embedded_postgres(
    data_dir: Path,
    bin_dir: Path | None = None,
    *,
    watch: bool = False,
    start_seconds: float = START_SECONDS,
    _fallback_base: Path = Path("/var/lib/outcrop"),
) -> Iterator[str]:
    """Yield the connection string of the database `outcrop`; start the server if needed.

    `bin_dir` is the folder of PostgreSQL's programs; None to search for it. With `watch`, a server that dies
    during the block is started again; its connection string stays the same. A server that does not answer
    within `start_seconds` is an OperatorError. The last process that leaves its block stops the server.
    """
    data_dir = data_dir.resolve()
    root = data_dir / "postgres"
    with ExitStack() as stack:
        with _convert_os_errors(data_dir):
            make_private_folder(root)
            with lock_file(root / "start.lock", fcntl.LOCK_EX):
                # Waits while another process stops the server.
                users_lock = stack.enter_context(lock_file(root / "users.lock", fcntl.LOCK_SH))
                cluster = choose_cluster(root, find_programs(bin_dir), _fallback_base)
                make_socket_folder(cluster)  # before any connection, since it checks the folder's owner
                stack.callback(_stop_if_last_user, cluster, users_lock)
                _start(cluster, start_seconds)
        if watch:
            recovery = RecoveryWatch(cluster)

            def is_running() -> bool:
                recovery.kill_if_stuck()
                return _has_process(cluster)

            stack.enter_context(keep_running(is_running, lambda stop: _restart(cluster, stop)))
        yield cluster.conninfo(DATABASE)


def describe_full_disk(folder: Path) -> str:
    """Return a text that says that the folder's disk is almost full; "" if it is not.

    The server cannot always report it itself.
    """
    free = shutil.disk_usage(folder).free // MB
    return f"only {free} MB are free on its disk" if free < MIN_FREE_MB else ""


def _start(cluster: Cluster, start_seconds: float) -> None:
    """Start the server unless it runs; create the cluster first if it does not exist."""
    trim_log(cluster.log)
    if _find_connection_error(cluster) is not None:
        prepare_cluster(cluster)
        _launch(cluster, start_seconds=start_seconds)


def _has_process(cluster: Cluster) -> bool:
    """Whether the process in the server's lock file runs and is the server."""
    with suppress(OSError):
        pid = read_pid(cluster.data / "postmaster.pid")
        return pid is not None and cluster.is_server(pid)
    return False


def _restart(cluster: Cluster, stop: threading.Event) -> None:
    """Start a dead server again, unless another process is starting it or an operator has started it by hand.

    Return early when `stop` is set. Never create a cluster: an empty one in place of a lost one is a false
    answer to every question.
    """
    with try_lock_file(cluster.root / "start.lock") as is_locked:
        if not is_locked or _has_process(cluster) or cluster.ping() in {pq.Ping.OK, pq.Ping.REJECT}:
            return
        log.error("database_died", data=str(cluster.data))
        if not (cluster.data / "PG_VERSION").exists():
            raise OperatorError(f"The database in {cluster.data} has disappeared.")
        trim_log(cluster.log)
        make_socket_folder(cluster)
        prepare_cluster(cluster)
        _launch(cluster, stop)
    if not stop.is_set():
        log.warning("database_restarted", data=str(cluster.data))
        metrics.count_embedded_restart()


def _launch(
    cluster: Cluster, stop: threading.Event | None = None, *, start_seconds: float = START_SECONDS
) -> None:
    """Start the server and wait until the database accepts connections; raise OperatorError if it does not.

    A failed start is repeated: the remains of a killed server (`TRANSIENT_ERRORS`) disappear after a moment.
    The server must answer within `start_seconds`. Return early when `stop` is set.
    """
    deadline = time.monotonic() + start_seconds
    failures, last_error = 0, ""
    recovery = RecoveryWatch(cluster)
    with open_fd(cluster.log, os.O_APPEND) as log:
        while (connection_error := _find_connection_error(cluster)) is not None:
            if stop is not None and stop.is_set():
                return
            answer = cluster.ping()
            if answer == pq.Ping.REJECT:
                # The server starts up, recovers or shuts down. That may take any time.
                deadline = time.monotonic() + start_seconds
                recovery.kill_if_stuck()
            elif answer == pq.Ping.NO_ATTEMPT or failures == MAX_FAILED_STARTS or time.monotonic() > deadline:
                reason = last_error or describe_full_disk(cluster.home) or connection_error
                raise OperatorError(
                    f"The database in {cluster.data} does not start: {reason} (log: {cluster.log})"
                )
            elif answer == pq.Ping.NO_RESPONSE:
                is_started, errors = _run_start(cluster, log)
                last_error = errors[-1] if errors else last_error
                failures += not is_started and not _has_transient_error(errors)
            time.sleep(0.05)


def _run_start(cluster: Cluster, log: int) -> tuple[bool, list[str]]:
    """Run `pg_ctl start`, with its output in the log; return whether it succeeded, and its error lines."""
    remove_stale_lock_files(cluster)
    begin = os.fstat(log).st_size
    options = f"-c config_file={shlex.quote(str(cluster.config))}"
    code = cluster.pg_ctl("start", "--silent", "--wait", "--timeout=10", "--options", options, output=log)
    return code == 0, find_errors(os.pread(log, MAX_LOG_BYTES, begin))


def _has_transient_error(errors: list[str]) -> bool:
    """Whether an error will disappear by itself."""
    return any(transient in line for line in errors for transient in TRANSIENT_ERRORS)


def _find_connection_error(cluster: Cluster) -> str | None:
    """Connect to the server and create the database if needed; return None, or libpq's error if it fails."""
    try:
        with psycopg.connect(cluster.conninfo("postgres"), connect_timeout=5, autocommit=True) as db:
            if db.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone() is None:
                db.execute(f"CREATE DATABASE {DATABASE}")
    except psycopg.Error as error:
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return None


def _stop_if_last_user(cluster: Cluster, users_lock: int) -> None:
    """Stop the server and remove its socket folder, unless another process holds a lock on `users.lock`."""
    try:
        fcntl.flock(users_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    pid = None
    with suppress(OSError):
        pid = read_pid(cluster.data / "postmaster.pid")
    if pid is not None and cluster.is_server(pid):
        _stop(cluster, pid)
    if cluster.socket_folder.parent != cluster.home:
        with suppress(OSError):
            cluster.socket_folder.rmdir()


def _stop(cluster: Cluster, pid: int) -> None:
    """Stop the server and wait until its process has ended."""
    # A fast shutdown never ends while the server recovers from a crashed backend (seen with 18.6). An
    # immediate one is as safe: the WAL is replayed at the next start.
    for mode in ("fast", "immediate") if cluster.ping() == pq.Ping.OK else ("immediate",):
        code = cluster.pg_ctl("stop", "--silent", f"--mode={mode}", "--wait", f"--timeout={START_SECONDS}")
        if code == 0:
            break
    else:
        log.warning("postgres_not_stopped", data=str(cluster.data))
    for _ in range(100):  # pg_ctl waits for the pid file only, which goes a moment before the process
        if not cluster.is_server(pid):
            break
        time.sleep(0.01)


@contextmanager
def _convert_os_errors(data_dir: Path) -> Iterator[None]:
    """Turn an OSError in the block into an OperatorError that names the data folder."""
    try:
        yield
    except OSError as error:
        raise OperatorError(
            f"The data folder {data_dir} cannot be used: {error.strerror}: {error.filename or data_dir}"
        ) from error
