"""Run initdb for a user id that has no entry in /etc/passwd, as containers with any user id have.

initdb, and the single-user server that it starts, ask for the name of their user, as a default for
`--username`, which we give. They end if there is none. So both run as copies that ask for the first entry of
/etc/passwd instead: `getpwent` has the same length as `getpwuid`, and returns the same structure. The server
itself, once the cluster exists, does not ask.
"""

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from outcrop.domain.errors import OperatorError
from outcrop.store.embedded.binaries import PostgresPrograms

_ASKED, _INSTEAD = b"\0getpwuid\0", b"\0getpwent\0"


@contextmanager
def open_initdb(programs: PostgresPrograms, home: Path) -> Iterator[PostgresPrograms]:
    """Yield the programs in a form whose initdb runs for this user. A copy is in `home` meanwhile."""
    if programs.prefix or programs.account or _has_entry(os.geteuid()):
        yield programs
        return
    folder = Path(tempfile.mkdtemp(prefix="initdb-", dir=home))
    try:
        yield replace(programs, bin_dir=_copy_programs(programs.bin_dir, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _has_entry(user: int) -> bool:
    """Whether the machine knows a name for the user id."""
    try:
        pwd.getpwuid(user)
    except KeyError:
        return False
    return True


def _copy_programs(bin_dir: Path, folder: Path) -> Path:
    """Copy initdb and postgres, changed, into a folder; return the folder of the copies.

    They find their files by their own place, so links lead to everything else, as in the wheel.
    """
    install = bin_dir.parent
    copy = folder / install.parent.name / install.name
    (copy / bin_dir.name).mkdir(parents=True)
    for path in install.iterdir():
        if path.name != bin_dir.name:
            (copy / path.name).symlink_to(path)
    libraries = install.parent.with_suffix(".libs")
    if libraries.is_dir():
        (folder / libraries.name).symlink_to(libraries)
    for name in ("initdb", "postgres"):
        content = (bin_dir / name).read_bytes()
        if content.count(_ASKED) != 1 or not pwd.getpwall():
            raise OperatorError(
                f"initdb needs an entry for the user id {os.geteuid()} in /etc/passwd: add one, run outcrop"
                " as another user, or set OUTCROP_DATABASE_URL."
            )
        program = copy / bin_dir.name / name
        program.write_bytes(content.replace(_ASKED, _INSTEAD))
        program.chmod(0o700)
    return copy / bin_dir.name
