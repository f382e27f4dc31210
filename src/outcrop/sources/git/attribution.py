"""Which commit brought a blob to a path first: one pass over the commits, oldest first, that looks at the given blobs only."""

import os
import subprocess
import threading
from binascii import unhexlify
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from typing import IO

from outcrop.sources.fork_pool import Emit, run_in_threads
from outcrop.sources.git import command
from outcrop.sources.git.commit_headers import parents_of
from outcrop.sources.git.id_sets import IdList
from outcrop.sources.git.objects import whole
from outcrop.sources.git.repository import Repository

_CHUNK = 2_000  # commits
_MOST_RESTARTS = 1_000
_MOST_TIPS = 1_000  # whose files are looked for
SUBMODULE = b"160000"  # the mode of an entry that names a commit elsewhere
_ABSENT = b"000000"  # of one that is no longer there
_DIFF_MEMORY = 3 << 29  # git holds all changes of a commit: a small tree can unfold to billions of files
_MOST_STANDING = 16 << 20  # bytes of a list of what stands in a commit
_MOST_PATHS = 1_000  # of one blob
_PIECE = 1 << 18  # bytes of what git says of changes that are held
_LOST = "some commits are missing or damaged: their history is not followed"
_UNKNOWN = "the trees of a commit are missing, damaged or too large: what it changed is not wholly known"
UNREAD = {_LOST, _UNKNOWN}
_DIFF = [
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


# blob → path → the rank and id of the oldest commit that has it there
Places = dict[bytes, dict[bytes, tuple[int, bytes]]]


def commits(
    repository: Repository, tips: Sequence[bytes], gaps: list[str], *, since: bytes | None = None
) -> Sequence[bytes]:
    """Give the commits that these reach, parents before children."""
    limits = [*tips, *([b"^" + since] if since else [])]
    if not tips:
        return []
    given = b"".join(limit + b"\n" for limit in limits)
    base = ["rev-list", "--topo-order", "--reverse", "--stdin"]
    code, out = command.run(repository.folder, *base, stdin_data=given)
    if code:
        gaps.append(_LOST)
        code, out = command.run(repository.folder, *base, "--ignore-missing-links", stdin_data=given)
    return IdList(out) if code == 0 else _walked(repository, list(tips), since)


def missing(
    repository: Repository,
    tips: Sequence[bytes],
    gaps: list[str],
    *,
    lost: Collection[bytes] | None = None,
    newest: int | None = None,
) -> None:
    """Tell where what a tip or a commit names is not there.

    `lost` is what of all that commits have brought is not there, if that is known; else it is looked for, behind the newest commits or all.
    """
    at_tips = _lost(repository, tips[:_MOST_TIPS], "--no-walk")
    if at_tips:
        gaps.append(f"{len(at_tips)} objects that the tips of refs name are missing")
    before = (
        _lost(repository, tips, *([f"--max-count={newest}"] if newest else [])) if lost is None else set(lost)
    )
    if before - at_tips:
        gaps.append(f"{len(before - at_tips)} objects that commits before the tips name are missing")


def _lost(repository: Repository, tips: Sequence[bytes], *walk: str) -> set[bytes]:
    """Give the objects that a walk over commits and what they name has not found."""
    given = b"".join(tip + b"\n" for tip in tips)
    arguments = ["rev-list", "--objects", *walk, "--missing=print", "--quiet", "--stdin"]
    _, out = command.run(repository.folder, *arguments, stdin_data=given) if given else (0, b"")
    return {line[1:] for line in out.split() if line.startswith(b"?")}


def _walked(repository: Repository, tips: list[bytes], since: bytes | None) -> list[bytes]:
    """Walk the commits ourselves where git gives up: what can be read is followed, as far as one that is known already."""
    arguments = [
        "cat-file",
        "--batch-all-objects",
        "--batch-check=%(objecttype) %(objectname)",
        "--unordered",
    ]
    _, out = command.run(repository.folder, *arguments)
    there = [line[7:] for line in out.split(b"\n") if line.startswith(b"commit ")]
    given = whole(
        repository, [*there, *tips]
    )  # all in one go: asked generation by generation, a long history would take minutes
    parents = {oid: parents_of(content) for oid, content in given}
    known = _reached(parents, [since], set()) if since else []
    return _reached(parents, tips, set(known))


def _reached(parents: dict[bytes, list[bytes]], tips: list[bytes], done: set[bytes]) -> list[bytes]:
    """Give what these reach and what is not done yet, parents before children."""
    order: list[bytes] = []
    for tip in tips:
        stack = [(tip, False)]
        while stack:
            oid, after = stack.pop()
            if after:
                order.append(oid)
            elif oid not in done:
                done.add(oid)
                stack.append((oid, True))
                stack += [(parent, False) for parent in parents.get(oid, [])]
    return order


def place(
    repository: Repository, order: Sequence[bytes], blobs: Collection[bytes], jobs: int, gaps: list[str]
) -> Places:
    """Find for each blob the paths it stood at, each with the rank and id of the oldest commit."""
    found: Places = {}
    if not blobs or not order:
        return found
    starts = range(0, len(order), _CHUNK)
    chunks = ((start, list(order[start : start + _CHUNK])) for start in starts)
    work = _placing(repository, blobs)
    names: dict[bytes, bytes] = {}  # thousands of versions of a file stand at one path
    for told in run_in_threads(chunks, work, min(jobs, len(starts))):
        if isinstance(told, str):
            gaps.append(told)
            continue
        for oid, path, rank, commit in told:
            paths = found.setdefault(oid, {})
            if path not in paths or rank < paths[path][0]:
                paths[names.setdefault(path, path)] = (rank, commit)
    for oid, paths in found.items():
        if len(paths) > _MOST_PATHS and not isinstance(blobs, _Everything):
            gaps.append(f"a file stands at more than {_MOST_PATHS:,} paths: only the oldest are told")
            found[oid] = dict(sorted(paths.items(), key=lambda item: (item[1][0], item[0]))[:_MOST_PATHS])
    return found


def changed(repository: Repository, order: Sequence[bytes], jobs: int, gaps: list[str]) -> Places:
    """Give every blob that these commits brought, placed."""
    return place(repository, order, _Everything(), jobs, gaps)


def removed(repository: Repository, order: Sequence[bytes]) -> dict[bytes, dict[bytes, bytes]]:
    """Give what each of these commits took away: the path, and what stood there. git ends at a damaged tree, and tells no more."""
    found: dict[bytes, dict[bytes, bytes]] = {}
    run = _Diff(repository, order)
    for fields, path in run.told("--diff-filter=D"):
        if _new_id(fields) is None:
            found.setdefault(run.last, {})[path] = _old_id(fields)
    return found


def place_and_miss(
    repository: Repository,
    order: Sequence[bytes],
    blobs: Collection[bytes],
    jobs: int,
    gaps: list[str],
    *,
    there: Container[bytes],
) -> tuple[Places, set[bytes]]:
    """Find the paths of blobs, and on the same way what these commits have brought that is not there; what is, is told by ids in binary."""
    found = place(repository, order, _OrMissing(blobs, there), jobs, gaps) if blobs else {}
    lost = found.keys() - blobs
    return {oid: paths for oid, paths in found.items() if oid not in lost}, lost


class _OrMissing(set[bytes]):
    """Some blobs, and all that are not there."""

    def __init__(self, blobs: Iterable[bytes], there: Container[bytes]) -> None:
        super().__init__(blobs)
        self._there = there

    def __contains__(self, oid: object) -> bool:
        return set.__contains__(self, oid) or (isinstance(oid, bytes) and unhexlify(oid) not in self._there)


class _Everything(set[bytes]):
    """The set of all blobs."""

    def __contains__(self, _: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True


Change = tuple[bytes, bytes, int, bytes]  # blob, path, rank of the commit, commit


def _placing(
    repository: Repository, blobs: Container[bytes]
) -> Callable[[Iterator[tuple[int, list[bytes]]], Emit], None]:
    def work(chunks: Iterator[tuple[int, list[bytes]]], emit: Emit) -> None:
        for start, chunk in chunks:
            emit(list(_changes(repository, chunk, start, blobs, emit)))

    return work


def _changes(
    repository: Repository, chunk: list[bytes], start: int, blobs: Container[bytes], emit: Emit
) -> Iterator[Change]:
    """Give what a chunk of commits did to the blobs. git ends at a damaged tree: it is looked for one by one, and left out."""
    ranks = {oid: start + number for number, oid in enumerate(chunk)}
    left, looked = chunk, False
    while left:
        run = _Diff(repository, left)
        yield from run.changes(ranks, blobs)
        if run.whole:
            return
        left = left[left.index(run.last) :] if run.last else left
        if not looked:
            left, looked = _with_trees(repository, left, emit), True
        rest = iter(left)
        for oid in rest:
            single = _Diff(repository, [oid])
            yield from single.changes(ranks, blobs)
            if not single.whole:
                emit(_UNKNOWN)
                yield from (
                    (blob, path, ranks[oid], oid) for blob, path in standing(repository, oid) if blob in blobs
                )
                break
        left = list(rest)


def _with_trees(repository: Repository, oids: list[bytes], emit: Emit) -> list[bytes]:
    """Leave out at once the commits whose tree is not there: in some partial clones that is nearly all of them."""
    trees = answers(repository, [oid + b"^{tree}" for oid in oids])
    if None in trees:
        emit(_UNKNOWN)
    return [oid for oid, tree in zip(oids, trees, strict=True) if tree]


def standing(repository: Repository, tree: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Give the files that stand in a tree or a commit, each with its path, as far as they can be read."""
    with command.start(
        repository.folder, ["ls-tree", "-r", "-z", "--full-tree", os.fsdecode(tree)]
    ) as process:
        assert process.stdout is not None  # noqa: S101 - for the type checker
        out = process.stdout.read(_MOST_STANDING)
        process.kill()
    for entry in out.split(b"\0")[:-1]:
        fields, _, path = entry.partition(b"\t")
        if not fields.startswith(SUBMODULE):
            yield fields.split(b" ")[2], path


class _Diff:
    """One `git diff-tree` over some commits: whether it came to its end, and the last commit it told of."""

    def __init__(self, repository: Repository, oids: Sequence[bytes]) -> None:
        self._repository = repository
        self._oids = oids
        self.whole = False
        self.last = b""

    def changes(self, ranks: dict[bytes, int], blobs: Container[bytes]) -> Iterator[Change]:
        for fields, path in self.told():
            if (oid := _new_id(fields)) in blobs and oid is not None:
                yield oid, path, ranks[self.last], self.last

    def told(self, *options: str) -> Iterator[tuple[bytes, bytes]]:
        """Give the fields of each change and its path."""
        with command.start(
            self._repository.folder, [*_DIFF, *options], stdin=subprocess.PIPE, memory=_DIFF_MEMORY
        ) as process:
            assert process.stdout is not None  # noqa: S101 - for the type checker
            feeder = threading.Thread(target=_give, args=(process, self._oids), daemon=True)
            feeder.start()
            for fields, path in records(_parts(process.stdout)):
                if path is None:
                    self.last = fields
                else:
                    yield fields, path
            process.wait()
            feeder.join()
        self.whole = process.returncode == 0


def _give(process: "subprocess.Popen[bytes]", oids: Sequence[bytes]) -> None:
    assert process.stdin is not None  # noqa: S101 - for the type checker
    try:
        process.stdin.write(b"".join(oid + b"\n" for oid in oids))
        process.stdin.close()
    except (BrokenPipeError, OSError):
        return


def _parts(stream: IO[bytes]) -> Iterator[bytes]:
    """Give what git ends with zeros, as it comes: thousands of commits have changed more than should be held."""
    cut = b""
    while piece := stream.read(_PIECE):
        *parts, cut = (cut + piece).split(b"\0")
        yield from parts


def records(parts: Iterator[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
    """Read `diff-tree -z`: a commit id alone, or the fields of a change and its path."""
    for part in parts:
        if part.startswith(b":"):
            yield part, next(parts, b"")
        elif part:
            yield part.strip(), None


def _new_id(fields: bytes) -> bytes | None:
    """Give the blob after the change: `:modes… ids… status`, with one colon and one old id per parent; None for a submodule, or nothing."""
    count = len(fields) - len(fields.lstrip(b":"))
    parts = fields.split(b" ")
    return None if parts[count] in {SUBMODULE, _ABSENT} else parts[2 * count + 1]


def _old_id(fields: bytes) -> bytes:
    """Give the blob before the change, of the first parent."""
    count = len(fields) - len(fields.lstrip(b":"))
    return fields.split(b" ")[count + 1]


def at_tip(repository: Repository, places: dict[bytes, set[bytes]]) -> set[tuple[bytes, bytes]]:
    """Tell which (path, blob) stand at the tip of the default branch."""
    if repository.head is None:
        return set()
    paths = list(places)
    found = zip(paths, ids_at(repository, repository.head, paths), strict=True)
    return {(path, oid) for path, oid in found if oid in places[path]}


def ids_at(repository: Repository, commit: bytes, paths: list[bytes]) -> list[bytes | None]:
    """Give what stands at each path in a commit, None where nothing does."""
    return answers(repository, [commit + b":" + path for path in paths])


def present(repository: Repository, oids: Sequence[bytes]) -> set[bytes]:
    """Tell which of these objects are there."""
    return {oid for oid in answers(repository, list(oids)) if oid} if oids else set()


def new_blobs(repository: Repository, tips: Sequence[bytes], old: Sequence[bytes]) -> list[bytes] | None:
    """Give the blobs that the tips reach and the old ones do not; None where the walk meets something missing."""
    given = b"".join(b"%s\n" % tip for tip in [*tips, *(b"^" + tip for tip in old)])
    arguments = [
        "rev-list",
        "--objects",
        "--no-object-names",
        "--filter=object:type=blob",
        "--filter-provided-objects",
        "--stdin",
    ]
    code, out = command.run(repository.folder, *arguments, stdin_data=given)
    return None if code else out.split()


def new_commits(
    repository: Repository, tips: Sequence[bytes], old: Sequence[bytes]
) -> Sequence[bytes] | None:
    """Give the commits that the tips reach and the old ones do not; None where the walk meets something missing."""
    given = b"".join(b"%s\n" % tip for tip in [*tips, *(b"^" + tip for tip in old)])
    code, out = command.run(
        repository.folder, "rev-list", "--topo-order", "--reverse", "--stdin", stdin_data=given
    )
    return None if code else IdList(out)


def blobs_at(repository: Repository, tips: Sequence[bytes], path: bytes) -> list[bytes] | None:
    """Give every blob that the tips reach at a path; None where git does not say."""
    given = b"".join(b"%s\n" % tip for tip in tips)
    arguments = [
        "--literal-pathspecs",
        "rev-list",
        "--objects",
        "--full-history",
        "--filter=object:type=blob",
        "--no-object-names",
        "--stdin",
        "--",
        os.fsdecode(path),  # not among what is given: there a line break would end it
    ]
    code, out = command.run(repository.folder, *arguments, stdin_data=given)
    return [oid for oid in out.split() if oid not in set(tips)] if code == 0 else None


def answers(repository: Repository, names: list[bytes], told: str = "%(objectname)") -> list[bytes | None]:
    """Give what git tells of the objects that names stand for. It ends at a damaged one and at some odd paths: those are passed over."""
    found: list[bytes | None] = []
    for _ in range(_MOST_RESTARTS if names else 0):
        given = b"".join(name + b"\0" for name in names[len(found) :])
        code, out = command.run(
            repository.folder, "cat-file", "-z", f"--batch-check={told}", stdin_data=given
        )
        found += _answers(out, names[len(found) :])
        if code == 0 or len(found) >= len(names):
            break
        found.append(None)
    return [*found, *[None] * (len(names) - len(found))]


def _answers(out: bytes, names: list[bytes]) -> Iterator[bytes | None]:
    """Read one answer per name, as far as they go."""
    at = 0
    for name in names:
        absent = name + b" missing\n"  # a path may itself hold line breaks
        stop = at + len(absent) - 1 if out.startswith(absent, at) else out.find(b"\n", at)
        if stop < 0:
            return
        yield None if out.startswith(absent, at) else out[at:stop]
        at = stop + 1
