"""Resolve refs and revisions, and list the commits and blobs that they reach.

Where git gives up because objects are missing or damaged, the walk continues without them, and the gap is
noted.
"""

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from outcrop.domain.errors import OperatorError
from outcrop.limits import CHECKED_TIPS, TAG_DEPTH
from outcrop.sources.git import command
from outcrop.sources.git.cat_file import look_up, read_headers
from outcrop.sources.git.id_sets import IdList
from outcrop.sources.git.ref_files import OID
from outcrop.sources.git.repository import Repository
from outcrop.sources.located import printable_path

MISSING_COMMITS = "some commits are missing or damaged: their history is not followed"
_COMMIT, _TAG, _TREE, _BLOB = b"commit", b"tag", b"tree", b"blob"


@dataclass(frozen=True, slots=True)
class RefTips:
    """The objects that the refs of a repository lead to, each once. Annotated tags are peeled."""

    commits: list[bytes] = field(default_factory=list)
    tags: dict[bytes, bytes] = field(default_factory=dict)  # annotated tag -> the object that it leads to
    trees: list[bytes] = field(default_factory=list)
    blobs: dict[bytes, bytes] = field(default_factory=dict)  # blob -> the name of its ref

    @property
    def objects(self) -> list[bytes]:
        """The ids of all commits, trees and blobs, without the tags: from these every file is reachable."""
        return [*self.commits, *self.trees, *self.blobs]


def find_tips(repository: Repository, gaps: list[str]) -> RefTips:
    """Return the commits, trees and blobs that the refs and HEAD lead to, and the annotated tags before them.

    The name of a blob is the first in sorting order of its refs. Refs to missing objects are left out, and
    one gap with their number is appended to `gaps`.
    """
    types = _find_types(repository, repository.tips)
    tag_targets = _read_tags(repository, types)
    peeled = {tip: _peel(tip, tag_targets) for tip in repository.tips}
    if missing := sum(types.get(oid) not in {_COMMIT, _TREE, _BLOB} for oid in peeled.values()):
        gaps.append(f"{missing} refs point at objects that are missing")
    tips = dict.fromkeys(peeled.values())
    names = {peeled[oid]: name for name, oid in sorted(repository.refs.items(), reverse=True)}
    return RefTips(
        commits=[oid for oid in tips if types.get(oid) == _COMMIT],
        tags={tag: _peel(tag, tag_targets) for tag in tag_targets},
        trees=[oid for oid in tips if types.get(oid) == _TREE],
        blobs={oid: names[oid] for oid in tips if types.get(oid) == _BLOB and oid in names},
    )


def _read_tags(repository: Repository, types: dict[bytes, bytes | None]) -> dict[bytes, bytes | None]:
    """Return the target of each annotated tag in `types`, and of the tags that these tags point at.

    `types` maps object ids to types; the types of all targets are added to `types`. The target of a tag that
    cannot be read is None. Behind TAG_DEPTH tags of tags, git peels the rest at once.
    """
    targets: dict[bytes, bytes | None] = {}
    for depth in range(TAG_DEPTH + 1):
        tags = [oid for oid, object_type in types.items() if object_type == _TAG and oid not in targets]
        if not tags:
            break
        if depth < TAG_DEPTH:
            targets |= {
                tag: next(iter(_header_ids(header, b"object ")), None)
                for tag, header in read_headers(repository, tags)
            }
        else:
            targets |= zip(tags, look_up(repository, [tag + b"^{}" for tag in tags]), strict=True)
        types |= _find_types(
            repository, {target for tag in tags if (target := targets[tag]) and target not in types}
        )
    return targets


def _header_ids(header: list[bytes], field_name: bytes) -> list[bytes]:
    """Return the object ids in the header lines that begin with `field_name`, such as b"parent "."""
    values = [line[len(field_name) :] for line in header if line.startswith(field_name)]
    return [value for value in values if OID.fullmatch(value)]


def _find_types(repository: Repository, oids: Collection[bytes]) -> dict[bytes, bytes | None]:
    """Return id -> type, such as b"commit", for each of the ids; the type of a missing object is None."""
    ordered = sorted(oids)
    return dict(zip(ordered, look_up(repository, ordered, "%(objecttype)"), strict=True))


