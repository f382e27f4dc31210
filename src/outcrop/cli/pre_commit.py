"""Find out what the program pre-commit wants a hook to scan: `outcrop scan --pre-commit FILE...`.

pre-commit passes names of files, and says in variables which commits they belong to, if they do:

| called as | what is scanned |
|---|---|
| `pre-commit run --from-ref A --to-ref B`, or before a push | the commits between them |
| before the first push of a history | all commits that are pushed |
| `git commit`, `pre-commit run` | what is staged in the named files |
| `pre-commit run --all-files`, `--files` | the named files of the working tree |

It does not say which of the last two it is. If every named file is staged, the command of the process that
called us decides.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_NO_COMMIT = "0" * 40  # begins a history


class Changes(NamedTuple):
    """The part of the targets that is scanned; by default all of it."""

    since: str | None = None
    from_ref: str | None = None
    to_ref: str | None = None
    staged: bool = False
    files: frozenset[bytes] | None = None  # only these, relative to the target

    @property
    def is_in_folder(self) -> bool:
        """Whether files of the working tree are scanned, and no history."""
        return self.files is not None and not self.staged and not self.to_ref


def read_pre_commit(names: Sequence[str], environment: Mapping[str, str], work: Path) -> Changes:
    """Return what pre-commit wants to be scanned in the current folder, the top of a working tree.

    `names` are the files that it passes, and `work` is the folder for temporary files.
    """
    from outcrop.services.local_scan.repository import list_staged_files  # noqa: PLC0415 - few scans need it

    from_ref, to_ref = environment.get("PRE_COMMIT_FROM_REF"), environment.get("PRE_COMMIT_TO_REF")
    if from_ref and to_ref:
        return Changes(from_ref=from_ref, to_ref=to_ref)
    if pushed := environment.get("PRE_COMMIT_LOCAL_BRANCH"):
        return Changes(from_ref=_NO_COMMIT, to_ref=pushed)
    files = frozenset(os.path.normpath(os.fsencode(name)) for name in names)
    is_staged = files <= list_staged_files(".", work) and not _is_called_for_named_files()
    return Changes(staged=is_staged, files=files)


def _is_called_for_named_files() -> bool:
    """Whether the command of the calling process has the option `--all-files` or `--files`.

    False if that cannot be read, as on systems without /proc.
    """
    try:
        command = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word in {b"-a", b"--all-files", b"--files"} for word in command)
