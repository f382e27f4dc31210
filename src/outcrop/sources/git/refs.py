"""What the refs of a repository name: commits, tags with messages of their own, and now and then a tree or a file that no commit has."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from outcrop.domain.place import COMMIT_MESSAGE, TAG_MESSAGE
from outcrop.sources.git import attribution
from outcrop.sources.git.attribution import Places
from outcrop.sources.git.commit_headers import named_by
from outcrop.sources.git.objects import whole
from outcrop.sources.git.repository import Repository

_MOST_TAGS = 8  # one behind the other that are looked at: each step asks git anew
_COMMIT, _TAG, _TREE, _BLOB = b"commit", b"tag", b"tree", b"blob"


@dataclass(frozen=True, slots=True)
class Tips:
    """The objects behind the refs, each once."""

    commits: list[bytes] = field(default_factory=list)
    tags: dict[bytes, bytes] = field(default_factory=dict)  # each with what it leads to
    trees: list[bytes] = field(default_factory=list)  # that are named as such
    files: dict[bytes, bytes] = field(default_factory=dict)  # that are, by the name of a ref

    @property
    def reaching(self) -> list[bytes]:
        """Give those from which all files are reached."""
        return [*self.commits, *self.trees, *self.files]


def tips_of(repository: Repository, gaps: list[str]) -> Tips:
    """Follow the refs, through tags and tags of tags; one that leads nowhere must not spoil the walk over the others."""
    kinds = _kinds(repository, repository.tips)
    next_of = _through_tags(repository, kinds)
    ends = {tip: _end(tip, next_of) for tip in repository.tips}
    if lost := sum(kinds.get(end) not in {_COMMIT, _TREE, _BLOB} for end in ends.values()):
        gaps.append(f"{lost} refs point at objects that are not there")
    found = dict.fromkeys(ends.values())
    names = {ends[oid]: name for name, oid in sorted(repository.refs.items(), reverse=True)}
    return Tips(
        commits=[end for end in found if kinds.get(end) == _COMMIT],
        tags={tag: _end(tag, next_of) for tag in next_of},
        trees=[end for end in found if kinds.get(end) == _TREE],
        files={end: names[end] for end in found if kinds.get(end) == _BLOB and end in names},
    )


def _through_tags(repository: Repository, kinds: dict[bytes, bytes | None]) -> dict[bytes, bytes | None]:
    """Give what each tag names, and add of what kind that is; where tags do not end, git tells what is behind them."""
    next_of: dict[bytes, bytes | None] = {}
    for step in range(_MOST_TAGS + 1):
        ahead = [oid for oid, kind in kinds.items() if kind == _TAG and oid not in next_of]
        if not ahead:
            break
        if step < _MOST_TAGS:
            next_of |= {oid: named_by(content) for oid, content in whole(repository, ahead)}
        else:
            next_of |= zip(
                ahead, attribution.answers(repository, [oid + b"^{}" for oid in ahead]), strict=True
            )
        kinds |= _kinds(
            repository, {named for oid in ahead if (named := next_of[oid]) and named not in kinds}
        )
    return next_of


def _kinds(repository: Repository, oids: Collection[bytes]) -> dict[bytes, bytes | None]:
    ordered = sorted(oids)
    return dict(zip(ordered, attribution.answers(repository, ordered, "%(objecttype)"), strict=True))


def _end(oid: bytes, next_of: dict[bytes, bytes | None]) -> bytes:
    while following := next_of.get(oid):
        oid = following
    return oid


def place_texts(
    repository: Repository, tips: Tips, order: Sequence[bytes], wanted: Collection[bytes], places: Places
) -> None:
    """Add the places of messages, and of files that only a tag or another ref names: they come behind those that commits have."""
    left = {oid for oid in wanted if oid not in places}
    last = len(order)
    if not left:
        return
    places.update((oid, {COMMIT_MESSAGE: (rank, oid)}) for rank, oid in enumerate(order) if oid in left)
    places.update(
        (tag, {TAG_MESSAGE: (last, end if end in tips.commits else b"")})
        for tag, end in tips.tags.items()
        if tag in left
    )
    places.update((oid, {name: (last, b"")}) for oid, name in tips.files.items() if oid in left)
    for tree in tips.trees:
        for oid, path in attribution.standing(repository, tree):
            if oid in left:
                places.setdefault(oid, {})[path] = (last, b"")
