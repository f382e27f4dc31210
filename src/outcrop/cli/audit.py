"""The command `outcrop audit`."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext
from enum import StrEnum
from typing import Annotated, Any

import typer

from outcrop.cli import session as cli
from outcrop.cli.session import AsJson, run, show_all, start
from outcrop.domain.audit import OUTCOMES, AuditFilter
from outcrop.domain.errors import BadInputError
from outcrop.runtime import open_session
from outcrop.services import accounts
from outcrop.services.audit import read_trail

COLUMNS = ["at", "actor", "action", "target", "outcome", "detail"]


class AuditFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


def audit(
    *,
    slug: Annotated[str | None, typer.Option("--account", metavar="SLUG", help="The account.")] = None,
    of_operator: Annotated[
        bool, typer.Option("--operator", help="The operator's lines, which belong to no account.")
    ] = False,
    action: Annotated[
        str | None,
        typer.Option(
            metavar="A", help="Only this action or group of actions, such as `key.create` or `webhook`."
        ),
    ] = None,
    actor: Annotated[str | None, typer.Option(metavar="WHO", help="Only actions of this actor.")] = None,
    target: Annotated[str | None, typer.Option(metavar="ID", help="Only actions on this target.")] = None,
    outcome: Annotated[
        str | None, typer.Option(metavar="|".join(OUTCOMES), help="Only actions with this outcome.")
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TS", help="From this time on (ISO 8601).")] = None,
    until: Annotated[str | None, typer.Option(metavar="TS", help="Before this time (ISO 8601).")] = None,
    output: Annotated[
        AuditFormat, typer.Option("--format", help="The output format; jsonl is one JSON object per line.")
    ] = AuditFormat.TABLE,
    as_json: AsJson = False,
) -> None:
    """Show the audit trail of an account or of the operator, oldest first."""
    if (slug is None) != of_operator:
        raise BadInputError("give either --account or --operator")
    settings = start()
    first, last = (
        None if text is None else cli.moment(text, name)
        for text, name in ((since, "--since"), (until, "--until"))
    )
    conditions = AuditFilter(action, actor, target, outcome, first, last)
    output = AuditFormat.JSON if as_json else output

    async def main() -> list[dict[str, Any]]:
        async with open_session(settings) as session:
            account = None if slug is None else await accounts.get_account(session.db, slug)
            batches = read_trail(lambda: nullcontext(session.db), account, conditions)
            if output is AuditFormat.JSONL:
                await _write(batches)
                return []
            return [line async for batch in batches for line in batch]

    lines = run(main)
    if output is not AuditFormat.JSONL:
        show_all(lines, COLUMNS, as_json=output is AuditFormat.JSON)


async def _write(batches: AsyncIterator[list[dict[str, Any]]]) -> None:
    """Write each batch as it is read: a trail may be larger than the memory."""
    async for lines in batches:
        for line in lines:
            sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
