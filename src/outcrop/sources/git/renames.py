"""What a change has brought that was not there before: compared file by file, and a file that moved brings nothing new."""

from collections.abc import Iterable, Mapping

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.sources.git import attribution, objects
from outcrop.sources.git.repository import Repository
from outcrop.sources.located import LocatedHit

Holders = dict[str, set[bytes]]  # a value, and the paths of the files that held it before


def files_at(repository: Repository, commit: bytes, paths: list[bytes]) -> dict[bytes, bytes]:
    """Give those of these paths at which something stood in a commit, with its id."""
    ids = attribution.ids_at(repository, commit, paths) if paths else []
    return {path: oid for path, oid in zip(paths, ids, strict=True) if oid}


def holders(repository: Repository, ruleset: RuleSet, files: Mapping[bytes, bytes]) -> Holders:
    """Give the values that the blobs of these files hold, unless by a mark."""
    paths: dict[bytes, set[bytes]] = {}
    for path, oid in files.items():
        paths.setdefault(oid, set()).add(path)
    found_in: Holders = {}
    for oid, found, _ in objects.scanned(repository, ruleset, Confidence.LOW, [list(paths)]) if paths else ():
        for hit in () if isinstance(found, str) else (hit for _, hit in found.hits if not hit.allowed):
            found_in.setdefault(reveal(hit.secret), set()).update(paths[oid])
    return found_in


def hold(old: Holders, more: Holders) -> None:
    for value, paths in more.items():
        old.setdefault(value, set()).update(paths)


def new(located: Iterable[LocatedHit], old: Holders) -> list[LocatedHit]:
    """Leave out what the same file held before."""
    return [one for one in located if one.file_path not in old.get(reveal(one.hit.secret), ())]


def unmoved(
    located: list[LocatedHit], removed: Mapping[bytes, Mapping[bytes, bytes]], old: Holders
) -> list[LocatedHit]:
    """Leave out what has only moved: the commit that brought it took away a file that held it before.

    Each such file accounts for one other, first for one of the same content: what is in more has been copied. Commits come oldest first,
    since a file may move more than once.
    """
    brought: dict[bytes, dict[str, dict[bytes, bytes | None]]] = {}
    for one in located:
        brought.setdefault(commit_of(one), {}).setdefault(reveal(one.hit.secret), {})[
            one.file_path or b""
        ] = one.first_blob
    for commit, files in removed.items():
        for value, places in brought.get(commit, {}).items():
            gone = old.get(value, set()) & files.keys()
            same = {files[path] for path in gone}
            likely = sorted(places, key=lambda path: (places[path] not in same, path))
            old.setdefault(value, set()).update(likely[: len(gone)])
    return new(located, old)


def commit_of(one: LocatedHit) -> bytes:
    return one.origin.commit.encode() if one.origin else b""
