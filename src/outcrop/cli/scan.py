"""The command `outcrop scan`."""

import codecs
import os
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import orjson
import typer

from outcrop import __version__
from outcrop.cli.env_file import env_file_arguments, read_settings
from outcrop.cli.streams import fail, printing
from outcrop.domain import sarif
from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import Confidence
from outcrop.domain.line import one_line
from outcrop.domain.secret import Secret, reveal
from outcrop.limits import SOURCE_LIMITS, SourceLimits
from outcrop.scanner.engine.load import load_ruleset
from outcrop.services import local_scan
from outcrop.services.local_scan import LocalFinding, ScanOptions, ScanReport
from outcrop.sources.fork_pool import count_cores
from outcrop.sources.located import ProgressCallback
from outcrop.sources.workspace import cache_folder

if TYPE_CHECKING:
    from outcrop.domain.target import TargetKind

_TARGETS = (
    "Folders, files, git repositories (path or https address), GitHub names, web pages, or - for stdin."
)


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    SARIF = "sarif"


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


app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def scan(  # noqa: PLR0917 - one parameter per option
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET...", help=_TARGETS, show_default="the current folder"),
    ] = None,
    account: Annotated[
        str | None, typer.Option("--account", metavar="SLUG", help="Record the findings in this account.")
    ] = None,
    kind: Annotated[
        ScanTargetType | None, typer.Option("--type", help="The type of the targets, if the guess is wrong.")
    ] = None,
    output: Annotated[OutputFormat, typer.Option("--format", help="The output format.")] = OutputFormat.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    no_validate: Annotated[
        bool, typer.Option("--no-validate", help="Do not ask issuers whether credentials are valid.")
    ] = False,
    only_valid: Annotated[
        bool, typer.Option("--only-valid", help="Show only credentials that the issuer accepts.")
    ] = False,
    show_secrets: Annotated[bool, typer.Option("--reveal", help="Also print the raw credentials.")] = False,
    jobs: Annotated[
        int, typer.Option("--jobs", min=0, max=256, help="Number of processes; 0 means one per core.")
    ] = 0,
    confidence: Annotated[
        Confidence, typer.Option("--confidence", help="The lowest confidence to report.")
    ] = Confidence.MEDIUM,
    rules: Annotated[
        list[Path] | None,
        typer.Option("--rules", help="Additional rules: a file or a folder."),
    ] = None,
    gitleaks_config: Annotated[
        Path | None,
        typer.Option("--gitleaks-config", help="Additional rules in the format of gitleaks.toml."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", help="An earlier result; its findings are not reported again."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="REV", help="Scan only the commits after this revision."),
    ] = None,
    staged: Annotated[
        bool, typer.Option("--staged", help="Scan only what is staged for the next commit.")
    ] = False,
    gitignore: Annotated[
        bool, typer.Option("--gitignore", help="In a folder: skip files that .gitignore excludes.")
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Ignore the results of earlier scans.")
    ] = False,
) -> None:
    """Find credentials. Exit code 0: none; 1: some; 2: a target could not be read."""
    targets = targets or ["."]
    output = OutputFormat.JSON if as_json else output
    if since == "":  # probably an unset variable of a script; an empty revision would scan the whole history
        raise BadInputError("--since is empty: give a revision")
    if account is not None:
        _reject_options_without_account(
            {
                "--rules": rules,
                "--gitleaks-config": gitleaks_config,
                "--baseline": baseline,
                "--since": since,
                "--staged": staged,
                "--gitignore": gitignore,
                "--reveal": show_secrets,
                "--format": output in {OutputFormat.JSONL, OutputFormat.SARIF},
                "--only-valid": only_valid,
            }
        )
        from outcrop.cli.account_scan import scan_for_account  # noqa: PLC0415 - imports the service

        is_json = output is OutputFormat.JSON
        scan_for_account(account, targets, kind, jobs=jobs, as_json=is_json, validate=not no_validate)
        return
    if no_validate and only_valid:
        raise BadInputError("--only-valid needs validation, and --no-validate turns it off")
    if staged and since:
        raise BadInputError("--staged and --since exclude each other")
    cache = cache_folder()
    options = ScanOptions(
        ruleset=load_ruleset(rules or [], gitleaks=gitleaks_config, cache=cache),
        min_confidence=confidence,
        jobs=jobs or count_cores(),
        cache=None if no_cache else cache,
        work=cache,
        gitignore=gitignore,
        staged=staged,
        reveal=show_secrets,
        since=since,
        type=_local_type(kind),
        baseline=_read_baseline(baseline),
        stdin=sys.stdin.buffer,
        kind=_target_kind(kind),
        limits=_source_limits(),
        **_remote_options(targets),
    )
    _scan_and_print(
        targets, options, output, validate=not no_validate, only_valid=only_valid, show_secrets=show_secrets
    )


