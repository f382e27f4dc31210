"""The public repositories of part 2, from `repositories.jsonl`: name, commit and kind; never their text.

The list, the kinds and the split were fixed before any of them was scanned.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

Half = Literal["tuning", "set aside"]
HALVES: tuple[Half, ...] = get_args(Half)
DATA = Path(__file__).parent
LIST = "repositories.jsonl"


@dataclass(frozen=True)
class ListedRepository:
    """One public repository at one commit."""

    repo: str  # owner/name
    commit: str
    kind: str

    @property
    def half(self) -> Half:
        """Return which half it belongs to."""
        return half_of(self.repo)


def half_of(repo: str) -> Half:
    """Return the half of `owner/name`: the first hex digit of its SHA-256, 0 to 7 for tuning."""
    return "tuning" if hashlib.sha256(repo.encode()).hexdigest()[0] in "01234567" else "set aside"


def read_list(file: Path = DATA / LIST) -> list[ListedRepository]:
    """Return the repositories in the order of the list."""
    return [ListedRepository(**json.loads(line)) for line in file.read_text("utf-8").splitlines()]


def locate_repositories(
    listed: Iterable[ListedRepository], folder: Path
) -> Iterator[tuple[ListedRepository, Path | None]]:
    """Yield each repository with its git directory below `folder`, None if it is absent."""
    for repository in listed:
        yield repository, _locate(folder / repository.repo.replace("/", "+"))


def _locate(path: Path) -> Path | None:
    """Return `path` if it is a bare repository, or the only bare repository directly below it."""
    if _is_bare(path):
        return path
    found = [entry for entry in path.iterdir() if _is_bare(entry)] if path.is_dir() else []
    return found[0] if len(found) == 1 else None


def _is_bare(path: Path) -> bool:
    """Whether a folder has what every git directory has."""
    return (path / "HEAD").is_file() and (path / "objects").is_dir()
