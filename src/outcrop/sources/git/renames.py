"""Drop hits that are not new: the same file had the value before, or the value has moved with its file."""

from collections.abc import Iterable, Mapping

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.sources.git.objects import scan_objects
from outcrop.sources.git.repository import Repository
from outcrop.sources.located import LocatedHit

PathsByValue = dict[str, set[bytes]]  # value -> paths of the files that had it before


def add_old_values(
    old: PathsByValue, repository: Repository, ruleset: RuleSet, files: Mapping[bytes, bytes]
) -> None:
    """Scan the old versions of files (path -> blob), and add each value and the paths of its files to `old`.

    Values whose hit has an allow mark are left out, and so are blobs that cannot be read.
    """
    paths: dict[bytes, set[bytes]] = {}
    for path, oid in files.items():
        paths.setdefault(oid, set()).add(path)
    results = scan_objects(repository, ruleset, Confidence.LOW, [list(paths)]) if paths else ()
    for oid, result, _, _ in results:
        if isinstance(result, str):  # it could not be read
            continue
        for _, hit in result.hits:
            if not hit.allowed:
                old.setdefault(reveal(hit.secret), set()).update(paths[oid])


def drop_old_values(located: Iterable[LocatedHit], old: PathsByValue) -> list[LocatedHit]:
    """Return the hits without those whose file had the value before: `old` has its path for the value."""
    return [hit for hit in located if hit.file_path not in old.get(reveal(hit.hit.secret), ())]


def drop_moved_values(
    located: list[LocatedHit], deleted: Mapping[bytes, Mapping[bytes, bytes]], old: PathsByValue
) -> list[LocatedHit]:
    """Return the hits without those of moved files: their commit also deletes a file that had the value.

    `deleted` maps commit -> path -> blob, oldest commit first, since a file may move more than once. The
    paths of moved files are added to `old`, then every hit whose path `old` has for its value is dropped. A
    deleted file accounts for one added file, preferably one with the same blob: further files are copies.
    """
    added: dict[bytes, dict[str, dict[bytes, bytes | None]]] = {}  # commit -> value -> path -> blob
    for hit in located:
        paths = added.setdefault(origin_id(hit), {}).setdefault(reveal(hit.hit.secret), {})
        paths[hit.file_path or b""] = hit.first_blob
    for commit, files in deleted.items():
        for value, blobs in added.get(commit, {}).items():
            deleted_paths = old.get(value, set()) & files.keys()
            deleted_blobs = {files[path] for path in deleted_paths}
            candidates = sorted(blobs, key=lambda path: (blobs[path] not in deleted_blobs, path))
            old.setdefault(value, set()).update(candidates[: len(deleted_paths)])
    return drop_old_values(located, old)


def origin_id(hit: LocatedHit) -> bytes:
    """Return the hexadecimal id of the commit that a hit is attributed to; b"" if there is none."""
    return hit.origin.commit.encode() if hit.origin else b""