def _scan_and_print(
    targets: list[str],
    options: ScanOptions,
    output: OutputFormat,
    *,
    validate: bool,
    only_valid: bool,
    show_secrets: bool,
) -> NoReturn:
    """Scan without an account: print rule warnings, scan, validate, print findings, exit."""
    for note in options.ruleset.notes:
        print(f"outcrop: {one_line(note)}", file=sys.stderr)
    with ExitStack() as stack:
        report = local_scan.scan(targets, options, _scan_progress(stack))
    validated = validate and _validate(report, only_valid=only_valid)
    with printing():
        _print_findings(report, output, show_secrets=show_secrets, validated=validated)
    _exit(report)


def _reject_options_without_account(given: dict[str, object]) -> None:
    """Raise BadInputError for the first given option that cannot be combined with `--account`."""
    for name, value in given.items():
        if value:
            hint = ""
            if name in {"--rules", "--gitleaks-config"}:
                hint = "; use OUTCROP_RULES for own rules in account runs"
            raise BadInputError(f"{name} cannot be combined with --account{hint}")


def _exit(report: ScanReport) -> NoReturn:
    """Print gaps and failures to stderr and exit: 2 if a target failed, 1 if there are findings, else 0."""
    for where, why in report.gaps:
        print(f"not scanned: {where}: {why}", file=sys.stderr)
    if report.failures:
        for failure in report.failures[:-1]:
            print(f"outcrop: {failure}", file=sys.stderr)
        fail(report.failures[-1])
    raise typer.Exit(1 if report.findings else 0)


def _local_type(kind: ScanTargetType | None) -> Literal["folder", "git"] | None:
    """Return the type for local targets; None means that it is guessed."""
    return "folder" if kind is ScanTargetType.FOLDER else "git" if kind is ScanTargetType.GIT else None


def _target_kind(kind: ScanTargetType | None) -> "TargetKind | None":
    """Return the kind for remote targets; None means that it is guessed."""
    if kind in {None, ScanTargetType.FOLDER}:
        return None
    from outcrop.domain.target import TargetKind  # noqa: PLC0415 - a scan of files does not need it

    return TargetKind.REPOSITORY if kind is ScanTargetType.GIT else TargetKind(kind)


def _remote_options(targets: list[str]) -> dict[str, Any]:
    """Return the scan options for remote targets, from the settings; empty if all targets are local."""
    if all(":" not in target or os.path.exists(target) for target in targets):  # noqa: PTH110 - Path.exists raises for a name that is too long
        return {}
    from outcrop.net.guard import Egress  # noqa: PLC0415 - a scan of files does not need it
    from outcrop.sources.remote import RemoteAccess  # noqa: PLC0415

    settings = read_settings()
    egress = Egress.from_settings(settings)
    token = (
        None
        if settings.github_token is None
        else Secret(settings.github_token.get_secret_value(), mask_all=True)
    )
    return {"access": RemoteAccess(egress, settings.github_api_url, token), "web_host": settings.github_host}


def _source_limits() -> SourceLimits:
    """Return the limits of each source.

    The settings are loaded only if the environment has such a setting, or with `--env-file`: that takes as
    long as a small scan.
    """
    if any(name.startswith("OUTCROP_MAX_") for name in os.environ) or env_file_arguments():
        return read_settings().source_limits
    return SOURCE_LIMITS


