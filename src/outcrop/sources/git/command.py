"""How git is started: with nothing of this machine's configuration, nothing of a foreign repository's, and no way out."""

import contextlib
import fcntl
import os
import resource
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from outcrop.domain.errors import OperatorError

_GIGA = 1 << 30
# Large objects are streamed instead of being held in memory; nothing is repacked or written behind our back.
_CONFIG = {
    "core.bigFileThreshold": "64m",
    "core.deltaBaseCacheLimit": "8m",
    "core.packedGitWindowSize": "256k",
    "core.packedGitLimit": "8m",
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.attributesFile": "/dev/null",
    "core.commitGraph": "false",
    "core.multiPackIndex": "false",
    "credential.helper": "",
    "diff.external": "",
    "fetch.fsckObjects": "false",
    "transfer.fsckObjects": "false",
    "fetch.recurseSubmodules": "false",
    "fetch.writeCommitGraph": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "http.followRedirects": "false",
    "protocol.allow": "never",
}


def command(repository: Path, *arguments: str) -> list[str]:
    return ["git", "--no-replace-objects", "--git-dir", str(repository), *arguments]


def environment(config: Mapping[str, str] | None = None, *, protocols: str = "") -> dict[str, str]:
    """Give the whole environment of a git process; configuration travels in it, where no other user can read it."""
    settings = [*_CONFIG.items(), *(config or {}).items()]
    env = {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_ALLOW_PROTOCOL": protocols,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_CONFIG_COUNT": str(len(settings)),
    }
    for number, (key, value) in enumerate(settings):
        env[f"GIT_CONFIG_KEY_{number}"] = key
        env[f"GIT_CONFIG_VALUE_{number}"] = value
    return env


class Git(subprocess.Popen[bytes]):
    """A git that may have ended before it was told everything: then what is left is nobody's."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(BrokenPipeError):
            super().__exit__(kind, error, trace)


def start(
    repository: Path,
    arguments: Sequence[str],
    *,
    stdin: int | None = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.DEVNULL,
    memory: int = 32 * _GIGA,
    config: Mapping[str, str] | None = None,
) -> Git:
    """Start git on one of our own repositories, with its output to be read."""
    try:
        process = Git(
            command(repository, *arguments),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment(config),
            cwd=repository,
            start_new_session=True,
            bufsize=1 << 20,
        )
    except FileNotFoundError:
        raise OperatorError("git is needed to read a repository, and none is installed") from None
    bound(process.pid, memory)
    if process.stdout is not None and hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):  # a larger pipe means fewer changes between the two processes
            fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 1 << 20)
    return process


def bound(pid: int, memory: int = 32 * _GIGA) -> None:
    """Bound what a git process that has just been started can use.

    From outside, since Python copies a process that has code to run before git does, with all of its memory: milliseconds each time.
    """
    bounds = {resource.RLIMIT_CORE: 0, resource.RLIMIT_AS: 32 * _GIGA, resource.RLIMIT_DATA: memory}
    for what, most in bounds.items():
        with contextlib.suppress(
            OSError, AttributeError
        ):  # it has ended, or is bounded more closely already; only Linux can
            resource.prlimit(pid, what, (most, most))


def output(repository: Path, *arguments: str, given: bytes = b"") -> tuple[int, bytes]:
    """Run git to its end; give its exit code and what it printed."""
    with start(repository, arguments, stdin=subprocess.PIPE) as process:
        out, _ = process.communicate(given)
        return process.returncode, out
