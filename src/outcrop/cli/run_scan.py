"""What the command `outcrop scan` does."""

import os
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NoReturn

from outcrop.cli.env_file import env_file_arguments, read_settings
from outcrop.cli.pre_commit import Changes, read_pre_commit
from outcrop.cli.scan_allow import check_allow_file, read_allow_file, read_baseline, write_allow_file
from outcrop.cli.scan_arguments import ScanArguments, check_revisions, local_type, target_kind
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


def run_scan(given: ScanArguments) -> None:
    """Scan as the arguments say, print what was found, and exit."""
    output = OutputFormat.JSON if given.as_json else given.output
    check_revisions(given.since, given.from_ref, given.to_ref, staged=given.staged)
    if given.account is not None:
        _reject_options_without_account(
            {
                "--rules": given.rules,
                "--gitleaks-config": given.gitleaks_config,
                "--rule": given.wanted_rules,
                "--no-rule": given.unwanted_rules,
                "--include": given.include,
                "--exclude": given.exclude,
                "--baseline": given.baseline,
                "--allow": given.allow,
                "--allow-all": given.allow_all,
                "--ignore-marks": given.ignore_marks,
                "--since": given.since,
                "--from-ref": given.from_ref,
                "--staged": given.staged,
                "--pre-commit": given.pre_commit,
                "--gitignore": given.gitignore,
                "--reveal": given.show_secrets,
                "--output": given.outputs,
                "--quiet": given.quiet,
                "--format": output not in {None, OutputFormat.TABLE, OutputFormat.JSON},
                "--only-valid": given.only_valid,
                "--no-tests": given.no_tests,
                "--report-to": given.report_to is not None,
            }
        )
        from outcrop.cli.account_scan import scan_for_account  # noqa: PLC0415 - imports the service

        is_json = output is OutputFormat.JSON
        wanted = given.targets or ["."]
        scan_for_account(
            given.account,
            wanted,
            given.kind,
            host_url=given.host_url,
            discussions=given.discussions,
            jobs=given.jobs,
            as_json=is_json,
            validate=not given.no_validate,
        )
        return
    if given.no_validate and given.only_valid:
        raise BadInputError("--only-valid needs validation, and --no-validate turns it off")
    report_target = _open_report_target(given.report_to, wait=given.report_wait)
    cache = cache_folder()
    targets, changes = _read_changes(
        given.targets,
        Changes(given.since, given.from_ref, given.to_ref, given.staged),
        pre_commit=given.pre_commit,
    )
    printed = Printed(
        output,
        parse_outputs(given.outputs, output),
        quiet=given.quiet,
        show_secrets=given.show_secrets,
        own_rules=given.rules or (),
        allow_all=given.allow_all,
    )
    check_allow_file(given.allow_all)
    ruleset = load_ruleset(given.rules or [], gitleaks=given.gitleaks_config, cache=cache)
    selection, known = Selection.from_options(given.include, given.exclude), read_baseline(given.baseline)
    options = ScanOptions(
        ruleset=ruleset,
        min_confidence=given.confidence,
        jobs=given.jobs or count_cores(),
        cache=None if given.no_cache else cache,
        work=cache,
        gitignore=given.gitignore,
        staged=changes.staged,
        reveal=given.show_secrets,
        since=changes.since,
        from_ref=changes.from_ref,
        to_ref=changes.to_ref,
        selection=selection._replace(
            files=changes.files, rules=_select_rules(ruleset, given.wanted_rules, given.unwanted_rules)
        ),
        type="folder" if changes.is_in_folder else local_type(given.kind),
        baseline=known.fingerprints,
        known=known.others,
        allowed=read_allow_file(given.allow),
        ignore_marks=given.ignore_marks,
        stdin=sys.stdin.buffer,
        kind=target_kind(given.kind),
        host_url=given.host_url,
        discussions=given.discussions,
        limits=_source_limits(),
        keeps_hidden=report_target is not None,
        **_remote_options(targets),
    )
    _scan_and_print(
        targets,
        options,
        printed,
        report_target,
        validate=not given.no_validate,
        only_valid=given.only_valid,
        no_tests=given.no_tests,
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
    sys.exit(2 if report.failures else 1 if report.findings else 0)


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
