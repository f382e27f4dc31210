"""The command `outcrop assignment`."""

from typing import Annotated, Any

import typer

from outcrop.cli.session import OPERATOR, AsJson, Slug, run, show, show_all, start
from outcrop.domain.errors import BadInputError
from outcrop.domain.ids import parse_id
from outcrop.runtime import open_session
from outcrop.services import accounts
from outcrop.services.findings import assignment_rules
from outcrop.services.findings.assignment_rules import (
    AssignmentPreview,
    AssignmentRule,
    checked_scope,
    public_fields,
)

assignment = typer.Typer(help="Rules that assign new incidents to members.", no_args_is_help=True)


@assignment.command("add")
def add_rule(
    *,
    slug: Slug,
    assignee: Annotated[str, typer.Option(metavar="EMAIL", help="The member who is assigned.")],
    repo: Annotated[
        str | None, typer.Option(metavar="GLOB", help="Repositories, such as acme/shop-*, in any case.")
    ] = None,
    path: Annotated[
        str | None, typer.Option(metavar="GLOB", help="Paths: * is any text, ? one character.")
    ] = None,
    author: Annotated[
        str | None, typer.Option(metavar="GLOB", help="E-mail addresses of a commit's author, in any case.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what the rule matches.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add a rule: new incidents with a place that matches all its conditions are assigned."""
    settings = start()
    scope = checked_scope(repo, path, author)

    async def preview() -> AssignmentPreview:
        async with open_session(settings) as session:
            account = await accounts.get_account(session.db, slug)
            await assignment_rules.find_assignee(session.db, account, assignee)
            return await assignment_rules.preview_rule(session.db, account, scope)

    async def add() -> AssignmentRule:
        async with open_session(settings) as session:
            account = await accounts.get_account(session.db, slug)
            member = await assignment_rules.find_assignee(session.db, account, assignee)
            async with session.db.transaction():
                return await assignment_rules.add_rule(
                    session.db, account, scope, assignee=member, by=OPERATOR, now=session.now
                )

    if dry_run:
        show(_describe_preview(run(preview)), as_json=as_json)
    else:
        show(public_fields(run(add)), as_json=as_json)


@assignment.command("list")
def list_rules(slug: Slug, as_json: AsJson = False) -> None:
    """List the rules of an account. The first that matches counts."""
    settings = start()

    async def main() -> list[AssignmentRule]:
        async with open_session(settings) as session:
            account = await accounts.get_account(session.db, slug)
            return await assignment_rules.list_rules(session.db, account)

    columns = ["id", "repo", "path", "author", "assignee", "is_member", "created_by"]
    show_all([public_fields(rule) for rule in run(main)], columns, as_json=as_json)


@assignment.command("remove")
def remove_rule(
    slug: Slug, id_: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False
) -> None:
    """Remove a rule. What it has assigned stays assigned."""
    settings = start()
    if (rule_id := parse_id(id_)) is None:
        raise BadInputError(f"{id_!r} is not the id of a rule")

    async def main() -> None:
        async with open_session(settings) as session:
            account = await accounts.get_account(session.db, slug)
            async with session.db.transaction():
                await assignment_rules.remove_rule(session.db, account, rule_id, by=OPERATOR, now=session.now)

    run(main)
    show({"id": str(rule_id), "removed": True}, as_json=as_json)


def _describe_preview(preview: AssignmentPreview) -> dict[str, Any]:
    """Return what a rule matches as JSON values."""
    return {
        "matching": preview.matching,
        "unassigned": preview.unassigned,
        "examples": [
            {
                "id": str(incident.id),
                "secret_type": incident.pattern.secret_type,
                "places": incident.places,
                "assignee": incident.assignee,
            }
            for incident in preview.examples
        ],
    }
