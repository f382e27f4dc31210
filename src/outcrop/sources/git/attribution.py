"""Find the oldest commit that has a blob at a path.

1. The commits, oldest first, are split into chunks; threads run `git diff-tree` on each (`_list_changes`).
2. Of each change, only wanted blobs are kept. Per blob and path the commit with the lowest rank wins.
3. git ends at a damaged tree. The damaged commit is then found by running git on single commits.
4. Messages, and blobs that only a tag or another ref names, are added by `attribute_messages`.
"""

import os
import subprocess
import threading
from binascii import unhexlify
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from typing import IO, Any

from outcrop.domain.place import COMMIT_MESSAGE, TAG_MESSAGE
from outcrop.limits import TREE_LIST_BYTES
from outcrop.sources.fork_pool import Emit, run_in_threads
from outcrop.sources.git import command
from outcrop.sources.git.cat_file import look_up
from outcrop.sources.git.repository import Repository
from outcrop.sources.git.revisions import MISSING_COMMITS, RefTips

_CHUNK_COMMITS = 2_000  # per diff-tree process
_MAX_PROCESSES = 4  # diff-tree processes that share `SourceLimits.diff_memory`
_SUBMODULE_MODE = b"160000"
_ABSENT_MODE = b"000000"  # the new mode of a deleted file
_MAX_LISTED_TIPS = 10  # whose files are listed if the attribution was cut short
_UNKNOWN_RANK = 1 << 62  # of a tip: any commit of the history is older
_READ_BYTES = 1 << 18  # of git's output at a time
_DAMAGED_TREES = "the trees of a commit are missing, damaged or too large: some of its changes are not known"
READ_GAPS = {MISSING_COMMITS, _DAMAGED_TREES}
_DIFF_TREE = [
    "diff-tree",
    "--stdin",
    "-r",
    "-c",
    "--root",
    "--raw",
    "-z",
    "--no-renames",
    "--no-abbrev",
    "--no-textconv",
    "--no-ext-diff",
]

CommitRank = tuple[int, bytes]  # number of a commit in the walk (oldest first), and its id
Places = dict[bytes, dict[bytes, CommitRank]]  # blob -> path -> the oldest commit that has the blob there
_Change = tuple[bytes, bytes, int, bytes]  # blob, path, rank of the commit, commit


class AllBlobs:
    """A container that has every blob: `oid in container` is always True."""

    def __contains__(self, _: object) -> bool:
        return True


class WantedOrMissing:
    """A container of the wanted blobs, and of all blobs that do not exist in the repository.

    `wanted` has hexadecimal ids, `existing` has the binary ids of all objects of the repository.
    """

    def __init__(self, wanted: Container[bytes], existing: Container[bytes]) -> None:
        self._wanted = wanted
        self._existing = existing  # binary ids

    def __contains__(self, oid: Any) -> bool:
        return oid in self._wanted or unhexlify(oid) not in self._existing


def attribute_blobs(
    repository: Repository,
    commits: Sequence[bytes],
    wanted: Container[bytes],
    jobs: int,
    gaps: list[str],
    *,
    max_paths: int | None = None,
) -> Places:
    """Return the paths of each wanted blob and, for each path, the oldest commit that has the blob there.

    `commits` are sorted parents first: the index of a commit is its rank. They are read in chunks by up to
    `jobs` threads. A blob that no commit introduces is not in the result. Of a blob with more than
    `max_paths` paths only the oldest paths are kept; None is no limit. A text for each problem, also for such
    a blob, is appended to `gaps`.
    """
    starts = range(0, len(commits), _CHUNK_COMMITS)
    processes = max(1, min(jobs, len(starts), _MAX_PROCESSES))
    budget, cuts = repository.budget, repository.budget.cuts
    chunks = ((start, list(commits[start : start + _CHUNK_COMMITS])) for start in starts)

    def list_changes(chunks: Iterator[tuple[int, list[bytes]]], emit: Emit) -> None:
        """Emit a list of changes for each chunk, which is (rank of its first commit, commits), and gaps."""
        for start, chunk in chunks:
            if budget.cuts > cuts:
                return
            emit(_list_changes(repository, chunk, start, wanted, emit, processes))
            budget.explain(commits=len(chunk))

    places: Places = {}
    shared_paths: dict[bytes, bytes] = {}  # one bytes object per path: thousands of blobs have the same path
    for result in run_in_threads(chunks, list_changes, min(processes, len(starts))):
        if isinstance(result, str):
            gaps.append(result)
            continue
        for oid, path, rank, commit in result:
            paths = places.setdefault(oid, {})
            if path not in paths or rank < paths[path][0]:
                paths[shared_paths.setdefault(path, path)] = (rank, commit)
    if max_paths is not None:
        _limit_paths(places, max_paths, gaps)
    return places


def _limit_paths(places: Places, max_paths: int, gaps: list[str]) -> None:
    """Drop all but the oldest `max_paths` paths of each blob in `places`; append a gap for each such blob."""
    for oid, paths in places.items():
        if len(paths) > max_paths:
            gaps.append(f"a file is at more than {max_paths:,} paths: only the oldest are reported")
            places[oid] = dict(sorted(paths.items(), key=lambda item: (item[1][0], item[0]))[:max_paths])


