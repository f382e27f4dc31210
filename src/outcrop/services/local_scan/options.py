"""Define the options of a local scan, and the fields that all findings of a target share."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, NamedTuple

from outcrop.domain.finding import Confidence, Visibility
from outcrop.limits import SOURCE_LIMITS, SourceLimits
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.services.local_scan.allowed import AllowEntry, KnownFindings, SourceMarks
from outcrop.services.local_scan.selection import Selection
from outcrop.sources.gitignore import IgnorePatterns

if TYPE_CHECKING:
    from outcrop.domain.target import TargetKind
    from outcrop.sources.remote import RemoteAccess

IGNORE_FILE = ".outcropignore"
_MAX_IGNORE_BYTES = 1 << 20
_MAX_MARKS_BYTES = 16 << 20  # of a baseline of detect-secrets
TargetType = Literal["folder", "git", "stdin", "remote"]


class Push(NamedTuple):
    """What a push adds: the objects with these ids, and what they reach."""

    tips: tuple[bytes, ...]
    old: tuple[bytes, ...]  # what the updated refs named before
    known_refs: bytes = b"refs/"  # what refs with this prefix reach is not new
    quarantine: Path | None = None  # the folder of objects that git has not accepted yet


class ScanOptions(NamedTuple):
    """The options of a local scan."""

    ruleset: RuleSet
    min_confidence: Confidence = Confidence.MEDIUM
    jobs: int = 1  # processes
    cache: Path | None = None  # the folder of the scan cache
    work: Path = Path()  # the folder for temporary files
    gitignore: bool = False  # whether files that git ignores are skipped
    staged: bool = False
    reveal: bool = False  # credentials are printed, so they are not masked in paths either
    since: str | None = None  # a revision: scan the commits after it only
    from_ref: str | None = None  # a revision; with `to_ref`: scan the commits between them only
    to_ref: str | None = None
    push: Push | None = None  # scan the commits that it adds only
    selection: Selection = Selection()
    type: TargetType | None = None  # of local targets; None means that it is guessed
    baseline: Sequence[str] = ()  # fingerprints of known findings, as often as each occurs
    known: KnownFindings = KnownFindings()  # of other scanners' reports
    allowed: frozenset[AllowEntry] = frozenset()  # of an allow file
    keeps_hidden: bool = False  # whether findings that a mark, a file or the baseline leaves out are kept
    ignore_marks: bool = False  # nothing in the source leaves a finding out
    stdin: IO[bytes] | None = None
    limits: SourceLimits = SOURCE_LIMITS
    kind: "TargetKind | None" = None  # of remote targets; None means that it is guessed
    web_host: str = "github.com"
    host_url: str | None = None  # the address of a self-hosted code host, for all remote targets
    discussions: bool = False  # whether issues, requests and comments of code hosts are scanned too
    access: "RemoteAccess | None" = None  # None if remote targets are not allowed

    @property
    def needs_history(self) -> bool:
        """Whether only changes are scanned, which a folder does not have."""
        return bool(self.since or self.to_ref or self.push)


def ignore_nothing(_path: bytes) -> bool:
    """Return False: no path is ignored."""
    return False


class TargetInfo(NamedTuple):
    """The fields that all findings of a target share."""

    source: str
    url: str | None = None
    full_name: str | None = None
    visibility: Visibility = Visibility.UNKNOWN
    gist: bool = False
    is_ignored: Callable[[bytes], bool] = (
        ignore_nothing  # for repositories; a folder's walk skips ignored files
    )
    marks: SourceMarks = SourceMarks()  # files of other scanners in the source
    host: str | None = None  # the kind of code host, which decides how addresses of lines are written
    repo: str | None = None  # the address of the repository, or the path of the folder


def read_ignore_file(file: Path) -> IgnorePatterns | None:
    """Read a file of patterns in .gitignore syntax; None if it is not a regular, readable file."""
    text = read_source_file(file, _MAX_IGNORE_BYTES)
    return None if text is None else IgnorePatterns(text)


def read_source_file(file: Path, limit: int = _MAX_MARKS_BYTES) -> bytes | None:
    """Return the first `limit` bytes of a file; None if it is not a regular, readable file."""
    if not os.path.isfile(file):  # noqa: PTH113 - unlike Path.is_file, it never raises; a pipe would block
        return None
    try:
        with file.open("rb") as opened:
            return opened.read(limit)
    except OSError:
        return None
