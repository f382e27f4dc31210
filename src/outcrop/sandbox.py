"""Take rights from processes that read foreign data: files, connections, being root, our settings.

Landlock limits what a process may read and write, and seccomp which sockets it may create. A thread takes
the rights from itself, for good, and the processes that it starts inherit what is left. So
`start_restricted` starts a program from a thread of its own: that costs less than a millisecond, and the
caller keeps its rights. What the kernel does not offer is left out, and `find_missing` names it.
docs/adr/0016 has the alternatives.
"""

import ctypes
import os
import socket
import stat
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

NO_LANDLOCK = "the kernel has no Landlock: git and the parsers could write files"
NO_SECCOMP = "the kernel has no seccomp filter: the parsers could connect to hosts"

# Numbers and values of linux/landlock.h; the system calls have the same numbers on all architectures.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH = 1
_WRITE_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 13, 1 << 14
_READ_FILE = 1 << 2  # folders may be listed everywhere: a target may have our data folder in it
_CHANGE_FOLDERS = 0b1_1111_1111 << 4  # remove or create entries of every type
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_SCOPES = 0b11  # abstract Unix sockets, and signals to processes outside
# linux/prctl.h, linux/seccomp.h
_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER = 22, 38, 2
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF_0000, 0x0005_0000 | 13  # with EACCES
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets of what a filter reads
_X32 = 0x4000_0000  # numbers from here on are those of another interface of x86-64
_IO_URING_SETUP = 425  # which can create sockets without the system call
# machine -> (architecture of linux/audit.h, number of the system call `socket`)
_SOCKET_CALLS = {"x86_64": (0xC000_003E, 41), "aarch64": (0xC000_00B7, 198)}

_NOBODY = 65_534
_ALWAYS_WRITABLE = Path("/dev/null")


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What a restricted process may still do. None connects to a Unix socket, such as the database's."""

    writable: tuple[Path, ...] = ()  # folders and files, which are readable too
    network: bool = False
    readable: tuple[Path, ...] | None = (
        None  # files, and the files in folders; None: all that its user may read
    )


READ_ONLY = Sandbox()


def restrict(sandbox: Sandbox) -> list[str]:
    """Take all other rights from the calling thread, and from the processes that it starts, for good.

    Return what the kernel does not offer: then these rights are left.
    """
    missing = []
    libc = _libc()
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if not _restrict_files(libc, sandbox):
        missing.append(NO_LANDLOCK)
    if not _refuse_sockets(libc, network=sandbox.network):
        missing.append(NO_SECCOMP)
    return missing


def start_restricted(sandbox: Sandbox, start: Callable[[], T]) -> T:
    """Call `start`, which starts a program, from a thread with these rights; return or raise as it does."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            restrict(sandbox)
            results.append(start())
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


@cache
def find_missing() -> tuple[str, ...]:
    """Return what this machine does not offer; nothing if the sandbox is complete."""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.extend(restrict(READ_ONLY)))
    thread.start()
    thread.join()
    return tuple(found)


def everything_but(hidden: Path) -> tuple[Path, ...]:
    """Return what is readable in a sandbox that must not read this file or folder.

    That is all that is beside it, and beside each folder above it, at this moment. A symbolic link could lead
    to it, and what a link leads to is counted at its own place.
    """
    hidden = hidden.resolve()
    above = {hidden, *hidden.parents}
    found: list[Path] = []
    for folder in hidden.parents:
        with suppress(OSError):
            found += [path for path in folder.iterdir() if path not in above and not path.is_symlink()]
    # The folder of a program may be one that its user cannot list.
    return (*found, *(path for path in python_folders() if path not in above))


def python_folders() -> tuple[Path, ...]:
    """Return the folders of the modules of this program and of Python."""
    return tuple({Path(folder).resolve() for folder in (*sys.path, sys.prefix, sys.base_prefix) if folder})


def is_setting(name: str) -> bool:
    """Whether an environment variable may have a secret of ours."""
    return name.startswith("OUTCROP_")


def forget_settings() -> None:
    """Erase our settings from the environment and the memory of this process, such as the secret key."""
    getenv = _libc().getenv
    getenv.restype = ctypes.c_void_p
    for name in list(filter(is_setting, os.environ)):
        if address := getenv(os.fsencode(name)):
            ctypes.memset(address, 0, len(os.fsencode(os.environ[name])))
        del os.environ[name]


# --- Users


@dataclass(frozen=True, slots=True)
class Owner:
    """A user who is not root, and the user's group."""

    user: int
    group: int