def _validate(report: ScanReport, *, only_valid: bool) -> bool:
    """Validate the findings of a report. Return False if OUTCROP_VALIDATE turns validation off."""
    if not report.findings:
        return True

    settings = read_settings()
    if settings.validate_ == "off":
        if only_valid:
            raise BadInputError("--only-valid needs validation, and OUTCROP_VALIDATE=off turns it off")
        return False
    from outcrop.cli.scan_validation import validate_findings  # noqa: PLC0415 - imports the HTTP client

    with ExitStack() as stack:
        validate_findings(report, settings, _validation_progress(stack))
    if only_valid:
        dropped = [
            str(finding.fields["validation_status"]) for finding in report.findings if not finding.is_valid
        ]
        report.findings = [finding for finding in report.findings if finding.is_valid]
        if dropped:
            counts = ", ".join(f"{count} {status}" for status, count in sorted(Counter(dropped).items()))
            print(f"not shown: {counts}", file=sys.stderr)
    return True


def _read_baseline(file: Path | None) -> list[str]:
    """Return the fingerprints of an earlier result in JSON, JSON Lines or SARIF."""
    if file is None:
        return []
    try:
        text = file.read_bytes()
    except OSError as error:
        raise BadInputError(f"--baseline {file}: {error.strerror}") from None
    try:
        records = _records(text.removeprefix(codecs.BOM_UTF8))
        if len(records) == 1 and "runs" in records[0]:
            return sarif.fingerprints(records[0])
        return ["" + record["fingerprint"] for record in records]
    except (ValueError, TypeError, LookupError, AttributeError):
        raise BadInputError(
            f"--baseline {file}: not a result of outcrop scan in json, jsonl or sarif"
        ) from None


def _records(text: bytes) -> list[Any]:
    """Return the records of a JSON list, a SARIF log or JSON Lines."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return [orjson.loads(line) for line in text.splitlines() if line.strip()]
    return document if isinstance(document, list) else [document]


def _scan_progress(stack: ExitStack) -> ProgressCallback:
    """Return a progress callback; it shows something only on a terminal."""
    if not _is_terminal():
        return lambda _: None
    from outcrop.cli.terminal import scan_progress  # noqa: PLC0415 - imports rich

    return stack.enter_context(scan_progress())


def _is_terminal() -> bool:
    """Whether stderr is a terminal that can erase a progress bar."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _validation_progress(stack: ExitStack) -> Callable[[int, int], None]:
    """Return a callback for the number done and the total; it shows something only on a terminal."""
    if not _is_terminal():
        return lambda _done, _all: None
    from outcrop.cli.terminal import validation_progress  # noqa: PLC0415 - imports rich

    return stack.enter_context(validation_progress())


def _print_findings(report: ScanReport, output: OutputFormat, *, show_secrets: bool, validated: bool) -> None:
    """Write the findings to stdout in the given format."""
    match output:
        case OutputFormat.TABLE:
            from outcrop.cli.terminal import print_table  # noqa: PLC0415 - imports rich

            print_table(report, show_secrets=show_secrets, validated=validated)
        case OutputFormat.JSON:
            _write(_json([_shown(finding, show_secrets=show_secrets) for finding in report.findings]))
        case OutputFormat.JSONL:
            _write(b"".join(_json(_shown(finding, show_secrets=show_secrets)) for finding in report.findings))
        case OutputFormat.SARIF:
            findings = [finding.fields | {"path": finding.path} for finding in report.findings]
            _write(_json(sarif.sarif(findings, report.gaps, version=__version__, well=not report.failures)))


def _shown(finding: LocalFinding, *, show_secrets: bool) -> dict[str, Any]:
    """Return the printed fields of a finding; with `--reveal` also the raw credential."""
    return finding.fields | {"secret": reveal(finding.secret)} if show_secrets else finding.fields


def _json(value: object) -> bytes:
    return orjson.dumps(value, default=str, option=orjson.OPT_APPEND_NEWLINE)


def _write(content: bytes) -> None:
    sys.stdout.buffer.write(content)
