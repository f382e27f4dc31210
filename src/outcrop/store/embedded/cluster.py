"""Choose where the embedded server's cluster is, create it, and prepare its files for a start.

The cluster is in the data folder. PostgreSQL refuses to run as root: for root, the programs run in a user
namespace; where that is not possible, an ordinary account runs them on a cluster below /var/lib/outcrop.
"""

import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from psycopg import pq
from psycopg.conninfo import make_conninfo

from outcrop.domain.errors import OperatorError
from outcrop.store.embedded.binaries import USER_NAMESPACE, PostgresPrograms, switch_to_unprivileged_account
from outcrop.store.embedded.files import open_fd
from outcrop.store.embedded.initdb import open_initdb
from outcrop.store.embedded.settings import server_settings

DATABASE = USER = "outcrop"
_SOCKET_NAME = ".s.PGSQL.5432"
_PING_SECONDS = 5
_MAX_SOCKET_PATH = 107  # bytes; the limit of sockaddr_un


@dataclass(frozen=True)
class Cluster:
    """The folders of a cluster and the programs that run it.

    Locks and log are in `root`; data, socket and settings are in `home`. Both are the same folder, unless the
    caller is root and another account has to run the programs.
    """

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
        """Return the user id that the server runs as."""
        return self.programs.account[0] if self.programs.account else os.geteuid()

    @property
    def socket_folder(self) -> Path:
        """Return the folder of the server's socket: in `home`, or in /tmp if its path there is unusable."""
        folder = self.home / "run"
        is_short = len(os.fsencode(folder / _SOCKET_NAME)) < _MAX_SOCKET_PATH
        # Other characters are special in PostgreSQL's list of folders or to libpq, or depend on the locale.
        if is_short and re.fullmatch(r"[\w./+@:~-]+", str(folder), re.ASCII):
            return folder
        # Not in $TMPDIR: all processes that share the server must find the same folder.
        return Path("/tmp", f"outcrop-{self.owner}-{_short_digest(self.home)}")  # noqa: S108 - private, checked

    def conninfo(self, database: str) -> str:
        """Return the connection string of a database, complete, so that no PG* variable has an effect."""
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
        """Return the server's status as a value of `pq.Ping`; NO_RESPONSE after _PING_SECONDS."""
        conninfo = make_conninfo(self.conninfo("postgres"), connect_timeout=_PING_SECONDS)
        return pq.PGconn.ping(conninfo.encode())

    def pg_ctl(self, *args: str, output: int = subprocess.PIPE) -> int:
        """Run pg_ctl on this cluster; return its exit code."""
        # PGDATA, not -D: pg_ctl passes the latter through a shell, which would expand a `$` in the path.
        return self.programs.run("pg_ctl", *args, env={"PGDATA": str(self.data)}, output=output)[0]

    def is_server(self, pid: int) -> bool:
        """Whether the process is this cluster's server and was started by Outcrop.

        It is not if the process id was reused, or if an operator started the server by hand.
        """
        if not Path("/proc/self/cmdline").exists():
            return _process_exists(pid)
        with suppress(OSError):
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            return os.fsencode(f"config_file={self.config}") in arguments
        return False


def choose_cluster(root: Path, programs: PostgresPrograms, fallback_base: Path) -> Cluster:
    """Return the cluster of the folder `root`. For root, find a way to run the programs as another user.

    `fallback_base` is the folder for clusters that an ordinary account runs; `root/data` is then a link to
    the cluster.
    """
    if os.geteuid() != 0:
        return Cluster(root, root, programs)
    link = root / "data"
    is_elsewhere = link.is_symlink() and link.readlink().is_relative_to(fallback_base)
    if not is_elsewhere:
        in_namespace = replace(programs, prefix=USER_NAMESPACE)
        if in_namespace.can_run(root):
            return Cluster(root, root, in_namespace)
        if link.exists():
            owner = link.stat().st_uid
            cure = (
                "allow user namespaces (unshare)"
                if owner == 0
                else f"run outcrop as the user with id {owner}"
            )
            raise OperatorError(
                f"PostgreSQL refuses to run as root and cannot be run otherwise in {root}: {cure},"
                " or set OUTCROP_DATABASE_URL."
            )
    elif not link.exists():
        raise OperatorError(
            f"The database of this data folder was in {link.readlink()}, which does not exist: restore that"
            f" folder, or remove {link} to start with an empty database."
        )
    home = link.readlink().parent if is_elsewhere else fallback_base / _short_digest(root)
    return Cluster(root, home, switch_to_unprivileged_account(programs, home))


def prepare_cluster(cluster: Cluster) -> None:
    """Create the cluster or check its version, link to it from the data folder, and write its settings."""
    if (cluster.data / "PG_VERSION").exists():
        _check_version(cluster)
    else:
        _run_initdb(cluster)
    link = cluster.root / "data"
    if cluster.home != cluster.root and not link.is_symlink():
        link.symlink_to(cluster.data)
    _write_settings(cluster)


