"""The commands `outcrop incidents …`, over the REST API: they need an API key and no database."""

import sys
from itertools import islice
from typing import Annotated, Any

import typer

from outcrop.cli.remote_findings import check_id, open_client
from outcrop.cli.session import AsJson, print_json, show, show_all
from outcrop.client import NotFound
from outcrop.client.types import IncidentFields, IncidentOutcomeFields
from outcrop.domain.finding import Severity, Validation
from outcrop.domain.incident import IncidentOrder, IncidentStatus

app = typer.Typer(no_args_is_help=True, help="List, read, resolve and assign incidents over the API.")

_COLUMNS = ("id", "status", "composite_score", "severity", "secret_type", "open", "assignee", "matched_text")
_OUTCOMES = ("id", "status", "changed", "unchanged", "refused")

Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of incidents.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The incident's id.")]
Note = Annotated[str | None, typer.Option(metavar="TEXT", help="Stored with each finding.")]


@app.command("list")
def list_(
    *,
    status: Annotated[IncidentStatus | None, typer.Option(help="Only this status.")] = None,
    severity: Annotated[Severity | None, typer.Option(help="Only this range of the score.")] = None,
    validation: Annotated[Validation | None, typer.Option(help="Only this verdict.")] = None,
    secret_type: Annotated[str | None, typer.Option(metavar="TYPE", help="Only this type.")] = None,
    service: Annotated[str | None, typer.Option(metavar="LABEL", help="Only with this service.")] = None,
    min_score: Annotated[float | None, typer.Option(min=0, max=100, help="At least this score.")] = None,
    assignee: Annotated[
        str | None, typer.Option(metavar="EMAIL", help="Only those of this member, or `none`.")
    ] = None,
    overdue: Annotated[bool, typer.Option("--overdue", help="Only those past their due date.")] = False,
    closed_valid: Annotated[
        bool, typer.Option("--closed-valid", help="Only closed ones that are still valid.")
    ] = False,
    query: Annotated[str | None, typer.Option("-q", metavar="TEXT", help="Words in a place.")] = None,
    order_by: Annotated[
        IncidentOrder, typer.Option(help="The order, highest or latest first.")
    ] = IncidentOrder.COMPOSITE_SCORE,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List incidents, highest score first; with `--order-by due_at` the first due date first."""
    filters: dict[str, Any] = {
        "status": status,
        "severity": severity,
        "validation": validation,
        "secret_type": secret_type,
        "service": service,
        "min_score": min_score,
        "assignee": assignee,
        "overdue": overdue or None,
        "closed_valid": closed_valid or None,
        "q": query,
        "order_by": order_by,
        "order_dir": "asc" if order_by is IncidentOrder.DUE_AT else None,
        "per_page": min(limit, 200),
    }
    with open_client() as client:
        incidents = list(islice(client.iterate_incidents(**filters), limit))
    if as_json:
        print_json(incidents)
        return
    show_all(list(map(_row, incidents)), _COLUMNS, as_json=False)


@app.command("show")
def show_incident(incident_id: Id, as_json: AsJson = False) -> None:
    """Show one incident."""
    with open_client() as client:
        found = client.get_incident(check_id(incident_id, "an incident"))
    if as_json:
        print_json(found)
        return
    show({name: value for name, value in found.items() if value is not None}, as_json=False)


@app.command()
def resolve(ids: Ids, note: Note = None, as_json: AsJson = False) -> None:
    """Mark credentials as rotated or removed, at all their places."""
    checked = list(dict.fromkeys(check_id(text, "an incident") for text in ids))
    outcomes: list[IncidentOutcomeFields] = []
    is_unknown = False
    with open_client() as client:
        for id_ in checked:
            try:
                outcomes.append(client.triage_incident(id_, "resolve", note))
            except NotFound:
                is_unknown = True
                print(f"outcrop: {id_}: no such incident", file=sys.stderr)
    show_all([dict(outcome) for outcome in outcomes], _OUTCOMES, as_json=as_json)
    if is_unknown or any(outcome["refused"] for outcome in outcomes):
        raise typer.Exit(1)


@app.command()
def assign(
    incident_id: Id,
    email: Annotated[str, typer.Argument(metavar="EMAIL", help="A member's address; empty: nobody.")],
    as_json: AsJson = False,
) -> None:
    """Assign an incident to a member."""
    with open_client() as client:
        found = client.assign_incident(check_id(incident_id, "an incident"), email)
    show({"id": found["id"], "assignee": found["assignee"]} if not as_json else dict(found), as_json=as_json)


def _row(incident: IncidentFields) -> dict[str, object]:
    """Return the columns of an incident in the table."""
    return dict(incident) | {
        "secret_type": incident["pattern"]["secret_type"],
        "open": f"{incident['open_places']} of {incident['places']}",
        "assignee": incident["assignee"] or "-",
    }
