"""`outcrop audit`."""

import json
import sys
from collections.abc import AsyncIterator
from enum import StrEnum
from typing import Annotated, Any

import typer

from outcrop.cli import session as cli
from outcrop.cli.session import AsJson, Slug, run, show_all, start
from outcrop.domain.audit import OUTCOMES, AuditFilter
from outcrop.runtime import open_session
from outcrop.services import accounts
from outcrop.services.audit import read_trail

COLUMNS = ["at", "actor", "action", "target", "outcome", "detail"]


class Form(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


def audit(
    *,
    slug: Slug,
    action: Annotated[
        str | None,
        typer.Option(metavar="A", help="Only this action, or group of actions: `webhook`, `key.create`."),
    ] = None,
    actor: Annotated[str | None, typer.Option(metavar="WHO", help="Only what this one did.")] = None,
    target: Annotated[str | None, typer.Option(metavar="ID", help="Only what was done to this.")] = None,
    outcome: Annotated[
        str | None, typer.Option(metavar="|".join(OUTCOMES), help="Only what ended so.")
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TS", help="From this time on (ISO 8601).")] = None,
    until: Annotated[str | None, typer.Option(metavar="TS", help="Before this time (ISO 8601).")] = None,
    form: Annotated[
        Form, typer.Option("--format", help="jsonl is one line of JSON for each line of the trail.")
    ] = Form.TABLE,
    as_json: AsJson = False,
) -> None:
    """Show the account's audit trail, oldest first."""
    settings = start()
    first, last = (
        None if text is None else cli.moment(text, name)
        for text, name in ((since, "--since"), (until, "--until"))
    )
    wanted = AuditFilter(action, actor, target, outcome, first, last)
    form = Form.JSON if as_json else form

    async def main() -> list[dict[str, Any]]:
        async with open_session(settings) as session:
            lines = read_trail(session.db, await accounts.get_account(session.db, slug), wanted)
            if form is Form.JSONL:
                await _write(lines)
                return []
            return [line async for line in lines]

    lines = run(main)
    if form is not Form.JSONL:
        show_all(lines, COLUMNS, as_json=form is Form.JSON)


async def _write(lines: AsyncIterator[dict[str, Any]]) -> None:
    """Write as they come: a trail may be longer than the memory is large."""
    async for line in lines:
        sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
