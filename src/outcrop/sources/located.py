"""What every source gives: hits with their place, and what could not be looked at."""

from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from outcrop.domain.finding import SourceType
from outcrop.domain.line import one_line
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.confirm import Hit
from outcrop.scanner.engine.detect import best
from outcrop.scanner.engine.scan import Found
from outcrop.scanner.generic.context import is_code_file
from outcrop.scanner.rules.allowlist import named, passes_at

if TYPE_CHECKING:
    from outcrop.domain.excerpt import Excerpt


class CommitInfo(NamedTuple):
    """The commit that a place is attributed to; a date that cannot be read is None."""

    commit: str
    author: str | None = None
    at: int | None = None  # seconds since 1970


@dataclass(slots=True)
class LocatedHit:
    """One credential at one place."""

    hit: Hit
    path: (
        bytes | None
    )  # as the source has it, inside an archive after `!`; None where nothing names the content
    origin: CommitInfo | None = None
    at_tip: bool = True
    current_line: int | None = None
    unreachable: bool = False  # no ref reaches the blob
    blobs: set[bytes] = field(default_factory=set)  # all that hold it at this path
    first_blob: bytes | None = None  # the oldest of them, and the one at the tip
    tip_blob: bytes | None = None
    source_type: SourceType | None = None  # where the source itself says so: on the web
    url: str | None = None
    excerpt: "Excerpt | None" = None  # an account's runs only
    inner: str = ""  # what of the path is inside an archive

    @property
    def file(self) -> bytes | None:
        """Give the path of the file that holds it, the archive where it is in one: a file's own name may have a `!` in it."""
        return (
            self.path[: -len(member_path(b"", self.inner) or b"") - 1]
            if self.path and self.inner
            else self.path
        )


@dataclass(slots=True)
class ScanOutcome:
    """What a source gave so far."""

    located: list[LocatedHit] = field(default_factory=list)
    gaps: list[tuple[str, str]] = field(default_factory=list)  # where, why
    files: int = 0
    size: int = 0
    commits: int = 0

    def gap(self, where: bytes | str, reason: str) -> None:
        self.gaps.append((where if isinstance(where, str) else printable_path(where), one_line(reason)))


ProgressCallback = Callable[[ScanOutcome], None]


def printable_path(path: bytes) -> str:
    """Write a path so that it stays on one line whatever it is made of; text that is text stays as it is."""
    return one_line(path.decode("utf-8", "surrogateescape"))


def member_path(path: bytes | None, inner: str) -> bytes | None:
    """Name a member of an archive."""
    if not inner:
        return path
    return (path + b"!" if path else b"") + inner.encode("utf-8", "surrogateescape")


def hits_at_path(found: Found, path: bytes | None) -> list[tuple[str, Hit]]:
    """Give a content's hits at one path, each value once: where no mark allows it, and by a rule that knows it, if there is such.

    Rules for files of certain names speak in those files only.
    """
    by_member: dict[str, list[Hit]] = {}
    for inner, hit in found.hits:
        name = member_path(path, inner) or b""
        if _counts(hit, name):
            by_member.setdefault(inner, []).append(hit)
    kept: list[tuple[str, Hit]] = []
    for inner, hits in by_member.items():
        values: dict[str, Hit] = {}
        chosen = best(hits) if any(hit.rule.depends_on_path for hit in hits) else hits
        for hit in sorted(chosen, key=lambda hit: (hit.allowed, hit.weighed, hit.start, hit.end)):
            values.setdefault(reveal(hit.secret), hit)
        kept += ((inner, hit) for hit in sorted(values.values(), key=lambda hit: (hit.start, hit.end)))
    return kept


def _counts(hit: Hit, path: bytes) -> bool:
    """Tell whether a hit is one in a file of this path."""
    rule = hit.rule
    if (rule.path_regex and not named(rule.path_regex, path)) or (
        rule.paths and not _named(rule.paths, path)
    ):
        return False
    return not (hit.bare and is_code_file(path)) and not passes_at(rule.allowlists, hit.spared, path)


def _named(patterns: tuple[str, ...], path: bytes) -> bool:
    """Match globs: one without a slash against the file's name, another against the end of the path."""
    text = path.decode("utf-8", "surrogateescape").replace("!", "/")
    name = text.rpartition("/")[2]
    return any(fnmatchcase(name, p) if "/" not in p else fnmatchcase(f"/{text}", f"*/{p}") for p in patterns)
