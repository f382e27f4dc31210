"""The command `outcrop hook`."""

from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from outcrop.cli import session as cli
from outcrop.cli.session import DEFAULT_BASE_URL, OPERATOR, AsJson, Slug, run, show, show_all, start
from outcrop.domain.account import Account
from outcrop.domain.errors import NotFoundError
from outcrop.domain.ids import parse_id
from outcrop.domain.push import Hook, HookHost
from outcrop.runtime import open_session
from outcrop.services import accounts
from outcrop.services.hooks import manage
from outcrop.services.hooks.manage import NewHook
from outcrop.settings import is_loopback
from outcrop.store.db import Connection

OneAccount = Annotated[
    str | None, typer.Option("--account", metavar="SLUG", help="The account; all accounts by default.")
]

hook = typer.Typer(help="Push hooks: code hosts report a push, and it is scanned.", no_args_is_help=True)


@hook.command("create")
def create_hook(
    slug: Slug,
    host: Annotated[str, typer.Argument(metavar="HOST", help=f"The code host: {', '.join(HookHost)}.")],
    as_json: AsJson = False,
) -> None:
    """Create a push hook. Its address and its secret are shown once."""
    settings = start()
    base_url = settings.base_url or DEFAULT_BASE_URL

    async def main() -> NewHook:
        async with cli.transaction(settings) as session:
            return await manage.create_hook(
                session.db,
                session.keys,
                await accounts.get_account(session.db, slug),
                host,
                base_url=base_url,
                by=OPERATOR,
                now=session.now,
            )

    new = run(main)
    show({"id": str(new.id), "url": new.url, "secret": new.secret}, as_json=as_json)
    if is_loopback(urlsplit(base_url).hostname or ""):
        typer.echo("outcrop: code hosts cannot reach this address: set OUTCROP_BASE_URL first", err=True)


@hook.command("list")
def list_hooks(slug: OneAccount = None, as_json: AsJson = False) -> None:
    """List the push hooks, without their addresses and secrets."""
    settings = start()

    async def main() -> list[Hook]:
        async with open_session(settings) as session:
            chosen = await _choose_accounts(session.db, slug)
            return [hook for account in chosen for hook in await manage.list_hooks(session.db, account)]

    columns = ["id", "account", "host", "created_at", "last_delivery_at", "ignored"]
    show_all([_hook(record) for record in run(main)], columns, as_json=as_json)


@hook.command("remove")
def remove_hook(
    id_: Annotated[str, typer.Argument(metavar="ID")], slug: OneAccount = None, as_json: AsJson = False
) -> None:
    """Remove a push hook: its deliveries are refused from then on."""
    settings = start()

    async def main() -> None:
        async with cli.transaction(settings) as session:
            for account in await _choose_accounts(session.db, slug):
                if parse_id(id_) in {record.id for record in await manage.list_hooks(session.db, account)}:
                    await manage.remove_hook(session.db, account, id_, by=OPERATOR, now=session.now)
                    return
            raise NotFoundError(f"there is no push hook {id_[:100]!r}")

    run(main)
    show({"id": id_, "removed": True}, as_json=as_json)


async def _choose_accounts(db: Connection, slug: str | None) -> list[Account]:
    """Return the account with this name, or all accounts."""
    return await accounts.list_accounts(db) if slug is None else [await accounts.get_account(db, slug)]


def _hook(record: Hook) -> dict[str, Any]:
    def time(value: Any) -> str | None:
        return None if value is None else str(value.isoformat())

    return {
        "id": str(record.id),
        "account": record.account,
        "host": record.host,
        "created_at": record.created_at.isoformat(),
        "created_by": record.created_by,
        "last_delivery_at": time(record.last_delivery_at),
        "ignored": record.ignored,
        "ignored_at": time(record.ignored_at),
        "ignored_repository": record.ignored_repository,
        "is_behind": record.is_behind,
    }