def _peel(oid: bytes, tag_targets: dict[bytes, bytes | None]) -> bytes:
    """Return the first object that is not an annotated tag, following tags from the object `oid`.

    `tag_targets` maps each tag to its target. `oid` itself is returned if it is not a tag; a tag whose target
    is None is returned instead of its target.
    """
    while target := tag_targets.get(oid):
        oid = target
    return oid


def resolve_revision(repository: Repository, revision: str, option: str = "--since") -> bytes:
    """Return the id of the commit that a revision names.

    The revision is a ref, HEAD or the first digits of an id, also with `~` or `^`. `refs/`, `refs/tags/` and
    so on may be omitted. Raise OperatorError if there is no such commit; its text names the option.
    """
    raw = os.fsencode(revision)
    names = [raw, *(prefix + raw for prefix in (b"refs/", b"refs/tags/", b"refs/heads/", b"refs/remotes/"))]
    names.append(b"refs/remotes/" + raw + b"/HEAD")
    found = next((repository.refs[name] for name in names if name in repository.refs), None)
    base, _, suffix = revision.partition("~") if "~" in revision else revision.partition("^")
    if found is None and revision in {"HEAD", "@"}:
        found = repository.head
    elif found is None and (suffix or base != revision):
        found = resolve_revision(repository, base, option) + os.fsencode(revision[len(base) :])
    elif found is None and re.fullmatch("[0-9a-fA-F]{4,64}", revision):
        found = raw
    arguments = ["rev-parse", "--verify", "--quiet", "--end-of-options"]
    code, out = (
        command.run(repository.folder, *arguments, os.fsdecode(found) + "^{commit}") if found else (1, b"")
    )
    if code or not OID.fullmatch(out.strip()):
        raise OperatorError(f"{option} {printable_path(os.fsencode(revision))}: there is no such revision")
    return out.strip()


def list_commits(
    repository: Repository, tips: Sequence[bytes], gaps: list[str], *, excluded: Sequence[bytes] = ()
) -> Sequence[bytes]:
    """Return the ids of the commits reachable from `tips` but not from `excluded`, parents before children.

    If a commit is missing or damaged, append a gap to `gaps` and list the others; the id of the missing
    commit itself may be in the result.
    """
    if not tips:
        return []
    rev_list = ["rev-list", "--topo-order", "--reverse", "--stdin"]
    stdin_data = _stdin_lines(tips, excluded)
    code, out = command.run(repository.folder, *rev_list, stdin_data=stdin_data)
    if code:
        gaps.append(MISSING_COMMITS)
        code, out = command.run(repository.folder, *rev_list, "--ignore-missing-links", stdin_data=stdin_data)
    return IdList(out) if code == 0 else _walk_commits(repository, list(tips), excluded)


def _stdin_lines(tips: Sequence[bytes], excluded: Sequence[bytes] = ()) -> bytes:
    """Return the input of `git rev-list --stdin`: a line per tip, and `^` before each excluded commit."""
    return b"".join(b"%s\n" % tip for tip in [*tips, *(b"^" + oid for oid in excluded)])


def _walk_commits(repository: Repository, tips: list[bytes], excluded: Sequence[bytes]) -> list[bytes]:
    """Return what `list_commits` returns, without rev-list: follow the parents of each commit.

    All commits of the repository are read. A commit that cannot be read is in the result but leads no
    further.
    """
    arguments = [
        "cat-file",
        "--batch-all-objects",
        "--batch-check=%(objecttype) %(objectname)",
        "--unordered",
    ]
    _, out = command.run(repository.folder, *arguments)
    commits = [line[7:] for line in out.split(b"\n") if line.startswith(b"commit ")]
    # All commits are read at once: one git process per generation would take minutes in a long history.
    parents = {
        oid: _header_ids(header, b"parent ") for oid, header in read_headers(repository, [*commits, *tips])
    }
    return _sort_reachable(parents, tips, set(_sort_reachable(parents, list(excluded), set())))


