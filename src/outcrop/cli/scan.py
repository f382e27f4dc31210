"""`outcrop scan`."""

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
from outcrop.cli.streams import fail, printing
from outcrop.domain import sarif
from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import Confidence
from outcrop.domain.line import one_line
from outcrop.domain.secret import Secret, reveal
from outcrop.scanner.engine.ruleset import load_ruleset
from outcrop.services import local_scan
from outcrop.services.local_scan import LocalFinding, ScanOptions, ScanReport
from outcrop.sources.fork_pool import count_cores
from outcrop.sources.located import ProgressCallback
from outcrop.sources.workspace import cache_folder

if TYPE_CHECKING:
    from outcrop.domain.target import TargetKind

_TARGETS = "Folders, files, git repositories (a path or an https address), or - for standard input."


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    SARIF = "sarif"


class Type(StrEnum):
    """What a target can be: on this machine a folder or git, elsewhere any but a folder."""

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
def scan(  # noqa: PLR0917 - every option of the command
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET...", help=_TARGETS, show_default="the current folder"),
    ] = None,
    account: Annotated[
        str | None, typer.Option("--account", metavar="SLUG", help="Record what is found in this account.")
    ] = None,
    kind: Annotated[
        Type | None, typer.Option("--type", help="What the targets are, where the guess would be wrong.")
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="How findings are printed.")] = Format.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    no_validate: Annotated[
        bool, typer.Option("--no-validate", help="Do not ask issuers whether a credential is alive.")
    ] = False,
    only_valid: Annotated[
        bool, typer.Option("--only-valid", help="Show only what its issuer accepts.")
    ] = False,
    show_secrets: Annotated[bool, typer.Option("--reveal", help="Print the raw credentials too.")] = False,
    jobs: Annotated[
        int, typer.Option("--jobs", min=0, max=256, help="Processes that scan; 0 is one per core.")
    ] = 0,
    confidence: Annotated[
        Confidence, typer.Option("--confidence", help="Show hits that are at least this sure.")
    ] = Confidence.MEDIUM,
    rules: Annotated[
        list[Path] | None,
        typer.Option("--rules", help="Own rules beside the built-in ones: a file or a folder."),
    ] = None,
    gitleaks_config: Annotated[
        Path | None, typer.Option("--gitleaks-config", help="Own rules in the format of gitleaks.toml.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="An earlier result: what it holds is left out.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="REV", help="Only what the commits after this revision brought."),
    ] = None,
    staged: Annotated[
        bool, typer.Option("--staged", help="Only what is staged for the next commit.")
    ] = False,
    gitignore: Annotated[
        bool, typer.Option("--gitignore", help="In a folder: leave out what .gitignore names.")
    ] = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Scan everything again.")] = False,
) -> None:
    """Find credentials. Exit code 0: none; 1: some; 2: a target could not be read."""
    if since == "":  # a variable of a script that was not set: it would be the whole history
        raise BadInputError("--since is empty: give a revision")
    if account is not None:
        given = {
            "--rules": rules,
            "--gitleaks-config": gitleaks_config,
            "--baseline": baseline,
            "--since": since,
            "--staged": staged,
        }
        given |= {
            "--gitignore": gitignore,
            "--reveal": show_secrets,
            "--format": output in {Format.JSONL, Format.SARIF},
        }
        given |= {"--only-valid": only_valid}
        if wrong := [name for name, value in given.items() if value]:
            hint = (
                ": own rules for account runs are named by OUTCROP_RULES"
                if wrong[0] in {"--rules", "--gitleaks-config"}
                else ""
            )
            raise BadInputError(f"{wrong[0]} does not go with --account{hint}")
        from outcrop.cli.account_scan import scan_for_account  # noqa: PLC0415 - loads the service

        as_json = as_json or output is Format.JSON
        scan_for_account(
            account, targets or ["."], kind, jobs=jobs, as_json=as_json, validate=not no_validate
        )
        return
    if no_validate and only_valid:
        raise BadInputError("--only-valid needs issuers to be asked, and --no-validate asks none")
    cache = cache_folder()
    if staged and since:
        raise BadInputError("--staged and --since exclude each other")
    options = ScanOptions(
        ruleset=load_ruleset(rules or [], gitleaks=gitleaks_config, cache=cache),
        floor=confidence,
        jobs=jobs or count_cores(),
        cache=None if no_cache else cache,
        work=cache,
        gitignore=gitignore,
        staged=staged,
        since=since,
        type=_local(kind),
        baseline=_baseline(baseline),
        stdin=sys.stdin.buffer,
        kind=_elsewhere(kind),
        **_reach(targets or []),
    )
    for note in options.ruleset.notes:
        print(f"outcrop: {one_line(note)}", file=sys.stderr)
    with ExitStack() as stack:
        report = local_scan.scan(targets or ["."], options, _progress(stack))
    asked = not no_validate and _validated(report, only_valid=only_valid)
    with printing():
        _print(report, Format.JSON if as_json else output, show_secrets=show_secrets, asked=asked)
    _end(report)