def list_deleted_files(repository: Repository, commits: Sequence[bytes]) -> dict[bytes, dict[bytes, bytes]]:
    """Return commit -> path -> blob of the files that each of the commits deletes.

    The blob is that of the first parent. A commit that deletes nothing is not in the result. git stops at a
    commit with a damaged tree: the commits after it are left out.
    """
    deleted: dict[bytes, dict[bytes, bytes]] = {}
    diff = _TreeDiff(repository, commits)
    for fields, path in diff.read_changes("--diff-filter=D"):
        if _new_id(fields) is None:
            deleted.setdefault(diff.last_commit, {})[path] = _old_id(fields)
    return deleted


def _list_changes(  # noqa: PLR0917 - the chunk, and what it is compared with
    repository: Repository,
    chunk: list[bytes],
    start: int,
    wanted: Container[bytes],
    emit: Emit,
    processes: int,
) -> list[_Change]:
    """Return the changes of a chunk of commits that introduce blobs in `wanted`.

    `start` is the rank of the first commit of the chunk. git ends at a damaged tree. Then the commits whose
    tree is missing are dropped, and each further commit has a process of its own until the damaged one is
    found: all wanted files of that commit count as changes. For both, a gap is emitted. `processes` run at
    the same time. When the budget is cut short, the other commits are left out.
    """
    cuts = repository.budget.cuts
    ranks = {oid: start + number for number, oid in enumerate(chunk)}
    changes: list[_Change] = []
    remaining, are_trees_checked = chunk, False
    while remaining:
        diff = _TreeDiff(repository, remaining, processes)
        changes += diff.list_introduced(ranks, wanted)
        if diff.is_complete or repository.budget.cuts > cuts:
            break
        if diff.last_commit:
            remaining = remaining[remaining.index(diff.last_commit) :]
        if not are_trees_checked:
            remaining, are_trees_checked = _drop_without_tree(repository, remaining, emit), True
        commits = iter(remaining)
        for commit in commits:
            single = _TreeDiff(repository, [commit], processes)
            changes += single.list_introduced(ranks, wanted)
            repository.budget.explain(commits=1)
            if repository.budget.cuts > cuts:
                return changes
            if not single.is_complete:
                emit(_DAMAGED_TREES)
                files = list_files(repository, commit)
                changes += [(blob, path, ranks[commit], commit) for blob, path in files if blob in wanted]
                break
        remaining = list(commits)
    return changes


def _drop_without_tree(repository: Repository, commits: list[bytes], emit: Emit) -> list[bytes]:
    """Return those of the commits whose tree exists; emit one gap if a tree is missing.

    In some partial clones nearly all trees are missing.
    """
    trees = look_up(repository, [oid + b"^{tree}" for oid in commits])
    if None in trees:
        emit(_DAMAGED_TREES)
    return [oid for oid, tree in zip(commits, trees, strict=True) if tree]


