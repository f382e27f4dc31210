"""The command `outcrop rules`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from outcrop.cli.streams import fail
from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import Confidence
from outcrop.domain.line import one_line
from outcrop.scanner.engine.example_test import check_examples
from outcrop.scanner.engine.load import compile_built_in, compile_ruleset, load_ruleset, read_rules
from outcrop.scanner.rules.model import BUILT_IN_RULES, PACKAGED_RULES, Rule
from outcrop.scanner.rules.toml import check_unique_ids, load_rule_files
from outcrop.services.local_scan import ScanOptions, scan
from outcrop.sources.fork_pool import count_cores
from outcrop.sources.workspace import cache_folder

app = typer.Typer(
    no_args_is_help=True,
    help="The rules by which credentials are recognised.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else.")]


@app.command("list")
def list_rules(
    own: Annotated[
        list[Path] | None, typer.Option("--rules", help="Additional rules: a file or a folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List all rules."""
    records = [
        {
            "id": rule.id,
            "name": rule.name,
            "secret_type": rule.secret_type,
            "issuer": rule.issuer,
            "impact": rule.impact,
        }
        for rule in sorted(read_rules(own or [], cache=cache_folder())[0], key=lambda rule: rule.id)
    ]
    if as_json:
        print(orjson.dumps(records).decode())
        return
    width = max(len(record["id"]) for record in records)
    for record in records:
        print(f"{record['id']:<{width}}  {one_line(record['name'])}")


@app.command()
def check(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A rule file, or a folder of them.")],
    as_json: AsJson = False,
) -> None:
    """Check rule files; report the first error with its file and line."""
    found = compile_ruleset(_load_rules(_parse_path(path))).rules
    print(orjson.dumps({"rules": len(found)}).decode() if as_json else f"{len(found)} rules are valid")


@app.command("compile")
def compile_rules(
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="DIR", help="Folder for the files; by default the package's own."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile the built-in rules once, so that no first scan has to."""
    folder = output or PACKAGED_RULES
    try:
        ruleset, is_new = compile_built_in(folder)
    except OSError as error:
        raise BadInputError(f"{folder} cannot be written: {error.strerror}") from None
    if as_json:
        record = {"version": ruleset.version, "rules": len(ruleset.rules), "compiled": is_new}
        print(orjson.dumps({**record, "folder": str(folder)}).decode())
    else:
        print(f"{len(ruleset.rules)} rules {'compiled' if is_new else 'were compiled already'}: {folder}")


@app.command("test")
def run_tests(
    name: Annotated[
        str,
        typer.Argument(metavar="PATH", help="A file or folder to scan; or a rule file, to run its examples."),
    ],
    rule: Annotated[
        list[str] | None,
        typer.Option("--rule", metavar="ID", help="Only findings of this rule; may be repeated."),
    ] = None,
    own: Annotated[
        list[Path] | None, typer.Option("--rules", help="Additional rules: a file or a folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Scan a folder and count findings by rule, at every confidence; or run the examples of a rule file."""
    path = _parse_path(name)
    if path.suffix == ".toml" and path.is_file() and not (rule or own):
        _run_examples(path, as_json=as_json)
    else:
        _show_findings(path, rule or [], own or [], as_json=as_json)


def _parse_path(name: str) -> Path:
    """Return the path; reject an empty one, which would be the current folder."""
    if not name:  # probably an unset variable of a script
        raise BadInputError("the path is empty")
    return Path(name)


def _load_rules(path: Path) -> list[Rule]:
    """Load rules and check that their ids differ from the built-in ones; a built-in file is allowed too."""
    given_rules = load_rule_files([path])
    if not path.resolve().is_relative_to(BUILT_IN_RULES.resolve()):
        check_unique_ids([*load_ruleset(cache=cache_folder()).rules, *given_rules])
    return given_rules


def _run_examples(path: Path, *, as_json: bool) -> None:
    """Run the examples of a rule file together with all built-in rules; exit with 2 if one fails."""
    given_rules = _load_rules(path)
    known = load_ruleset(cache=cache_folder())
    if any(
        (same := known.rules.get(rule.id)) is None or same.without_origin() != rule.without_origin()
        for rule in given_rules
    ):
        known = compile_ruleset(
            [
                *(rule for rule in known.rules if rule.id not in {rule.id for rule in given_rules}),
                *given_rules,
            ]
        )
    count, faults = check_examples(given_rules, known)
    if as_json:
        print(
            orjson.dumps(
                {"cases": count, "failed": [{"rule": rule, "reason": reason} for rule, reason in faults]}
            ).decode()
        )
    else:
        for rule, reason in faults:
            print(one_line(f"{rule}: {reason}"))
        print(f"{count - len(faults)} of {count} cases passed")
    if faults:
        fail(f"{len(faults)} cases of {path} failed")


def _show_findings(path: Path, wanted: list[str], own: list[Path], *, as_json: bool) -> None:
    """Scan a path at every confidence and print the findings with counts by rule."""
    cache = cache_folder()
    ruleset = load_ruleset(own, cache=cache)
    if unknown := [name for name in wanted if name not in ruleset.rules.ids]:
        raise BadInputError(f"--rule {unknown[0]}: no such rule")
    options = ScanOptions(
        ruleset=ruleset, min_confidence=Confidence.LOW, jobs=count_cores(), work=cache, type="folder"
    )
    report = scan([str(path)], options, lambda _: None)
    if report.failures:
        fail(report.failures[0])
    found = [finding.fields for finding in report.findings if not wanted or finding.fields["rule"] in wanted]
    counted = tally(found)
    if as_json:
        names = ("file_path", "line_number", "column", "rule", "confidence", "matched_text")
        places = [{name: fields[name] for name in names} for fields in found]
        print(
            orjson.dumps(
                {"files": report.files, "bytes": report.size, "rules": counted, "findings": places}
            ).decode()
        )
        return
    for fields in found:
        shown = one_line(fields["matched_text"])
        print(
            f"{fields['file_path']}:{fields['line_number']}: "
            f"{fields['rule']} ({fields['confidence']}) {shown}"
        )
    print(f"{len(found)} findings in {report.files} files, {report.size / 1e6:,.1f} MB")
    for counts in counted:
        print(f"{counts['id']}: {counts['high']} high, {counts['medium']} medium, {counts['low']} low")


def tally(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Count findings by rule and confidence; the rule with the most findings comes first."""
    counts: dict[str, dict[str, int]] = {}
    for fields in found:
        counts.setdefault(fields["rule"], dict.fromkeys(("high", "medium", "low"), 0))[
            str(fields["confidence"])
        ] += 1
    order = sorted(counts, key=lambda name: (-sum(counts[name].values()), name))
    return [{"id": name, **counts[name]} for name in order]
