"""The commands `outcrop findings …`, over the REST API: they need an API key and no database."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, Any

import typer

from outcrop.cli.session import AsJson, print_json, show, show_all, start
from outcrop.cli.streams import fail
from outcrop.cli.tables import print_table
from outcrop.client import Client, NotFound, OutcropApiError
from outcrop.client.types import BulkActionName, FindingFields
from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import Severity, SourceType, Status, Validation, Visibility
from outcrop.domain.ids import parse_id
from outcrop.domain.line import one_line

app = typer.Typer(no_args_is_help=True, help="List, read and triage findings over the API.")

MAX_IDS = 500  # of one bulk call
_COLUMNS = ("id", "status", "composite_score", "severity", "secret_type", "place", "matched_text")

Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of findings.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The finding's id.")]
Note = Annotated[str | None, typer.Option(metavar="TEXT", help="Stored with each finding.")]


@app.command("list")
def list_(
    *,
    status: Annotated[Status | None, typer.Option(help="Only this status.")] = None,
    severity: Annotated[Severity | None, typer.Option(help="Only this range of the score.")] = None,
    validation: Annotated[Validation | None, typer.Option(help="Only this verdict.")] = None,
    source_type: Annotated[SourceType | None, typer.Option(help="Only this type of place.")] = None,
    visibility: Annotated[Visibility | None, typer.Option(help="Only sources of this visibility.")] = None,
    secret_type: Annotated[str | None, typer.Option(metavar="TYPE", help="Only this type.")] = None,
    rule: Annotated[str | None, typer.Option(metavar="ID", help="Only of this rule.")] = None,
    repo: Annotated[str | None, typer.Option(metavar="NAME", help="Only in this repository.")] = None,
    author: Annotated[str | None, typer.Option(metavar="TEXT", help="Only of this author.")] = None,
    assignee: Annotated[
        str | None, typer.Option(metavar="EMAIL", help="Only those of this member, or `none`.")
    ] = None,
    incident_id: Annotated[str | None, typer.Option(metavar="ID", help="Only this incident's.")] = None,
    scan: Annotated[str | None, typer.Option(metavar="ID", help="Only those new in this run.")] = None,
    service: Annotated[str | None, typer.Option(metavar="LABEL", help="Only with this service.")] = None,
    min_score: Annotated[float | None, typer.Option(min=0, max=100, help="At least this score.")] = None,
    updated_since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only those changed at this time or later.")
    ] = None,
    query: Annotated[str | None, typer.Option("-q", metavar="TEXT", help="Words in the place.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List findings, highest score first."""
    filters: dict[str, Any] = {
        "status": status,
        "severity": severity,
        "validation": validation,
        "source_type": source_type,
        "visibility": visibility,
        "secret_type": secret_type,
        "rule": rule,
        "repo": repo,
        "author": author,
        "assignee": assignee,
        "incident_id": incident_id,
        "scan": scan,
        "service": service,
        "min_score": min_score,
        "updated_since": updated_since,
        "q": query,
        "per_page": min(limit, 200),
    }
    with open_client() as client:
        findings = list(islice(client.iterate_findings(**filters), limit))
    if as_json:
        print_json(findings)
        return
    show_all(list(map(_row, findings)), _COLUMNS, as_json=False)


@app.command("show")
def show_finding(finding_id: Id, as_json: AsJson = False) -> None:
    """Show one finding."""
    with open_client() as client:
        found = client.get_finding(check_id(finding_id))
    if as_json:
        print_json(found)
        return
    show({name: value for name, value in found.items() if value is not None}, as_json=False)


@app.command()
def explain(finding_id: Id, as_json: AsJson = False) -> None:
    """Explain the score of a finding."""
    with open_client() as client:
        score = client.get_score(check_id(finding_id))
    if as_json:
        print_json(score)
        return
    print(f"score {score['composite_score']:g}")
    rows = (
        [f"{part['points']:.0f}", f"{part['max']:.0f}", part["name"].replace("_", " "), part["reason"]]
        for part in score["parts"]
    )
    print_table(("points", "of", "part", "because"), list(rows))


@app.command()
def resolve(ids: Ids, note: Note = None, as_json: AsJson = False) -> None:
    """Mark credentials as rotated or removed."""
    _triage("resolve", ids, note, as_json=as_json)


@app.command()
def restrict(ids: Ids, note: Note = None, as_json: AsJson = False) -> None:
    """Close findings whose exposure is acknowledged."""
    _triage("restrict", ids, note, as_json=as_json)


@app.command()
def suppress(ids: Ids, note: Note = None, as_json: AsJson = False) -> None:
    """Hide findings from the active view. A note is ignored."""
    _triage("suppress", ids, note, as_json=as_json)


@app.command()
def false_positive(ids: Ids, note: Note = None, as_json: AsJson = False) -> None:
    """Mark findings as not a credential."""
    _triage("false_positive", ids, note, as_json=as_json)


def _triage(action: BulkActionName, ids: list[str], note: str | None, *, as_json: bool) -> None:
    """Apply an action to findings and print the outcomes; exit with 1 if one is refused or unknown."""
    checked = list(dict.fromkeys(map(check_id, ids)))
    outcomes = []
    with open_client() as client:
        for start_ in range(0, len(checked), MAX_IDS):
            part = checked[start_ : start_ + MAX_IDS]
            outcomes += client.change_findings(action, ids=part, note=note).data
    show_all(outcomes, ("id", "status", "outcome"), as_json=as_json)
    if any(outcome["outcome"] in {"refused", "not_found"} for outcome in outcomes):
        raise typer.Exit(1)


def check_id(text: str, subject: str = "a finding") -> str:
    """Return the id in its usual form. Raise BadInputError if it is none."""
    if (id_ := parse_id(text)) is None:
        raise BadInputError(f"{text!r} is not the id of {subject}")
    return str(id_)


@contextmanager
def open_client() -> Iterator[Client]:
    """Yield a client of the service that the settings name; end the command if a call fails."""
    settings = start()
    if settings.url is None or settings.api_key is None:
        raise BadInputError("set OUTCROP_URL to the service's address and OUTCROP_API_KEY to an API key")
    ca_file = None if settings.egress_ca_file is None else str(settings.egress_ca_file)
    try:
        with Client(settings.url, settings.api_key.get_secret_value(), ca_file=ca_file) as client:
            yield client
    except NotFound as error:
        print(f"outcrop: {one_line(error.message)}", file=sys.stderr)
        raise typer.Exit(1) from None
    except OutcropApiError as error:
        fail(error.message)


def _row(finding: FindingFields) -> dict[str, object]:
    """Return the columns of a finding in the table."""
    path = finding["file_path"] and f"{finding['file_path']}:{finding['line_number'] or ''}"
    if (repository := finding["repo_full_name"]) is not None:
        place = f"{repository} {path}" if path else repository
    else:
        place = finding["source_url"] or path or "-"
    return dict(finding) | {"secret_type": finding["pattern"]["secret_type"], "place": place}