def list_files(repository: Repository, tree: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield blob and path of each file in a tree; `tree` is the id of a tree or commit.

    Submodules are left out. Only the first TREE_LIST_BYTES of git's output are read. If git fails, the files
    that it has listed until then are yielded.
    """
    with command.start(
        repository.folder, ["ls-tree", "-r", "-z", "--full-tree", os.fsdecode(tree)]
    ) as process:
        assert process.stdout is not None  # noqa: S101 - for the type checker
        out = process.stdout.read(TREE_LIST_BYTES)
        process.kill()
    for entry in out.split(b"\0")[:-1]:
        fields, _, path = entry.partition(b"\t")
        if not fields.startswith(_SUBMODULE_MODE):
            yield fields.split(b" ")[2], path


class _TreeDiff:
    """A `git diff-tree` process that compares commits with their parents.

    `processes` of them run at the same time and share the memory.
    """

    def __init__(self, repository: Repository, commits: Sequence[bytes], processes: int = 1) -> None:
        # git holds all changes of a commit, and a small tree can expand to billions of files.
        self._memory = repository.budget.limits.diff_memory // processes
        self._repository = repository
        self._commits = commits
        self.is_complete = False  # git has read all commits
        self.last_commit = b""  # the commit whose changes are being read

    def list_introduced(self, ranks: dict[bytes, int], wanted: Container[bytes]) -> list[_Change]:
        """Return the changes that put a blob in `wanted` at a path; set `is_complete` as `read_changes` does.

        `ranks` has the rank of each commit.
        """
        return [
            (oid, path, ranks[self.last_commit], self.last_commit)
            for fields, path in self.read_changes()
            if (oid := _new_id(fields)) is not None and oid in wanted
        ]

    def read_changes(self, *options: str) -> Iterator[tuple[bytes, bytes]]:
        """Run `git diff-tree` with these additional options; yield the fields and the path of each change.

        The fields are the text that `_new_id` describes. While a change is yielded, `last_commit` is its
        commit. At the end `is_complete` is set to whether git has read all commits.
        """
        with command.start(
            self._repository.folder, [*_DIFF_TREE, *options], stdin=subprocess.PIPE, memory=self._memory
        ) as process:
            assert process.stdout is not None  # noqa: S101 - for the type checker
            feeder = threading.Thread(target=_write_ids, args=(process, self._commits), daemon=True)
            feeder.start()
            for fields, path in parse_raw_diff(_split_at_nul(process.stdout)):
                if path is None:
                    self.last_commit = fields
                else:
                    yield fields, path
            process.wait()
            feeder.join()
        self.is_complete = process.returncode == 0


def _write_ids(process: "subprocess.Popen[bytes]", oids: Sequence[bytes]) -> None:
    """Write ids to the input of a process, one per line, and close the input.

    Return without an error if the process ends before that.
    """
    assert process.stdin is not None  # noqa: S101 - for the type checker
    try:
        process.stdin.write(b"".join(oid + b"\n" for oid in oids))
        process.stdin.close()
    except (BrokenPipeError, OSError):
        return


def _split_at_nul(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the parts of a stream that end with NUL; bytes after the last NUL are dropped.

    The stream is read in pieces of _READ_BYTES: the output of git may be larger than the memory.
    """
    incomplete = b""
    while piece := stream.read(_READ_BYTES):
        *parts, incomplete = (incomplete + piece).split(b"\0")
        yield from parts


def parse_raw_diff(parts: Iterable[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
    """Parse the output of `git diff-tree --raw -z` or `git diff-index --raw -z`, which was split at NUL.

    Yield (commit, None) where the changes of a commit begin, and (fields, path) for each change. The fields
    are `:modes… ids… status`.
    """
    parts = iter(parts)
    for part in parts:
        if part.startswith(b":"):
            yield part, next(parts, b"")
        elif part:
            yield part.strip(), None


def parse_index_change(fields: bytes) -> tuple[bytes | None, bytes | None, bool]:
    """Return (old blob, new blob, whether the file is deleted) of a change of `git diff-index`.

    `fields` is `:old_mode new_mode old_id new_id status`. The old blob is None if the file did not exist, and
    the commit if it was a submodule. The new blob is None if the file is deleted or is a submodule.
    """
    _, mode, old, new, status = fields.split(b" ")
    has_new = new.strip(b"0") and mode != _SUBMODULE_MODE
    return old if old.strip(b"0") else None, new if has_new else None, status == b"D"


def _new_id(fields: bytes) -> bytes | None:
    """Return the id of the blob after a change; None for a submodule or a deleted file.

    `fields` is `:modes… ids… status` of `git diff-tree -c`, with one colon, one old mode and one old id per
    parent.
    """
    parents = len(fields) - len(fields.lstrip(b":"))
    parts = fields.split(b" ")
    return None if parts[parents] in {_SUBMODULE_MODE, _ABSENT_MODE} else parts[2 * parents + 1]


def _old_id(fields: bytes) -> bytes:
    """Return the id that the file had in the first parent before a change; zeros if the file did not exist.

    `fields` is as in `_new_id`.
    """
    parents = len(fields) - len(fields.lstrip(b":"))
    return fields.split(b" ")[parents + 1]


def place_at_tips(
    repository: Repository, tips: Sequence[bytes], wanted: Collection[bytes], places: Places
) -> None:
    """Add to `places` the blobs of `wanted` that it lacks and that are files of HEAD or of the first tips.

    This is for an attribution that was cut short: the commit is then that tip, and not the oldest one.
    """
    remaining = {oid for oid in wanted if oid not in places}
    commits = [repository.head] if repository.head else []
    for tip in [*commits, *(tip for tip in tips if tip != repository.head)][:_MAX_LISTED_TIPS]:
        for oid, path in list_files(repository, tip):
            if oid in remaining:
                places.setdefault(oid, {}).setdefault(path, (_UNKNOWN_RANK, tip))


def attribute_messages(
    repository: Repository, tips: RefTips, commits: Sequence[bytes], wanted: Collection[bytes], places: Places
) -> None:
    """Add to `places` the objects of `wanted` that it lacks: messages, and files that only a ref or tag has.

    A message has the path COMMIT_MESSAGE or TAG_MESSAGE. A blob that a ref names has the name of the ref as
    its path; a file of a tree in `tips` has its path in that tree. `commits` are sorted parents first: the
    index of a commit is its rank. Tags and files rank after all commits. The commit of a file is b"", and
    that of a tag is b"" if the tag does not lead to a commit in `tips`. An object that is none of these is
    not added.
    """
    remaining = {oid for oid in wanted if oid not in places}
    last_rank = len(commits)
    if not remaining:
        return
    places.update(
        (oid, {COMMIT_MESSAGE: (rank, oid)}) for rank, oid in enumerate(commits) if oid in remaining
    )
    places.update(
        (tag, {TAG_MESSAGE: (last_rank, target if target in tips.commits else b"")})
        for tag, target in tips.tags.items()
        if tag in remaining
    )
    places.update((oid, {name: (last_rank, b"")}) for oid, name in tips.blobs.items() if oid in remaining)
    for tree in tips.trees:
        for oid, path in list_files(repository, tree):
            if oid in remaining:
                places.setdefault(oid, {})[path] = (last_rank, b"")
