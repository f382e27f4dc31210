"""The command `outcrop suppression`."""

from functools import partial
from typing import Annotated, Any

import typer

from outcrop.cli import session as cli
from outcrop.cli.session import OPERATOR, AsJson, Slug, run, show, show_all, start
from outcrop.domain.errors import BadInputError
from outcrop.domain.ids import parse_id
from outcrop.notes import NoteCleaner
from outcrop.runtime import open_session
from outcrop.scanner.engine.load import load_ruleset
from outcrop.services import accounts, suppressions
from outcrop.services.suppressions import (
    SuppressionPreview,
    SuppressionRule,
    check_reason,
    checked_scope,
    public_fields,
)
from outcrop.sources.workspace import cache_folder

_RULES_SECONDS = 60.0  # a command can wait for the rules, by which credentials are masked

suppression = typer.Typer(help="Rules that hide findings from the active view.", no_args_is_help=True)


@suppression.command("add")
def add_rule(
    *,
    slug: Slug,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why these findings are hidden.")],
    path: Annotated[
        str | None, typer.Option(metavar="GLOB", help="Paths: * is any text, ? one character.")
    ] = None,
    repo: Annotated[
        str | None, typer.Option(metavar="GLOB", help="Repositories, such as acme/docs-*, in any case.")
    ] = None,
    type_: Annotated[
        str | None, typer.Option("--type", metavar="SECRET_TYPE", help="A credential type, such as aws.")
    ] = None,
    expires_at: Annotated[
        str | None, typer.Option(metavar="TS", help="When the rule ends; without an offset in UTC.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what the rule would hide.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add a rule: findings that match all its conditions are hidden, also new ones."""
    settings = start()
    check_reason(reason)
    scope = checked_scope(path, repo, type_)
    expiry = None if expires_at is None else cli.moment(expires_at, "--expires-at")

    async def preview() -> SuppressionPreview:
        async with open_session(settings) as session:
            account = await accounts.get_account(session.db, slug)
            return await suppressions.preview_rule(session.db, account, scope)

    async def add() -> SuppressionRule:
        async with open_session(settings) as session:
            account = await accounts.get_account(session.db, slug)
            own_rules = [settings.rules] if settings.rules else []
            cleaner = NoteCleaner(
                partial(load_ruleset, own_rules, cache=cache_folder()), timeout=_RULES_SECONDS
            )
            masked = await cleaner.clean(session.db, session.keys, account.id, reason)
            async with session.db.transaction():
                rule = await suppressions.add_rule(
                    session.db,
                    account,
                    scope,
                    reason=masked,
                    expires_at=expiry,
                    by=OPERATOR,
                    now=session.now,
                )
            await suppressions.finish_pending(session.db)
            rules = await suppressions.list_rules(session.db, account)
            return next((stored for stored in rules if stored.id == rule.id), rule)

    if dry_run:
        show(_describe_preview(run(preview)), as_json=as_json)
    else:
        show(public_fields(run(add)), as_json=as_json)


@suppression.command("list")
def list_rules(slug: Slug, as_json: AsJson = False) -> None:
    """List the rules of an account that have not ended, newest first."""
    settings = start()

    async def main() -> list[SuppressionRule]:
        async with open_session(settings) as session:
            account = await accounts.get_account(session.db, slug)
            return await suppressions.list_rules(session.db, account)

    columns = ["id", "path", "repo", "type", "hidden", "expires_at", "created_by", "reason"]
    show_all([public_fields(rule) for rule in run(main)], columns, as_json=as_json)


@suppression.command("remove")
def remove_rule(
    slug: Slug, id_: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False
) -> None:
    """End a rule. Findings that only it hid are shown again."""
    settings = start()
    if (rule_id := parse_id(id_)) is None:
        raise BadInputError(f"{id_!r} is not the id of a rule")

    async def main() -> SuppressionRule:
        async with open_session(settings) as session:
            account = await accounts.get_account(session.db, slug)
            async with session.db.transaction():
                rule = await suppressions.end_rule(session.db, account, rule_id, by=OPERATOR, now=session.now)
            await suppressions.finish_pending(session.db)
            return rule

    show(public_fields(run(main)), as_json=as_json)


def _describe_preview(preview: SuppressionPreview) -> dict[str, Any]:
    """Return what a rule would hide as JSON values."""
    return {
        "matching": preview.matching,
        "hidden": preview.hidden,
        "examples": [
            {
                "id": str(finding.id),
                "repo_full_name": finding.repo_full_name,
                "file_path": finding.file_path,
                "secret_type": finding.pattern.secret_type,
            }
            for finding in preview.examples
        ],
    }