def _sort_reachable(parents: dict[bytes, list[bytes]], tips: list[bytes], done: set[bytes]) -> list[bytes]:
    """Return the commits reachable from `tips` that are not in `done`, parents before children.

    `parents` maps each readable commit to its parents; another commit counts as one without parents. The
    returned commits are added to `done`.
    """
    order: list[bytes] = []
    for tip in tips:
        stack = [(tip, False)]
        while stack:
            oid, has_parents_listed = stack.pop()
            if has_parents_listed:
                order.append(oid)
            elif oid not in done:
                done.add(oid)
                stack.append((oid, True))
                stack += [(parent, False) for parent in parents.get(oid, [])]
    return order


def note_missing_objects(
    repository: Repository,
    tips: Sequence[bytes],
    gaps: list[str],
    *,
    missing: Collection[bytes] | None = None,
    max_commits: int | None = None,
) -> None:
    """Append a gap to `gaps` if the tips name missing objects, and another one if earlier commits do.

    `missing` holds the missing objects of all commits if they are known. If `missing` is None, git searches
    for them in the newest `max_commits` commits, or in all commits if `max_commits` is None too. Of more than
    CHECKED_TIPS tips only the first are checked for missing objects of their own.
    """
    missing_at_tips = _find_missing(repository, tips[:CHECKED_TIPS], "--no-walk")
    if missing_at_tips:
        gaps.append(f"{len(missing_at_tips)} objects that the tips of refs name are missing")
    if missing is None:
        limit = [f"--max-count={max_commits}"] if max_commits else []
        missing = _find_missing(repository, tips, *limit)
    if missing_before := set(missing) - missing_at_tips:
        gaps.append(f"{len(missing_before)} objects that commits before the tips name are missing")


def _find_missing(repository: Repository, tips: Sequence[bytes], *options: str) -> set[bytes]:
    """Return the ids of missing objects that `rev-list --objects` with `options` reaches from the tips.

    The result is empty if there are no tips. If git fails, it has what git had reported until then.
    """
    if not tips:
        return set()
    arguments = ["rev-list", "--objects", *options, "--missing=print", "--quiet", "--stdin"]
    _, out = command.run(repository.folder, *arguments, stdin_data=_stdin_lines(tips))
    return {line[1:] for line in out.split() if line.startswith(b"?")}


def list_new_blobs(
    repository: Repository, tips: Sequence[bytes], old_tips: Sequence[bytes]
) -> list[bytes] | None:
    """Return the ids of the blobs reachable from `tips` but not from `old_tips`; None if git fails.

    git fails if an object is missing.
    """
    arguments = [
        "rev-list",
        "--objects",
        "--no-object-names",
        "--filter=object:type=blob",
        "--filter-provided-objects",
        "--stdin",
    ]
    code, out = command.run(repository.folder, *arguments, stdin_data=_stdin_lines(tips, old_tips))
    return None if code else out.split()


def list_new_commits(
    repository: Repository, tips: Sequence[bytes], old_tips: Sequence[bytes]
) -> Sequence[bytes] | None:
    """Return the ids of the commits reachable from `tips` but not from `old_tips`, parents before children.

    Return None if git fails.
    """
    arguments = ["rev-list", "--topo-order", "--reverse", "--stdin"]
    code, out = command.run(repository.folder, *arguments, stdin_data=_stdin_lines(tips, old_tips))
    return None if code else IdList(out)


def list_blobs_at_path(repository: Repository, tips: Sequence[bytes], path: bytes) -> list[bytes] | None:
    """Return the ids of all blobs that a commit reachable from `tips` has at this path; None if git fails.

    `tips` are ids of commits.
    """
    arguments = [
        "--literal-pathspecs",
        "rev-list",
        "--objects",
        "--full-history",
        "--filter=object:type=blob",
        "--no-object-names",
        "--stdin",
        "--",
        os.fsdecode(path),  # not in the input: there a line break would end the path
    ]
    code, out = command.run(repository.folder, *arguments, stdin_data=_stdin_lines(tips))
    return [oid for oid in out.split() if oid not in set(tips)] if code == 0 else None
