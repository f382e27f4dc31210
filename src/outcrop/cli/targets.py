"""`outcrop target`."""

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

target = typer.Typer(help="Where an account has us look.", no_args_is_help=True)

_SITE = OPTIONS[TargetKind.SITE]


@target.command("add")
def add_target(
    *,
    slug: Slug,
    text: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="github:ORG, github:ORG/NAME, gists:USER, or an https address."
        ),
    ],
    type_: Annotated[
        str | None,
        typer.Option("--type", metavar="KIND", help=f"One of {', '.join(TargetKind)}; else guessed."),
    ] = None,
    schedule: Annotated[
        str, typer.Option(metavar="|".join(Schedule), help="How often it is looked at.")
    ] = Schedule.OFF,
    include: Annotated[
        list[str] | None, typer.Option(metavar="P", help="Look only at what matches; may be given again.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="P", help="Leave out what matches; may be given again.")
    ] = None,
    credential_stdin: Annotated[
        bool, typer.Option("--credential-stdin", help="Read a credential from standard input.")
    ] = False,
    forks: Annotated[bool | None, typer.Option("--forks/--no-forks", help="Forks too.")] = None,
    archived: Annotated[
        bool | None, typer.Option("--archived/--no-archived", help="Archived repositories too.")
    ] = None,
    wikis: Annotated[bool | None, typer.Option("--wikis/--no-wikis", help="Wikis too.")] = None,
    gists: Annotated[bool | None, typer.Option("--gists/--no-gists", help="Gists of the owner too.")] = None,
    leak_places: Annotated[
        bool, typer.Option("--leak-places", help="Also ask for files that are often left there by mistake.")
    ] = False,
    ignore_robots: Annotated[
        bool, typer.Option("--ignore-robots", help="Look where robots.txt asks not to.")
    ] = False,
    depth: Annotated[
        int | None, typer.Option(metavar="N", help=f"How many links away; {_SITE['depth']} by default.")
    ] = None,
    pages: Annotated[
        int | None, typer.Option(metavar="N", help=f"How many pages at most; {_SITE['pages']} by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add a target to an account."""
    settings = start()
    kind = None if type_ is None else _one_of(TargetKind, type_, "--type")
    often = _one_of(Schedule, schedule, "--schedule")
    options = {
        "forks": forks,
        "archived": archived,
        "wikis": wikis,
        "gists": gists,
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
                schedule=often,
                include=include or [],
                exclude=exclude or [],
                chosen=chosen,
                credential=credential,
                by=OPERATOR,
                now=cli.now(),
                web_host=settings.github_host,
            )

    show(_target(run(main)), as_json=as_json)


@target.command("list")
def list_targets(slug: Slug, as_json: AsJson = False) -> None:
    """List an account's targets, oldest first."""
    settings = start()

    async def main() -> list[Target]:
        async with open_session(settings) as session:
            return await targets.list_targets(session.db, await accounts.get_account(session.db, slug))

    columns = ["id", "kind", "target", "schedule", "has_credential", "created_at", "next_run_at"]
    show_all([_target(t) for t in run(main)], columns, as_json=as_json)


@target.command("run")
def run_target(
    slug: Slug, id_: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False
) -> None:
    """Have a worker look at a target now."""
    settings = start()

    async def main() -> ScanRun:
        async with cli.transaction(settings) as session:
            there = await accounts.get_account(session.db, slug)
            found = await targets.get_target(session.db, there, id_)
            return await start_run(
                session.db,
                there.id,
                found.spec,
                trigger=Trigger.CLI,
                target_id=found.id,
                moment=cli.now(),
                by=OPERATOR,
            )

    show(public_fields(run(main)), as_json=as_json)


@target.command("remove")
def remove_target(
    slug: Slug, id_: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False
) -> None:
    """Remove a target and its credential; what was found there stays."""
    settings = start()

    async def main() -> Target:
        async with cli.transaction(settings) as session:
            there = await accounts.get_account(session.db, slug)
            return await targets.remove_target(session.db, there, id_, by=OPERATOR, now=cli.now())

    show({"id": str(run(main).id), "removed": True}, as_json=as_json)


def _one_of(kind: type[E], text: str, name: str) -> E:
    """Read a choice here, not in Typer, whose complaint has many lines."""
    try:
        return kind(text)
    except ValueError:
        raise BadInputError(f"{name}: {text!r} is none of {', '.join(kind)}") from None


def _credential() -> Secret:
    try:
        return Secret(cli.first_line_of_stdin(), mask_all=True)
    except UnicodeDecodeError:
        raise BadInputError("the credential is no text in UTF-8") from None


def _target(record: Target) -> dict[str, Any]:
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
    }
