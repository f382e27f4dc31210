"""Add excerpts (the lines around a hit) to located hits.

The files are read a second time for this, so that a scan without an account, which needs no excerpts, costs
nothing more.
"""

import os
from pathlib import Path

from outcrop.limits import EXCERPT_FILE_BYTES
from outcrop.scanner.engine.excerpt import excerpts_of_file
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.sources import files
from outcrop.sources.git import objects
from outcrop.sources.git.cat_file import LargeObject
from outcrop.sources.git.known_secrets import list_containing_files
from outcrop.sources.git.repository import Repository
from outcrop.sources.located import LocatedHit


def add_blob_excerpts(located: list[LocatedHit], repository: Repository, ruleset: RuleSet) -> None:
    """Set the excerpt of each hit from its oldest blob, which its line number belongs to.

    Hits without a blob, and in blobs larger than EXCERPT_FILE_BYTES or unreadable, get none.
    """
    by_blob: dict[bytes, list[LocatedHit]] = {}
    for place in located:
        if place.first_blob is not None:
            by_blob.setdefault(place.first_blob, []).append(place)
    for oid, content in objects.read_contents(repository, [sorted(by_blob)]) if by_blob else ():
        if isinstance(content, LargeObject):
            data = content.read(EXCERPT_FILE_BYTES) if content.size <= EXCERPT_FILE_BYTES else None
        else:
            data = content
        if data is not None:
            _set_excerpts(ruleset, data, by_blob[oid])


def add_file_excerpts(located: list[LocatedHit], root: Path, ruleset: RuleSet) -> None:
    """Set the excerpt of each hit from its file in the folder `root`, or from `root` if that is a file.

    Hits in files that are larger than EXCERPT_FILE_BYTES, gone or unreadable get none.
    """
    base = os.fsencode(root if root.is_dir() else root.parent)
    by_file: dict[bytes, list[LocatedHit]] = {}
    for place in located:
        names = (
            name
            for name in list_containing_files(place.path or b"")
            if os.path.isfile(os.path.join(base, name))
        )
        if (file := next(names, None)) is not None:
            by_file.setdefault(file, []).append(place)
    for name, places in by_file.items():
        content = _read_file(os.path.join(base, name))
        if content is not None:
            _set_excerpts(ruleset, content, places)


def _set_excerpts(ruleset: RuleSet, content: bytes, located: list[LocatedHit]) -> None:
    """Set the `excerpt` of each hit in one file; `content` is the content of that file."""
    excerpts = excerpts_of_file(ruleset, content, [(place.path or b"", place.hit) for place in located])
    for place, excerpt in zip(located, excerpts, strict=True):
        place.excerpt = excerpt


def _read_file(path: bytes) -> bytes | None:
    """Return the content of a file; None if it is above EXCERPT_FILE_BYTES or cannot be read any more."""
    try:
        with files.open_regular_file(path) as file:
            content = file.read(EXCERPT_FILE_BYTES + 1)
    except OSError:
        return None
    return content if len(content) <= EXCERPT_FILE_BYTES else None
