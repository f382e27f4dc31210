"""The command `outcrop scan`."""

import os
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from outcrop.cli import scan_options
from outcrop.cli.env_file import env_file_arguments, read_settings
from outcrop.cli.pre_commit import Changes, read_pre_commit
from outcrop.cli.scan_allow import check_allow_file, read_allow_file, read_baseline, write_allow_file
from outcrop.cli.scan_output import (
    OutputFormat,
    OutputStyle,
    Printed,
    parse_outputs,
    print_findings,
    write_outputs,
)
from outcrop.cli.streams import printing
from outcrop.domain.clock import now
from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import Confidence
from outcrop.domain.line import one_line
from outcrop.domain.secret import Secret
from outcrop.limits import SOURCE_LIMITS, SourceLimits
from outcrop.scanner.engine.load import load_ruleset
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.services import local_scan
from outcrop.services.local_scan import ScanOptions, ScanReport, Selection, select_rules
from outcrop.sources.fork_pool import count_cores
from outcrop.sources.located import ProgressCallback
from outcrop.sources.workspace import cache_folder

if TYPE_CHECKING:
    from outcrop.cli.report_to import ReportTarget

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def scan(  # noqa: PLR0917 - one parameter per option
    targets: scan_options.Targets = None,
    account: scan_options.Account = None,
    kind: scan_options.TypeOfTargets = None,
    host_url: scan_options.HostUrl = None,
    discussions: scan_options.Discussions = False,
    output: scan_options.Format = None,
    as_json: scan_options.Json = False,
    outputs: scan_options.Outputs = None,
    quiet: scan_options.Quiet = False,
    report_to: scan_options.ReportTo = None,
    report_wait: scan_options.ReportWait = False,
    no_validate: scan_options.NoValidate = False,
    only_valid: scan_options.OnlyValid = False,
    show_secrets: scan_options.Reveal = False,
    jobs: scan_options.Jobs = 0,
    confidence: scan_options.MinConfidence = Confidence.MEDIUM,
    rules: scan_options.Rules = None,
    gitleaks_config: scan_options.GitleaksConfig = None,
    wanted_rules: scan_options.WantedRules = None,
    unwanted_rules: scan_options.UnwantedRules = None,
    include: scan_options.Include = None,
    exclude: scan_options.Exclude = None,
    baseline: scan_options.Baseline = None,
    allow: scan_options.Allow = None,
    allow_all: scan_options.AllowAll = None,
    ignore_marks: scan_options.IgnoreMarks = False,
    since: scan_options.Since = None,
    from_ref: scan_options.FromRef = None,
    to_ref: scan_options.ToRef = None,
    staged: scan_options.Staged = False,
    pre_commit: scan_options.PreCommit = False,
    gitignore: scan_options.Gitignore = False,
    no_tests: scan_options.NoTests = False,
    no_cache: scan_options.NoCache = False,
) -> None:
    """Find credentials. Exit code 0: none; 1: some; 2: a target could not be read."""
    output = OutputFormat.JSON if as_json else output
    scan_options.check_revisions(since, from_ref, to_ref, staged=staged)
    if account is not None:
        _reject_options_without_account(
            {
                "--rules": rules,
                "--gitleaks-config": gitleaks_config,
                "--rule": wanted_rules,
                "--no-rule": unwanted_rules,
                "--include": include,
                "--exclude": exclude,
                "--baseline": baseline,
                "--allow": allow,
                "--allow-all": allow_all,
                "--ignore-marks": ignore_marks,
                "--since": since,
                "--from-ref": from_ref,
                "--staged": staged,
                "--pre-commit": pre_commit,
                "--gitignore": gitignore,
                "--reveal": show_secrets,
                "--output": outputs,
                "--quiet": quiet,
                "--format": output not in {None, OutputFormat.TABLE, OutputFormat.JSON},
                "--only-valid": only_valid,
                "--no-tests": no_tests,
                "--report-to": report_to is not None,
            }
        )
        from outcrop.cli.account_scan import scan_for_account  # noqa: PLC0415 - imports the service

        is_json = output is OutputFormat.JSON
        wanted = targets or ["."]
        scan_for_account(
            account,
            wanted,
            kind,
            host_url=host_url,
            discussions=discussions,
            jobs=jobs,
            as_json=is_json,
            validate=not no_validate,
        )
        return
    if no_validate and only_valid:
        raise BadInputError("--only-valid needs validation, and --no-validate turns it off")
    report_target = _open_report_target(report_to, wait=report_wait)
    cache = cache_folder()
    targets, changes = _read_changes(targets, Changes(since, from_ref, to_ref, staged), pre_commit=pre_commit)
    printed = Printed(
        output,
        parse_outputs(outputs, output),
        quiet=quiet,
        show_secrets=show_secrets,
        own_rules=rules or (),
        allow_all=allow_all,
    )
    check_allow_file(allow_all)
    ruleset = load_ruleset(rules or [], gitleaks=gitleaks_config, cache=cache)
    selection, known = Selection.from_options(include, exclude), read_baseline(baseline)
    options = ScanOptions(
        ruleset=ruleset,
        min_confidence=confidence,
        jobs=jobs or count_cores(),
        cache=None if no_cache else cache,
        work=cache,
        gitignore=gitignore,
        staged=changes.staged,
        reveal=show_secrets,
        since=changes.since,
        from_ref=changes.from_ref,
        to_ref=changes.to_ref,
        selection=selection._replace(
            files=changes.files, rules=_select_rules(ruleset, wanted_rules, unwanted_rules)
        ),
        type="folder" if changes.is_in_folder else scan_options.local_type(kind),
        baseline=known.fingerprints,
        known=known.others,
        allowed=read_allow_file(allow),
        ignore_marks=ignore_marks,
        stdin=sys.stdin.buffer,
        kind=scan_options.target_kind(kind),
        host_url=host_url,
        discussions=discussions,
        limits=_source_limits(),
        keeps_hidden=report_target is not None,
        **_remote_options(targets),
    )
    _scan_and_print(
        targets,
        options,
        printed,
        report_target,
        validate=not no_validate,
        only_valid=only_valid,
        no_tests=no_tests,
    )


