"""Read the tree of a commit from a bare repository. Nothing from the repository is run.

`git archive` would leave out what its `.gitattributes` excludes and change texts; the blobs are read instead.
"""

import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

_REGULAR = ("100644", "100755")  # no symbolic links, no submodules


@dataclass(frozen=True)
class TreeFile:
    """A regular file in the tree of a commit."""

    path: str
    blob: str  # the object's id
    size: int


def list_files(git_dir: Path, commit: str) -> list[TreeFile]:
    """Return the regular files of a commit, in the order of git.

    Left out are names that are not UTF-8, and files whose content the repository lacks.
    """
    listing = subprocess.run(
        [*_git(git_dir), "ls-tree", "-r", "-l", "-z", "--full-tree", commit],
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    return list(_parse_listing(listing))


def _parse_listing(listing: bytes) -> Iterator[TreeFile]:
    for entry in listing.split(b"\0"):
        head, _, name = entry.partition(b"\t")
        mode, _, rest = head.decode().partition(" ")
        if mode not in _REGULAR:
            continue
        try:
            path = name.decode("utf-8")
        except UnicodeDecodeError:
            continue
        _, blob, size = rest.split()
        if size.isdigit() and _is_safe(path):  # "BAD" for a file that a partial clone lacks
            yield TreeFile(path, blob, int(size))


def _is_safe(path: str) -> bool:
    """Whether a path stays inside the folder it is written to and is no repository of its own."""
    parts = PurePosixPath(path).parts
    return not path.startswith("/") and not any(part.lower() in ("..", ".git") for part in parts)


def read_blobs(git_dir: Path, files: Iterable[TreeFile]) -> Iterator[tuple[TreeFile, bytes]]:
    """Yield each file with its content."""
    with subprocess.Popen(
        [*_git(git_dir), "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for file in files:
            process.stdin.write(f"{file.blob}\n".encode())
            process.stdin.flush()
            size = int(process.stdout.readline().split()[2])
            content = process.stdout.read(size)
            process.stdout.read(1)  # the newline after each object
            yield file, content


@contextmanager
def exported(git_dir: Path, commit: str, work: Path) -> Iterator[Path]:
    """Write the files of a commit to a temporary folder below `work` and yield it."""
    with TemporaryDirectory(dir=work, prefix="tree-") as folder:
        root = Path(folder)
        for file, content in read_blobs(git_dir, list_files(git_dir, commit)):
            path = root / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        yield root


def _git(git_dir: Path) -> list[str]:
    """Return the start of a git command that reads a foreign repository."""
    return [
        "git",
        "-c",
        "safe.bareRepository=all",
        "-c",
        "core.hooksPath=/dev/null",
        "--git-dir",
        str(git_dir),
    ]
