"""Start git with resource limits, and without the configuration of the machine or the scanned repository."""

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
from outcrop.limits import SOURCE_LIMITS
from outcrop.sandbox import Sandbox, start_restricted

_GIGA = 1 << 30
# Stream large objects instead of holding them in memory. Use small caches and no index file that the scanned
# repository could have written. Start no hook, helper or maintenance, and contact no other host.
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


def command_line(repository: Path, *arguments: str) -> list[str]:
    """Return the git command with these arguments for the git folder `repository`."""
    return ["git", "--no-replace-objects", "--git-dir", str(repository), *arguments]


def environment(config: Mapping[str, str] | None = None, *, protocols: str = "") -> dict[str, str]:
    """Return the complete environment of a git process, with `config` added to the fixed configuration.

    `config` maps names of git settings to values. Configuration is passed in environment variables, which
    other users cannot read, and not as arguments. `protocols` names the protocols that git may use, such as
    "https"; with "" git cannot connect to a host.
    """
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


class GitProcess(subprocess.Popen[bytes]):
    """A git process that may end before it has read all of its input: closing the broken pipe is no error."""

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
    memory: int = SOURCE_LIMITS.git_memory,
    config: Mapping[str, str] | None = None,
) -> GitProcess:
    """Start git in a repository of our own, with its output as a pipe, and return the running process.

    `stdin` and `stderr` are as in subprocess.Popen. `memory` limits the bytes of git's data segment. `config`
    has settings that are added to the fixed configuration. git can write only in the repository, and connect
    to no host. Raise OperatorError if git is not installed.
    """
    try:
        process = start_restricted(
            Sandbox((repository,)),
            lambda: GitProcess(
                command_line(repository, *arguments),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment(config),
                cwd=repository,
                start_new_session=True,
                bufsize=1 << 20,
            ),
        )
    except FileNotFoundError:
        raise OperatorError("git is needed to read a repository, and none is installed") from None
    limit_resources(process.pid, memory)
    if process.stdout is not None and hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):  # a larger pipe means fewer context switches
            fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 1 << 20)
    return process


def limit_resources(
    pid: int, memory: int = SOURCE_LIMITS.git_memory, file_size: int = SOURCE_LIMITS.disk
) -> None:
    """Limit memory and files of a git process that has just started, and disable its core dumps.

    `memory` limits the bytes of its data segment, `file_size` those of each file that it writes; its address
    space is limited to 32 GiB. Limits are set from
    the parent: with a `preexec_fn` Python would fork itself with all of its memory, which takes milliseconds
    each time. A limit that cannot be set is skipped: the process has ended, has a lower limit, or does not
    run on Linux.
    """
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_AS: 32 * _GIGA,
        resource.RLIMIT_DATA: memory,
        resource.RLIMIT_FSIZE: file_size,
    }
    for limited, maximum in limits.items():
        # The process has ended, or has a lower limit already. Only Linux has prlimit.
        with contextlib.suppress(OSError, AttributeError):
            resource.prlimit(pid, limited, (maximum, maximum))


def run(repository: Path, *arguments: str, stdin_data: bytes = b"") -> tuple[int, bytes]:
    """Run git with `stdin_data` as its input, and wait for its end; return its exit code and its output.

    Error output is dropped. Raise OperatorError if git is not installed.
    """
    with start(repository, arguments, stdin=subprocess.PIPE) as process:
        out, _ = process.communicate(stdin_data)
        return process.returncode, out