def _read_changes(
    targets: list[str] | None, changes: Changes, *, pre_commit: bool
) -> tuple[list[str], Changes]:
    """Return the targets, and the part of them that is scanned. pre-commit says which, if it calls."""
    if not pre_commit:
        return targets or ["."], changes
    if changes != Changes():
        raise BadInputError("--pre-commit reads from pre-commit what to scan: give no revisions")
    return ["."], read_pre_commit(targets or [], os.environ, cache_folder())


def _select_rules(
    ruleset: RuleSet, wanted: list[str] | None, unwanted: list[str] | None
) -> frozenset[str] | None:
    """Return the ids of the rules to report; None for all. Raise BadInputError for an id that no rule has."""
    for option, ids in (("--rule", wanted), ("--no-rule", unwanted)):
        for rule_id in ids or ():
            if rule_id not in ruleset.rules.ids:
                raise BadInputError(f"{option} {one_line(rule_id)}: no such rule")
    return select_rules(ruleset.rules.ids, wanted or (), unwanted or ())


def _open_report_target(url: str | None, *, wait: bool) -> "ReportTarget | None":
    """Return the service that gets a report; None if there is none."""
    if url is None:
        if wait:
            raise BadInputError("--report-wait needs --report-to")
        return None
    from outcrop.cli.report_to import ReportTarget  # noqa: PLC0415 - imports the HTTP client

    return ReportTarget(url, wait=wait)


def _scan_and_print(
    targets: list[str],
    options: ScanOptions,
    printed: Printed,
    report_target: "ReportTarget | None",
    *,
    validate: bool,
    only_valid: bool,
    no_tests: bool,
) -> NoReturn:
    """Scan without an account, validate, print and write the findings, send them to a service, and exit."""
    started_at = now()
    report, validated = _scan_and_validate(
        targets,
        options,
        quiet=printed.quiet,
        validate=validate,
        only_valid=only_valid,
        no_tests=no_tests,
    )
    style = OutputStyle(printed.show_secrets, validated, started_at, now(), printed.own_rules)
    if not printed.quiet or printed.format is not None:
        with printing():
            print_findings(report, printed.format or OutputFormat.TABLE, style)
    write_outputs(printed.files, report, style)
    write_allow_file(printed.allow_all, report)
    if report_target is not None and (failure := report_target.send(report)) is not None:
        report.failures.append(failure)
    _exit(report, quiet=printed.quiet)