def find_owner(folder: Path) -> Owner | None:
    """Return the owner of a folder; None if root owns it, or if this process is not root.

    None also if that user cannot run this program, such as one that is installed in root's home.
    """
    if os.geteuid() != 0:
        return None
    try:
        status = folder.stat()
        command = [sys.executable, "-I", "-c", "import outcrop.sources.isolated.process_pool"]
        owner = Owner(status.st_uid, status.st_gid)
        if (
            owner.user == 0
            or subprocess.run(
                command,
                user=owner.user,
                group=owner.group,
                extra_groups=[],
                cwd="/",
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            ).returncode
        ):
            return None
    except OSError:
        return None
    return owner


def become(owner: Owner) -> None:
    """Change this process from root to another user, for good."""
    os.setgroups([])
    os.setresgid(owner.group, owner.group, owner.group)
    os.setresuid(owner.user, owner.user, owner.user)


def become_nobody() -> None:
    """Change this process to `nobody` if it is root and may change its user."""
    if os.geteuid() == 0:
        with suppress(OSError):  # in a user namespace there may be no other user
            become(Owner(_NOBODY, _NOBODY))


def hand_over(folder: Path, owner: Owner | None) -> None:
    """Make another user the owner of a folder and all that is in it; do nothing for None."""
    if owner is None:
        return
    os.chown(folder, owner.user, owner.group)
    for path, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(Path(path) / name, owner.user, owner.group, follow_symlinks=False)


# --- Landlock


def _restrict_files(libc: ctypes.CDLL, sandbox: Sandbox) -> bool:
    """Limit reading and writing to the paths of the sandbox; return whether the kernel has done so."""
    version = libc.syscall(_CREATE_RULESET, None, 0, 1)
    if version < 1:
        return False
    files = _WRITE_FILE | _CHANGE_FOLDERS | (_REFER if version > 1 else 0) | (_TRUNCATE if version > 2 else 0)
    reading = 0 if sandbox.readable is None else _READ_FILE
    ports = 0 if sandbox.network else _BIND_TCP | _CONNECT_TCP  # seccomp refuses the other sockets
    attributes = struct.pack("=QQQ", files | reading, ports, _SCOPES)
    size = 24 if version > 5 else 16 if version > 3 else 8  # older versions know fewer attributes
    rules = libc.syscall(_CREATE_RULESET, attributes[:size], size, 0)
    if rules < 0:
        return False
    try:
        for path in (*sandbox.writable, _ALWAYS_WRITABLE):
            _allow(libc, rules, path, files | reading)
        for path in sandbox.readable or ():
            _allow(libc, rules, path, reading)
        return int(libc.syscall(_RESTRICT_SELF, rules, 0)) == 0
    finally:
        os.close(rules)


def _allow(libc: ctypes.CDLL, rules: int, path: Path, rights: int) -> None:
    """Add a rule that gives rights below a path; a path that does not exist is left out."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _WRITE_FILE | _TRUNCATE | _READ_FILE
        libc.syscall(_ADD_RULE, rules, _RULE_PATH, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)


# --- seccomp


def _refuse_sockets(libc: ctypes.CDLL, *, network: bool) -> bool:
    """Refuse the thread all new sockets, with `network` only Unix sockets; return whether the kernel does so.

    Pairs of connected sockets, as pipes in both directions, have another system call.
    """
    if (known := _SOCKET_CALLS.get(os.uname().machine)) is None:
        return False
    architecture, socket_call = known
    # (operation, lines to skip if true, lines to skip if false, value)
    lines = (
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_IF_EQUAL, 0, 7, architecture),  # a 32-bit program has other numbers
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_IF_AT_LEAST, 5, 0, _X32),
        (_JUMP_IF_EQUAL, 4, 0, _IO_URING_SETUP),
        (_JUMP_IF_EQUAL, 0, 2, socket_call),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_JUMP_IF_EQUAL, 1, 0 if network else 1, int(socket.AF_UNIX)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
    program = struct.pack("@HP", len(lines), ctypes.addressof(code))
    return int(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0)) == 0


@cache
def _libc() -> ctypes.CDLL:
    """Return the C library of this process."""
    return ctypes.CDLL(None, use_errno=True)
