"""What a caller of the scan can choose, and what all findings of one target share."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import Confidence, Visibility
from outcrop.scanner.ruleset import RuleSet

if TYPE_CHECKING:
    from outcrop.domain.target import TargetKind
    from outcrop.sources.elsewhere import Reach

IGNORE_FILE = ".outcropignore"
TargetType = Literal["folder", "git", "stdin", "elsewhere"]


@dataclass(frozen=True, slots=True)
class Options:
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
    baseline: frozenset[str] = frozenset()
    stdin: IO[bytes] | None = None
    kind: "TargetKind | None" = None  # of what stands elsewhere, where the guess would be wrong
    web_host: str = "github.com"
    reach: "Reach | None" = None  # how to get to what stands elsewhere


def nothing(_path: bytes) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Place:
    """What all findings of one target share."""

    source: str
    url: str | None = None
    full_name: str | None = None
    visibility: Visibility = Visibility.UNKNOWN
    gist: bool = False
    ignored: Callable[[bytes], bool] = nothing


def ignoring(file: Path, otherwise: Callable[[bytes], bool] = nothing) -> Callable[[bytes], bool]:
    """Read a file of patterns in the syntax of .gitignore."""
    if not os.path.isfile(file):  # noqa: PTH113 - nor a pipe that would make us wait, nor what may not be looked at
        return otherwise
    try:
        with file.open("rb") as opened:
            return ignored_by(opened.read(1 << 20))
    except OSError:
        return otherwise


def ignored_by(text: bytes) -> Callable[[bytes], bool]:
    import pathspec  # noqa: PLC0415 - most scans need none

    try:
        spec = pathspec.GitIgnoreSpec.from_lines(text.decode("utf-8", "surrogateescape").splitlines())
    except ValueError as error:
        raise OperatorError(f"{IGNORE_FILE}: {error}") from None
    return lambda path: spec.match_file(path.decode("utf-8", "surrogateescape"))
