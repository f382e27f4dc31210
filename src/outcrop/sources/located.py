"""Types that every source returns: hits with their path, and the gaps of a scan."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from outcrop.domain.finding import SourceType
from outcrop.domain.line import one_line
from outcrop.domain.secret import reveal
from outcrop.domain.target import matches_any
from outcrop.limits import FINDING_LINES
from outcrop.scanner.engine.hit import Hit, record_lost
from outcrop.scanner.engine.kinds_of_hits import lower_at
from outcrop.scanner.engine.precedence import keep_best
from outcrop.scanner.engine.scan import ScanResult
from outcrop.scanner.generic.context import is_code_file
from outcrop.scanner.rules.allowlist import is_allowed_at, path_matches

if TYPE_CHECKING:
    from outcrop.domain.excerpt import Excerpt


class CommitInfo(NamedTuple):
    """A commit, its author, and its author date in seconds since 1970 (None if git's date is malformed)."""

    commit: str  # "" for what was written on a web page
    author: str | None = None
    at: int | None = None

    @property
    def committed_at(self) -> datetime | None:
        """The author date in UTC."""
        return None if self.at is None else datetime.fromtimestamp(self.at, UTC)


@dataclass(slots=True)
class LocatedHit:
    """A hit with its path and, in a git repository, the commits and blobs that contain the value."""

    hit: Hit
    # The path in the source; a member of an archive follows after `!`. None for a blob that no tree names.
    path: bytes | None
    origin: CommitInfo | None = None  # the oldest commit that has the value at this path
    at_tip: bool = True
    # The lines at the tip, none if the value is not there; those of `hit` are of the oldest commit.
    current_lines: tuple[int, ...] = ()
    unreachable: bool = False  # no ref reaches the blob
    blobs: set[bytes] = field(default_factory=set)  # all blobs that have the value at this path
    first_blob: bytes | None = None  # the oldest of `blobs`
    tip_blob: bytes | None = None  # the one of `blobs` that is at the tip
    source_type: SourceType | None = None  # set by web sites only
    url: str | None = None  # set by web sites only
    excerpt: "Excerpt | None" = None  # set by runs of an account only
    inner: str = ""  # the part of `path` that is inside an archive

    @property
    def current_line(self) -> int | None:
        """The first line at the tip; None if the value is not there."""
        return self.current_lines[0] if self.current_lines else None

    @property
    def file_path(self) -> bytes | None:
        """The path of the file itself, which is the archive if the hit is in one.

        None if `path` is None. `path` is not split at `!`, because the name of a file may have one too.
        """
        if not self.path or not self.inner:
            return self.path
        return self.path[: -len(member_path(b"", self.inner) or b"") - 1]


@dataclass(slots=True)
class ScanOutcome:
    """The hits and gaps of a scan so far, and how much it has read."""

    located: list[LocatedHit] = field(default_factory=list)
    gaps: list[tuple[str, str]] = field(default_factory=list)  # (what was skipped, why)
    files: int = 0
    size: int = 0
    commits: int = 0

    def gap(self, where: bytes | str, reason: str) -> None:
        """Add a gap: `where` was not scanned, completely or in part, for this reason.

        A path in bytes and the reason are made printable on one line; a text `where` is added as it is.
        """
        self.gaps.append((where if isinstance(where, str) else printable_path(where), one_line(reason)))

    def limit(self, findings: int) -> None:
        """Keep the first `findings` hits; add a gap with the number of the others, if there are any."""
        if surplus := len(self.located[findings:]):
            del self.located[findings:]
            self.gap("", too_many_findings(surplus, findings))


def too_many_findings(surplus: int, limit: int) -> str:
    """Return the text of the gap for findings beyond the limit of a source."""
    return f"{surplus:,} more findings: only {limit:,} of one source are recorded"


ProgressCallback = Callable[[ScanOutcome], None]


def printable_path(path: bytes) -> str:
    r"""Return the path as one line of text; line breaks and invalid UTF-8 become `\n` and `\xff`.

    All other characters that cannot be printed are escaped too.
    """
    return one_line(path.decode("utf-8", "surrogateescape"))


def member_path(path: bytes | None, inner: str) -> bytes | None:
    """Return `path!inner` for a member of an archive, or `path` itself if `inner` is empty.

    Return `inner` alone if `path` is None or empty.
    """
    if not inner:
        return path
    return (path + b"!" if path else b"") + inner.encode("utf-8", "surrogateescape")


def applicable_hits(found: ScanResult, path: bytes | None) -> list[tuple[str, Hit]]:
    """Return the hits in one file that count at `path`, each with all its lines.

    They are pairs of the path inside the archive and the hit.

    The path inside is "" outside archives. Hits of rules that do not apply to files of that path are dropped,
    and hits that the path makes less likely than was asked for (`kinds_of_hits.lower_at`).
    If the rule of a remaining hit depends on the path, only the best of overlapping hits are kept. Of several
    hits with the same value in one member one is kept: first choice is a hit without an allow mark, then one
    that no gitleaks configuration defines, then one of a specific rule, then the first.
    """
    by_member: dict[str, list[Hit]] = {}
    for inner, found_hit in found.hits:
        hit = lower_at(found_hit, member_path(path, inner) or b"")
        if hit is None:
            record_lost(found_hit, "in a file of this name such values are no credentials")
        elif _applies_at(hit, member_path(path, inner) or b""):
            by_member.setdefault(inner, []).append(hit)
    kept: list[tuple[str, Hit]] = []
    for inner, hits in by_member.items():
        # Overlapping hits of rules for certain paths were kept until now: only here the path is known.
        candidates = keep_best(hits) if any(hit.rule.depends_on_path for hit in hits) else hits
        values: dict[str, list[Hit]] = {}
        for hit in sorted(candidates, key=_preference):
            values.setdefault(reveal(hit.secret), []).append(hit)
        best = [hits[0] if len(hits) == 1 else _with_lines(hits) for hits in values.values()]
        kept += ((inner, hit) for hit in sorted(best, key=lambda hit: (hit.start, hit.end)))
    return kept


def _with_lines(hits: list[Hit]) -> Hit:
    """Return the first of several hits with the same value, with the lines of all.

    Lines with an allow mark count only if all have one.
    """
    lines = sorted({hit.line for hit in hits if hit.allowed == hits[0].allowed})
    return replace(hits[0], lines=tuple(lines[:FINDING_LINES]), lines_total=len(lines))


def _preference(hit: Hit) -> tuple[bool, bool, bool, int, int]:
    """Return the sort key by which hits with the same value compete: the hit with the least key is kept."""
    return hit.allowed, hit.rule.is_from_gitleaks, hit.judged, hit.start, hit.end


def _applies_at(hit: Hit, path: bytes) -> bool:
    """Whether the hit counts in a file of this path, by the path patterns and allowlists of its rule.

    A hit that is `bare` does not count in a file of source code.
    """
    rule = hit.rule
    if (rule.path_regex and not path_matches(rule.path_regex, path)) or (
        rule.paths and not _matches_glob(rule.paths, path)
    ):
        record_lost(hit, "the rule is for files of other names")
        return False
    if hit.bare and is_code_file(path):
        record_lost(hit, "without quotes it is an expression in a file of source code")
        return False
    if is_allowed_at(rule.allowlists, hit.allowlist_numbers, path):
        record_lost(hit, "an allowlist of the rule allows it in this file")
        return False
    return True


def _matches_glob(patterns: tuple[str, ...], path: bytes) -> bool:
    """Whether one of the globs matches: one without a slash the file name, another one the end of the path.

    The `!` before the member of an archive counts as a slash.
    """
    text = path.decode("utf-8", "surrogateescape").replace("!", "/")
    name = text.rpartition("/")[2]
    return any(
        matches_any([f"*/{pattern}"], f"/{text}") if "/" in pattern else matches_any([pattern], name)
        for pattern in patterns
    )
