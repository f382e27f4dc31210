"""The lines around what an account's run has found: its files are read once more, so that a scan without an account pays nothing."""

import os
from collections.abc import Callable
from pathlib import Path

from outcrop.scanner.engine.excerpt import excerpts_of_file
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.sources import files
from outcrop.sources.git import objects
from outcrop.sources.git.presence import files_of
from outcrop.sources.git.repository import Repository
from outcrop.sources.located import LocatedHit

_LARGEST = 32 << 20  # bytes of a file that has excerpts: it is held in memory


def of_blobs(repository: Repository, ruleset: RuleSet) -> Callable[[list[LocatedHit]], None]:
    """Give what adds the excerpt of each place as it was in its oldest blob, where its line is counted too."""

    def add(located: list[LocatedHit]) -> None:
        by_blob: dict[bytes, list[LocatedHit]] = {}
        for one in located:
            if one.first_blob is not None:
                by_blob.setdefault(one.first_blob, []).append(one)
        for oid, content in objects.contents(repository, [sorted(by_blob)]) if by_blob else ():
            if isinstance(content, objects.Large):
                content = content.read(_LARGEST) if content.size <= _LARGEST else None  # noqa: PLW2901
            if content is not None:
                _add(ruleset, content, by_blob[oid])

    return add


def of_files(root: Path, ruleset: RuleSet) -> Callable[[list[LocatedHit]], None]:
    """Give what adds the excerpts of a folder's files, or of a file that is looked at alone."""
    base = os.fsencode(root if root.is_dir() else root.parent)

    def add(located: list[LocatedHit]) -> None:
        by_file: dict[bytes, list[LocatedHit]] = {}
        for one in located:
            file = next(
                (name for name in files_of(one.path or b"") if os.path.isfile(os.path.join(base, name))), None
            )
            if file is not None:
                by_file.setdefault(file, []).append(one)
        for name, here in by_file.items():
            content = _read(os.path.join(base, name))
            if content is not None:
                _add(ruleset, content, here)

    return add


def _add(ruleset: RuleSet, content: bytes, located: list[LocatedHit]) -> None:
    found = excerpts_of_file(ruleset, content, [(one.path or b"", one.hit) for one in located])
    for one, excerpt in zip(located, found, strict=True):
        one.excerpt = excerpt


def _read(path: bytes) -> bytes | None:
    try:
        with files.open_regular_file(path) as file:
            content = file.read(_LARGEST + 1)
    except OSError:  # it has gone or changed since it was looked at
        return None
    return content if len(content) <= _LARGEST else None