def _scan_and_validate(
    targets: list[str],
    options: ScanOptions,
    *,
    quiet: bool,
    validate: bool,
    only_valid: bool,
    no_tests: bool,
) -> tuple[ScanReport, bool]:
    """Scan without an account, and validate; return the report, and whether it was validated.

    Unless `quiet`, rule warnings and progress are shown.
    """
    with ExitStack() as stack:
        if quiet:
            report = local_scan.scan(targets, options, lambda _: None)
        else:
            for note in options.ruleset.notes:
                print(f"outcrop: {one_line(note)}", file=sys.stderr)
            report = local_scan.scan(targets, options, _scan_progress(stack))
    if no_tests:
        _drop_tests(report, quiet=quiet)
    return report, validate and _validate(report, only_valid=only_valid, quiet=quiet)


def _reject_options_without_account(given: dict[str, object]) -> None:
    """Raise BadInputError for the first given option that cannot be combined with `--account`."""
    for name, value in given.items():
        if value:
            hint = ""
            if name in {"--rules", "--gitleaks-config"}:
                hint = "; use OUTCROP_RULES for own rules in account runs"
            raise BadInputError(f"{name} cannot be combined with --account{hint}")


def _exit(report: ScanReport, *, quiet: bool) -> NoReturn:
    """Print gaps and failures to stderr and exit: 2 if a target failed, 1 if there are findings, else 0.

    The last line, unless `quiet`, says how many findings were left out, and by what.
    """
    for where, why in report.gaps:
        print(f"not scanned: {where}: {why}", file=sys.stderr)
    for failure in report.failures:
        print(f"outcrop: {failure}", file=sys.stderr)
    if report.left_out and not quiet:
        reasons = (f"{count} by {reason}" for reason, count in sorted(report.left_out.items()))
        print(f"left out: {report.left_out.total()}: {', '.join(reasons)}", file=sys.stderr)
    raise typer.Exit(2 if report.failures else 1 if report.findings else 0)


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
    tokens = {host: Secret(text, mask_all=True) for host, text in settings.tokens_of_hosts.items()}
    access = RemoteAccess(egress, settings.github_api_url, token, tokens)
    return {"access": access, "web_host": settings.github_host}


def _source_limits() -> SourceLimits:
    """Return the limits of each source.

    The settings are loaded only if the environment has such a setting, or with `--env-file`: that takes as
    long as a small scan.
    """
    if any(name.startswith("OUTCROP_MAX_") for name in os.environ) or env_file_arguments():
        return read_settings().source_limits
    return SOURCE_LIMITS


def _validate(report: ScanReport, *, only_valid: bool, quiet: bool) -> bool:
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
        progress = (lambda _done, _all: None) if quiet else _validation_progress(stack)
        validate_findings(report, settings, progress)
    if only_valid:
        dropped = [
            str(finding.fields["validation_status"]) for finding in report.findings if not finding.is_valid
        ]
        report.unprinted += [finding for finding in report.findings if not finding.is_valid]
        report.findings = [finding for finding in report.findings if finding.is_valid]
        if dropped and not quiet:
            counts = ", ".join(f"{count} {status}" for status, count in sorted(Counter(dropped).items()))
            print(f"not shown: {counts}", file=sys.stderr)
    return True


def _drop_tests(report: ScanReport, *, quiet: bool) -> None:
    """Drop the findings that are not of production, and print how many they are to stderr."""
    dropped = Counter(
        str(finding.fields["context"]) for finding in report.findings if not finding.is_production
    )
    report.findings = [finding for finding in report.findings if finding.is_production]
    if not quiet:
        counts = ", ".join(f"{count} {context}" for context, count in sorted(dropped.items()))
        print(f"left out by --no-tests: {counts or 'none'}", file=sys.stderr)


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