def _end(report: ScanReport) -> NoReturn:
    """Tell what was not looked at, and end with the code that says whether something was found."""
    for where, why in report.gaps:
        print(f"not scanned: {where}: {why}", file=sys.stderr)
    if report.failures:
        for failure in report.failures[:-1]:
            print(f"outcrop: {failure}", file=sys.stderr)
        fail(report.failures[-1])
    raise typer.Exit(1 if report.findings else 0)


def _local(kind: Type | None) -> Literal["folder", "git"] | None:
    return "folder" if kind is Type.FOLDER else "git" if kind is Type.GIT else None


def _elsewhere(kind: Type | None) -> "TargetKind | None":
    if kind in {None, Type.FOLDER}:
        return None
    from outcrop.domain.target import TargetKind  # noqa: PLC0415 - a scan of files needs none of it

    return TargetKind.REPOSITORY if kind is Type.GIT else TargetKind(kind)


def _reach(targets: list[str]) -> dict[str, Any]:
    """Read how to get to targets that are not on this machine, where there are such."""
    if all(":" not in target or os.path.exists(target) for target in targets):  # noqa: PTH110 - a name may be too long for a path
        return {}
    from outcrop.net.guard import Egress  # noqa: PLC0415 - a scan of files needs none of it
    from outcrop.settings import load_environment_settings  # noqa: PLC0415
    from outcrop.sources.remote import RemoteAccess  # noqa: PLC0415

    settings = load_environment_settings()
    egress = Egress.from_settings(settings)
    token = (
        None
        if settings.github_token is None
        else Secret(settings.github_token.get_secret_value(), mask_all=True)
    )
    return {"reach": RemoteAccess(egress, settings.github_api_url, token), "web_host": settings.github_host}


def _validated(report: ScanReport, *, only_valid: bool) -> bool:
    """Ask issuers about what was found; tell whether that is switched on. Nothing is loaded for it where nothing was found."""
    if not report.findings:
        return True
    from outcrop.settings import load_environment_settings  # noqa: PLC0415

    settings = load_environment_settings()
    if settings.validate_ == "off":
        if only_valid:
            raise BadInputError("--only-valid needs issuers to be asked, and OUTCROP_VALIDATE=off asks none")
        return False
    from outcrop.cli.scan_validation import ask_about  # noqa: PLC0415 - a client, and every check

    with ExitStack() as stack:
        ask_about(report, settings, _counting(stack))
    if only_valid:
        left_out = Counter(
            str(one.fields["validation_status"]) for one in report.findings if not one.is_valid
        )
        report.findings = [one for one in report.findings if one.is_valid]
        if left_out:
            told = ", ".join(f"{count} {status}" for status, count in sorted(left_out.items()))
            print(f"left out: {told}", file=sys.stderr)
    return True


def _baseline(file: Path | None) -> list[str]:
    """Read the fingerprints of an earlier result, in any of the formats that this command prints."""
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
            f"--baseline {file}: is not a result of outcrop scan in json, jsonl or sarif"
        ) from None


def _records(text: bytes) -> list[Any]:
    """Read a list, a log, or a value on each line."""
    try:
        whole = orjson.loads(text)
    except orjson.JSONDecodeError:
        return [orjson.loads(line) for line in text.splitlines() if line.strip()]
    return whole if isinstance(whole, list) else [whole]


def _progress(stack: ExitStack) -> ProgressCallback:
    """Show how far it has come, on a terminal only."""
    if not _is_terminal():
        return lambda _: None
    from outcrop.cli.terminal import progress  # noqa: PLC0415 - a pipe needs none of it

    return stack.enter_context(progress())


def _is_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"  # one that cannot take back what it shows


def _counting(stack: ExitStack) -> Callable[[int, int], None]:
    """Show how many issuers' answers are there, on a terminal only."""
    if not _is_terminal():
        return lambda _done, _all: None
    from outcrop.cli.terminal import asking  # noqa: PLC0415 - a pipe needs none of it

    return stack.enter_context(asking())


def _print(report: ScanReport, output: Format, *, show_secrets: bool, asked: bool) -> None:
    match output:
        case Format.TABLE:
            from outcrop.cli.terminal import print_table  # noqa: PLC0415 - the other forms need none of it

            print_table(report, show_secrets=show_secrets, asked=asked)
        case Format.JSON:
            _write(_json([_shown(finding, show_secrets=show_secrets) for finding in report.findings]))
        case Format.JSONL:
            _write(b"".join(_json(_shown(finding, show_secrets=show_secrets)) for finding in report.findings))
        case Format.SARIF:
            findings = [finding.fields | {"path": finding.path} for finding in report.findings]
            _write(_json(sarif.sarif(findings, report.gaps, version=__version__, well=not report.failures)))


def _shown(finding: LocalFinding, *, show_secrets: bool) -> dict[str, Any]:
    return finding.fields | {"secret": reveal(finding.secret)} if show_secrets else finding.fields


def _json(value: object) -> bytes:
    return orjson.dumps(value, default=str, option=orjson.OPT_APPEND_NEWLINE)


def _write(content: bytes) -> None:
    sys.stdout.buffer.write(content)
