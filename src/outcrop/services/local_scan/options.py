"""What a caller of the scan can choose, and what all findings of one target share."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, NamedTuple

from outcrop.domain.finding import Confidence, Visibility
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.sources.gitignore import IgnorePatterns

if TYPE_CHECKING:
    from outcrop.domain.target import TargetKind
    from outcrop.sources.remote import RemoteAccess

IGNORE_FILE = ".outcropignore"
TargetType = Literal["folder", "git", "stdin", "elsewhere"]


class ScanOptions(NamedTuple):
    """What a caller of the scan can choose."""

    ruleset: RuleSet
    floor: Confidence = Confidence.MEDIUM
    jobs: int = 1
    cache: Path | None = None
    work: Path = Path()
    gitignore: bool = False
    staged: bool = False
    since: str | None = None
    type: TargetType | None = None
    baseline: Sequence[str] = ()  # fingerprints, each as often as it was told
    stdin: IO[bytes] | None = None
    kind: "TargetKind | None" = None  # of what stands elsewhere, where the guess would be wrong
    web_host: str = "github.com"
    reach: "RemoteAccess | None" = None  # how to get to what stands elsewhere


def nothing(_path: bytes) -> bool:
    return False


class TargetInfo(NamedTuple):
    """What all findings of one target share."""

    source: str
    url: str | None = None
    full_name: str | None = None
    visibility: Visibility = Visibility.UNKNOWN
    gist: bool = False
    ignored: Callable[[bytes], bool] = (
        nothing  # of a repository; a walk through a folder does not come to what is left out
    )


def ignoring(file: Path) -> IgnorePatterns | None:
    """Read a file of patterns in the syntax of .gitignore, where there is one."""
    if not os.path.isfile(file):  # noqa: PTH113 - nor a pipe that would make us wait, nor what may not be looked at
        return None
    try:
        with file.open("rb") as opened:
            return IgnorePatterns(opened.read(1 << 20))
    except OSError:
        return None
