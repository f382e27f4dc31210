"""The command `outcrop finding`."""

from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

import typer

from outcrop.cli.session import AsJson, Slug, print_json, run, show, start
from outcrop.cli.tables import print_table
from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import Finding, public_fields
from outcrop.domain.ids import parse_id
from outcrop.runtime import open_session
from outcrop.services import accounts, findings


def finding(
    finding_id: Annotated[str, typer.Argument(metavar="ID", help="The finding's id.")],
    account: Slug,
    as_json: AsJson = False,
) -> None:
    """Show one finding and the parts of its score."""
    settings = start()
    if (id_ := parse_id(finding_id)) is None:
        raise BadInputError(f"{finding_id!r} is not the id of a finding")

    async def main() -> findings.ExplainedFinding:
        async with open_session(settings) as session:
            found = await accounts.get_account(session.db, account)
            return await findings.explain_finding(session.db, found.id, id_)

    explained = run(main)
    shown, reasons = explained.finding, explained.score
    if as_json:
        detection = [reason._asdict() for reason in explained.detection]
        print_json(_fields(shown) | {"score": [asdict(reason) for reason in reasons], "detection": detection})
        return
    show({name: value for name, value in _fields(shown).items() if value is not None}, as_json=False)
    print()
    rows = (
        [f"{reason.points:.0f}", f"{reason.most:.0f}", reason.name.replace("_", " "), reason.sentence]
        for reason in reasons
    )
    print_table(("points", "of", "part", "because"), list(rows))


def _fields(found: Finding) -> dict[str, Any]:
    """Return the fields of the API, with ids and times as text."""
    fields = public_fields(found)
    times = {
        name: value.isoformat()
        for name, value in fields.items()
        if name.endswith("_at") and value is not None
    }
    ids = {name: str(value) for name, value in fields.items() if isinstance(value, UUID)}
    return fields | times | ids
