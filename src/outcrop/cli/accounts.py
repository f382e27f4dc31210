"""The commands `outcrop account` and `outcrop key`."""

import sys
from typing import Annotated, Any

import typer

from outcrop.cli import session as cli
from outcrop.cli.session import OPERATOR, AsJson, Slug, run, show, show_all, start
from outcrop.cli.streams import fail
from outcrop.domain.account import Account, ApiKey, Plan
from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import Severity
from outcrop.runtime import open_session
from outcrop.services import accounts, keys

account = typer.Typer(help="Accounts.", no_args_is_help=True)
key = typer.Typer(help="API keys.", no_args_is_help=True)


@account.command("create")
def create_account(
    slug: str,
    plan: Annotated[Plan, typer.Option()],
    email: Annotated[
        str, typer.Option(help="Address that the audit trail names for actions of the account's keys.")
    ],
    as_json: AsJson = False,
) -> None:
    """Create an account."""
    settings = start()

    async def main() -> Account:
        async with cli.transaction(settings) as session:
            return await accounts.create_account(
                session.db, slug=slug, plan=plan, email=email, by=OPERATOR, now=session.now
            )

    show(_account(run(main)), as_json=as_json)


@account.command("list")
def list_accounts(as_json: AsJson = False) -> None:
    """List all accounts."""
    settings = start()

    async def main() -> list[Account]:
        async with open_session(settings) as session:
            return await accounts.list_accounts(session.db)

    show_all([_account(a) for a in run(main)], ["slug", "plan", "email", "created_at"], as_json=as_json)


@account.command("set-plan")
def set_plan(slug: str, plan: Plan, as_json: AsJson = False) -> None:
    """Change an account's plan."""
    settings = start()

    async def main() -> Account:
        async with cli.transaction(settings) as session:
            return await accounts.set_plan(session.db, slug, plan, by=OPERATOR, now=session.now)

    show(_account(run(main)), as_json=as_json)


@account.command("set-sla")
def set_sla(
    slug: str,
    days: Annotated[list[str], typer.Argument(metavar="SEVERITY=DAYS...", help="Such as critical=1.")],
    as_json: AsJson = False,
) -> None:
    """Set within how many days incidents of a severity are due."""
    settings = start()
    parsed = dict(map(_parse_days, days))

    async def main() -> dict[Severity, int]:
        async with cli.transaction(settings) as session:
            after = await accounts.set_due_days(session.db, slug, parsed, by=OPERATOR, now=session.now)
        async with cli.transaction(settings) as session:
            await accounts.apply_due_days(session.db, slug)
        return after

    show({severity.value: number for severity, number in run(main).items()}, as_json=as_json)


def _parse_days(text: str) -> tuple[Severity, int]:
    """Return the severity and the days of an argument. Raise BadInputError if it is malformed."""
    name, _, number = text.partition("=")
    if name not in set(Severity) or not (number.isascii() and number.isdigit() and len(number) < 6):
        raise BadInputError(f"{text!r} is not SEVERITY=DAYS, such as critical=1")
    return Severity(name), int(number)


@account.command("delete")
def delete_account(slug: str, as_json: AsJson = False) -> None:
    """Delete an account and everything in it. This cannot be undone."""
    settings = start()
    if (
        sys.stdin.isatty()
        and typer.prompt(f"This deletes everything of {slug} and cannot be undone. Type the slug to continue")
        != slug
    ):
        fail("nothing was deleted")

    async def main() -> None:
        async with cli.transaction(settings) as session:
            await accounts.delete_account(session.db, slug)

    run(main)
    show({"slug": slug, "deleted": True}, as_json=as_json)


@key.command("create")
def create_key(
    slug: Slug,
    name: Annotated[str, typer.Option(help="What the key is for.")],
    expires_at: Annotated[
        str | None,
        typer.Option(metavar="TS", help="Expiry time (ISO 8601); by default the key does not expire."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create an API key; it is shown once."""
    settings = start()
    expiry = None if expires_at is None else cli.moment(expires_at, "--expires-at")

    async def main() -> keys.NewKey:
        async with cli.transaction(settings) as session:
            account_record = await accounts.get_account(session.db, slug)
            return await keys.create_key(
                session.db,
                account_record,
                name=name,
                expires_at=expiry,
                by=OPERATOR,
                member=None,
                now=session.now,
            )

    new = run(main)
    show(
        {
            "id": str(new.key.id),
            "name": new.key.name,
            "key": new.token,
            "expires_at": _iso(new.key.expires_at),
        },
        as_json=as_json,
    )


@key.command("list")
def list_keys(slug: Slug, as_json: AsJson = False) -> None:
    """List an account's keys; the keys themselves cannot be shown again."""
    settings = start()

    async def main() -> list[ApiKey]:
        async with open_session(settings) as session:
            return await keys.list_keys(session.db, await accounts.get_account(session.db, slug))

    columns = ["id", "name", "hint", "created_at", "created_by", "expires_at", "revoked_at", "last_used_at"]
    show_all([_key(k) for k in run(main)], columns, as_json=as_json)


@key.command("revoke")
def revoke_key(id_: Annotated[str, typer.Argument(metavar="ID")], as_json: AsJson = False) -> None:
    """Revoke a key. This cannot be undone."""
    settings = start()

    async def main() -> str:
        async with cli.transaction(settings) as session:
            return str(await keys.revoke_key(session.db, id_, by=OPERATOR, now=session.now))

    show({"id": run(main), "revoked": True}, as_json=as_json)


def _account(record: Account) -> dict[str, Any]:
    return {
        "slug": record.slug,
        "plan": record.plan,
        "email": record.email,
        "created_at": _iso(record.created_at),
    }


def _key(record: ApiKey) -> dict[str, Any]:
    return {
        "id": str(record.id),
        "name": record.name,
        "hint": record.hint,
        "created_at": _iso(record.created_at),
        "created_by": record.created_by,
        "expires_at": _iso(record.expires_at),
        "revoked_at": _iso(record.revoked_at),
        "last_used_at": _iso(record.last_used_at),
    }


def _iso(value: Any) -> str | None:
    return None if value is None else value.replace(microsecond=0).isoformat()
