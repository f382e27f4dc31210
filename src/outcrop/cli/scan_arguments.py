"""The arguments of `outcrop scan`, and a parser for calls that are right."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from outcrop.cli.scan_output import OutputFormat
from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import Confidence

if TYPE_CHECKING:
    from outcrop.domain.target import TargetKind

PROCESSES_AT_MOST = 256


class ScanTargetType(StrEnum):
    """Type of a target. A local target is a folder or a git repository; a remote one is never a folder."""

    FOLDER = "folder"
    GIT = "git"
    OWNER = "owner"
    REPOSITORY = "repository"
    GISTS = "gists"
    GIST = "gist"
    COMMIT = "commit"
    SITE = "site"
    PAGE = "page"


class ScanArguments(NamedTuple):
    """What a call of `outcrop scan` asks for, with the defaults."""

    targets: list[str] | None = None
    account: str | None = None
    kind: ScanTargetType | None = None
    host_url: str | None = None
    discussions: bool = False
    output: OutputFormat | None = None
    as_json: bool = False
    outputs: list[str] | None = None
    quiet: bool = False
    report_to: str | None = None
    report_wait: bool = False
    no_validate: bool = False
    only_valid: bool = False
    show_secrets: bool = False
    jobs: int = 0
    confidence: Confidence = Confidence.MEDIUM
    rules: list[Path] | None = None
    gitleaks_config: Path | None = None
    wanted_rules: list[str] | None = None
    unwanted_rules: list[str] | None = None
    include: list[str] | None = None
    exclude: list[str] | None = None
    baseline: Path | None = None
    allow: Path | None = None
    allow_all: Path | None = None
    ignore_marks: bool = False
    since: str | None = None
    from_ref: str | None = None
    to_ref: str | None = None
    staged: bool = False
    pre_commit: bool = False
    gitignore: bool = False
    no_tests: bool = False
    no_cache: bool = False


def parse_call(arguments: Sequence[str]) -> ScanArguments | None:
    """Return the arguments of a call that is right; None for any other one, and for one that asks for help.

    Typer then reads the call again, and explains what is wrong. It is not imported here: that takes as long
    as a small scan.
    """
    given: dict[str, Any] = {}
    targets: list[str] = []
    words = iter(arguments)
    for word in words:
        if not word.startswith("-") or word == "-":
            targets.append(word)
            continue
        name, equals, text = word.partition("=") if word.startswith("--") else (word, "", "")
        if name in _FLAGS and not equals:
            given[_FLAGS[name]] = True
            continue
        if name not in _VALUES or (not equals and (text := next(words, "-")).startswith("-")):
            return None
        field, convert, is_list = _VALUES[name]
        try:
            value = convert(text)
        except ValueError:
            return None
        given[field] = [*given.get(field, ()), value] if is_list else value
    return ScanArguments(targets=targets or None, **given)


def _to_jobs(text: str) -> int:
    """Return a number of processes; raise ValueError for another text."""
    if not (text.isascii() and text.isdigit() and int(text) <= PROCESSES_AT_MOST):
        raise ValueError
    return int(text)


_FLAGS = {  # option -> field
    "--discussions": "discussions",
    "--json": "as_json",
    "-q": "quiet",
    "--quiet": "quiet",
    "--report-wait": "report_wait",
    "--no-validate": "no_validate",
    "--only-valid": "only_valid",
    "--reveal": "show_secrets",
    "--ignore-marks": "ignore_marks",
    "--staged": "staged",
    "--pre-commit": "pre_commit",
    "--gitignore": "gitignore",
    "--no-tests": "no_tests",
    "--no-cache": "no_cache",
}
_VALUES: dict[str, tuple[str, Callable[[str], Any], bool]] = {  # option -> field, conversion, is repeatable
    "--account": ("account", str, False),
    "--type": ("kind", ScanTargetType, False),
    "--host-url": ("host_url", str, False),
    "--format": ("output", OutputFormat, False),
    "-o": ("outputs", str, True),
    "--output": ("outputs", str, True),
    "--report-to": ("report_to", str, False),
    "--jobs": ("jobs", _to_jobs, False),
    "--confidence": ("confidence", Confidence, False),
    "--rules": ("rules", Path, True),
    "--gitleaks-config": ("gitleaks_config", Path, False),
    "--rule": ("wanted_rules", str, True),
    "--no-rule": ("unwanted_rules", str, True),
    "--include": ("include", str, True),
    "--exclude": ("exclude", str, True),
    "--baseline": ("baseline", Path, False),
    "--allow": ("allow", Path, False),
    "--allow-all": ("allow_all", Path, False),
    "--since": ("since", str, False),
    "--from-ref": ("from_ref", str, False),
    "--to-ref": ("to_ref", str, False),
}


def check_revisions(since: str | None, from_ref: str | None, to_ref: str | None, *, staged: bool) -> None:
    """Raise BadInputError for revisions that are empty or cannot be combined.

    An empty revision is probably an unset variable of a script, and would scan the whole history.
    """
    for name, revision in (("--since", since), ("--from-ref", from_ref), ("--to-ref", to_ref)):
        if revision == "":
            raise BadInputError(f"{name} is empty: give a revision")
    if (from_ref is None) is not (to_ref is None):
        raise BadInputError("--from-ref and --to-ref belong together")
    given = [
        name for name, value in (("--staged", staged), ("--since", since), ("--from-ref", from_ref)) if value
    ]
    if len(given) > 1:
        raise BadInputError(f"{given[0]} and {given[1]} exclude each other")


def local_type(kind: ScanTargetType | None) -> Literal["folder", "git"] | None:
    """Return the type for local targets; None means that it is guessed."""
    return "folder" if kind is ScanTargetType.FOLDER else "git" if kind is ScanTargetType.GIT else None


def target_kind(kind: ScanTargetType | None) -> "TargetKind | None":
    """Return the kind for remote targets; None means that it is guessed."""
    if kind in {None, ScanTargetType.FOLDER}:
        return None
    from outcrop.domain.target import TargetKind  # noqa: PLC0415 - a scan of files does not need it

    return TargetKind.REPOSITORY if kind is ScanTargetType.GIT else TargetKind(kind)