def make_socket_folder(cluster: Cluster) -> None:
    """Create the folder for the socket; raise OperatorError unless it is a private folder of the owner.

    Anybody can create a folder in /tmp first, and put a server of their own into it.
    """
    folder = cluster.socket_folder
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if cluster.programs.account and stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
        os.chown(folder, *cluster.programs.account)
        status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != cluster.owner or status.st_mode & 0o077:
        raise OperatorError(
            f"The folder for the database's socket, {folder}, is not a private folder of the user with id"
            f" {cluster.owner}: remove it."
        )


def remove_stale_lock_files(cluster: Cluster) -> None:
    """Remove lock files of a dead server that PostgreSQL does not remove itself.

    These are unreadable files, and those whose process id another program has now.
    """
    for lock in (cluster.data / "postmaster.pid", cluster.socket_folder / f"{_SOCKET_NAME}.lock"):
        with suppress(OSError):
            pid = read_pid(lock)
            if pid is None or _is_unrelated_process(pid, cluster.data):
                lock.unlink()


def read_pid(lock: Path) -> int | None:
    """Return the process id in the first line of a lock file; None if there is none."""
    first_line = lock.read_text().partition("\n")[0].strip().lstrip("-")  # negative in single-user mode
    return int(first_line) if first_line.isdecimal() else None


def find_errors(output: bytes) -> list[str]:
    """Return the error lines in the output of the programs, without times and uninformative lines."""
    uninformative = ("the database system is", "pg_ctl: ")
    lines = [
        line
        for line in output.decode(errors="replace").splitlines()
        if not any(phrase in line for phrase in uninformative)
    ]
    return [
        line.partition("] ")[2] or line for line in lines if re.search("FATAL:|PANIC:|error:|could not", line)
    ]


def _run_initdb(cluster: Cluster) -> None:
    """Create the cluster in a temporary folder, and rename the folder when it is complete."""
    for leftover in cluster.home.glob("initdb-*"):
        shutil.rmtree(leftover, ignore_errors=True)  # an initdb of a killed process may still write there
    temporary = Path(tempfile.mkdtemp(prefix="initdb-", dir=cluster.home))
    try:
        if cluster.programs.account:
            os.chown(temporary, *cluster.programs.account)
        options = (
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--auth=trust",
            f"--username={USER}",
            "--no-instructions",
        )
        with open_initdb(cluster.programs, cluster.home) as initdb:
            code, text = initdb.run("initdb", *options, env={"PGDATA": str(temporary)})
        if code != 0:
            with suppress(OSError), open_fd(cluster.log, os.O_APPEND) as log:
                os.write(log, text.encode())
            reason = (find_errors(text.encode()) or ["initdb failed"])[0]
            raise OperatorError(
                f"The database in {cluster.data} cannot be created: {reason} (log: {cluster.log})"
            )
        temporary.rename(cluster.data)
        with open_fd(cluster.home, os.O_DIRECTORY) as folder:
            os.fsync(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check_version(cluster: Cluster) -> None:
    """Raise OperatorError if another major version of PostgreSQL created the cluster."""
    cluster_major = (cluster.data / "PG_VERSION").read_text().strip()
    if cluster_major != str(cluster.programs.major):
        raise OperatorError(
            f"The database in {cluster.data} was made by PostgreSQL {cluster_major}, the programs in"
            f" {cluster.programs.bin_dir} are PostgreSQL {cluster.programs.major}: set OUTCROP_POSTGRES_BIN"
            f" to the folder of a PostgreSQL {cluster_major}. To upgrade, make a backup with it (outcrop"
            " backup) and restore that into an empty data folder without it."
        )


def _write_settings(cluster: Cluster) -> None:
    """Write the configuration file, which includes the cluster's own postgresql.conf first.

    So our settings win at every start, and the operator can change all others in postgresql.conf.
    """
    temporary = cluster.config.with_suffix(".new")
    lines = [
        "# Rewritten at every start; own settings belong in data/postgresql.conf.",
        "include 'data/postgresql.conf'",
    ]
    lines += [f"{name} = '{value}'" for name, value in server_settings(cluster.socket_folder).items()]
    with open_fd(temporary, os.O_TRUNC) as fd:
        os.write(fd, "\n".join([*lines, ""]).encode())
        if cluster.programs.account:
            os.fchown(fd, -1, cluster.programs.account[1])
            os.fchmod(fd, 0o640)
    temporary.replace(cluster.config)


def _process_exists(pid: int) -> bool:
    """Whether a process with this id runs, by the system call alone."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _is_unrelated_process(pid: int, data: Path) -> bool:
    """Whether a process with this id runs and is not a PostgreSQL process of the data folder.

    All processes of PostgreSQL have their data folder as working directory.
    """
    process = Path("/proc", str(pid))
    try:
        return (process / "cwd").readlink() != data.resolve()
    except PermissionError:
        return (process / "comm").read_text() != "postgres\n"
    except FileNotFoundError:
        return process.exists()  # a zombie; otherwise there is no such process


def _short_digest(path: Path) -> str:
    """Return 16 hexadecimal digits that identify a path, for the name of a folder."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
