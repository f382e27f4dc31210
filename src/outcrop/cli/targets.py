"""The command `outcrop target`."""

from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer

from outcrop.cli import session as cli
from outcrop.cli.session import OPERATOR, AsJson, Slug, run, show, show_all, start
from outcrop.domain.errors import BadInputError
from outcrop.domain.scan import ScanRun, Trigger, public_fields
from outcrop.domain.secret import Secret
from outcrop.domain.target import OPTIONS, Schedule, Target, TargetKind
from outcrop.runtime import open_session
from outcrop.services import accounts, targets
from outcrop.services.pipeline.enqueue import start_run

E = TypeVar("E", bound=StrEnum)

target = typer.Typer(help="Targets of an account: what is scanned, and how often.", no_args_is_help=True)

_SITE = OPTIONS[TargetKind.SITE]


@target.command("add")
def add_target(
    *,
    slug: Slug,
    text: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="github:ORG, gitlab:GROUP, bitbucket:WORKSPACE, gitea:ORG, azuredevops:ORG, gists:USER, "
            "or an https address.",
        ),
    ],
    type_: Annotated[
        str | None,
        typer.Option("--type", metavar="KIND", help=f"One of {', '.join(TargetKind)}; guessed by default."),
    ] = None,
    schedule: Annotated[
        str, typer.Option(metavar="|".join(Schedule), help="How often the target is scanned.")
    ] = Schedule.OFF,
    include: Annotated[
        list[str] | None, typer.Option(metavar="P", help="Scan only matching paths; may be repeated.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="P", help="Skip matching paths; may be repeated.")
    ] = None,
    host_url: Annotated[
        str | None, typer.Option("--host-url", metavar="URL", help="Address of a self-hosted code host.")
    ] = None,
    credential_stdin: Annotated[
        bool, typer.Option("--credential-stdin", help="Read a credential from standard input.")
    ] = False,
    forks: Annotated[bool | None, typer.Option("--forks/--no-forks", help="Include forks.")] = None,
    archived: Annotated[
        bool | None, typer.Option("--archived/--no-archived", help="Include archived repositories.")
    ] = None,
    wikis: Annotated[bool | None, typer.Option("--wikis/--no-wikis", help="Include wikis.")] = None,
    gists: Annotated[
        bool | None, typer.Option("--gists/--no-gists", help="Include the owner's gists.")
    ] = None,
    discussions: Annotated[
        bool | None,
        typer.Option(
            "--discussions/--no-discussions", help="Include issues, merge or pull requests and comments."
        ),
    ] = None,
    poll: Annotated[
        bool | None,
        typer.Option("--poll/--no-poll", help="Ask the host for pushes, where no push hook is possible."),
    ] = None,
    pr_status: Annotated[
        bool | None,
        typer.Option(
            "--pr-status/--no-pr-status", help="Set a commit status on pull requests that are pushed to."
        ),
    ] = None,
    pr_comment: Annotated[
        bool | None,
        typer.Option("--pr-comment/--no-pr-comment", help="Comment on pull requests that have credentials."),
    ] = None,
    leak_places: Annotated[
        bool, typer.Option("--leak-places", help="Also request files that are often published by mistake.")
    ] = False,
    ignore_robots: Annotated[
        bool, typer.Option("--ignore-robots", help="Also scan pages that robots.txt disallows.")
    ] = False,
    depth: Annotated[
        int | None,
        typer.Option(metavar="N", help=f"Maximum number of links to follow; {_SITE['depth']} by default."),
    ] = None,
    pages: Annotated[
        int | None, typer.Option(metavar="N", help=f"Maximum number of pages; {_SITE['pages']} by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add a target to an account."""
    settings = start()
    kind = None if type_ is None else _parse_choice(TargetKind, type_, "--type")
    interval = _parse_choice(Schedule, schedule, "--schedule")
    options = {
        "forks": forks,
        "archived": archived,
        "wikis": wikis,
        "gists": gists,
        "discussions": discussions,
        "poll": poll,
        "pr_status": pr_status,
        "pr_comment": pr_comment,
        "depth": depth,
        "pages": pages,
    }
    options |= {"leak_places": leak_places or None, "robots": False if ignore_robots else None}
    chosen = {name: value for name, value in options.items() if value is not None}
    credential = _credential() if credential_stdin else None

    async def main() -> Target:
        async with cli.transaction(settings) as session:
            return await targets.add_target(
                session.db,
                session.keys,
                await accounts.get_account(session.db, slug),
                text,
                kind=kind,
                schedule=interval,
                include=include or [],
                exclude=exclude or [],
                chosen=chosen,
                credential=credential,
                by=OPERATOR,
                now=session.now,
                host_url=host_url,
                web_host=settings.github_host,
            )

    show(_target(run(main)), as_json=as_json)


@target.command("list")
def list_targets(slug: Slug, as_json: AsJson = False) -> None:
    """List an account's targets, oldest first."""
    settings = start()

    async def main() -> list[Target]:
        async with open_session(settings) as session:
            return await targets.list_targets(
                session.db, session.keys, await accounts.get_account(session.db, slug)
            )

    columns = ["id", "kind", "target", "schedule", "has_credential", "created_at", "next_run_at"]
    show_all([_target(t) for t in run(main)], columns, as_json=as_json)


@target.command("run")
def run_target(
    slug: Slug, id_: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False
) -> None:
    """Start a run of a target now; a worker executes it."""
    settings = start()

    async def main() -> ScanRun:
        async with cli.transaction(settings) as session:
            account = await accounts.get_account(session.db, slug)
            record = await targets.get_target(session.db, session.keys, account, id_)
            return await start_run(
                session.db,
                session.keys,
                account.id,
                record.spec,
                trigger=Trigger.CLI,
                target_id=record.id,
                moment=session.now,
                by=OPERATOR,
            )

    show(public_fields(run(main)), as_json=as_json)


@target.command("remove")
def remove_target(
    slug: Slug, id_: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False
) -> None:
    """Remove a target and its credential; its findings stay."""
    settings = start()

    async def main() -> Target:
        async with cli.transaction(settings) as session:
            account = await accounts.get_account(session.db, slug)
            return await targets.remove_target(session.db, account, id_, by=OPERATOR, now=session.now)

    show({"id": str(run(main).id), "removed": True}, as_json=as_json)


def _parse_choice(kind: type[E], text: str, name: str) -> E:
    """Parse a choice; Typer's own error message would have many lines."""
    try:
        return kind(text)
    except ValueError:
        raise BadInputError(f"{name}: {text!r} is not one of {', '.join(kind)}") from None


def _credential() -> Secret:
    """Read a credential from the first line of standard input."""
    try:
        return Secret(cli.first_line_of_stdin(), mask_all=True)
    except UnicodeDecodeError:
        raise BadInputError("the credential is not valid UTF-8") from None


def _target(record: Target) -> dict[str, Any]:
    own_host = {} if record.spec.host_url is None else {"host_url": record.spec.host_url}
    return {
        "id": str(record.id),
        "kind": record.spec.kind,
        "target": record.spec.name,
        "schedule": record.schedule,
        "include": list(record.spec.include),
        "exclude": list(record.spec.exclude),
        "options": record.spec.options,
        "has_credential": record.has_credential,
        "created_at": record.created_at.isoformat(),
        "next_run_at": None if record.next_run_at is None else record.next_run_at.isoformat(),
    } | own_host
