"""The command `outcrop user`: members of accounts."""

from datetime import datetime
from typing import Annotated, Any

import typer

from outcrop.cli import session as cli
from outcrop.cli.session import DEFAULT_BASE_URL, OPERATOR, AsJson, Slug, run, show, show_all, start
from outcrop.domain.account import LINK_LIFETIME, LinkKind, Member, Role
from outcrop.domain.errors import BadInputError
from outcrop.runtime import open_session
from outcrop.services import accounts, team
from outcrop.services.team import second_factor
from outcrop.settings import Settings

user = typer.Typer(help="Members of accounts.", no_args_is_help=True)


PasswordStdin = Annotated[
    bool,
    typer.Option("--password-stdin", help="Read the password from standard input instead of generating one."),
]


@user.command("create")
def create_user(
    email: str,
    slug: Slug,
    role: Annotated[Role, typer.Option()] = Role.MEMBER,
    password_stdin: PasswordStdin = False,
    as_json: AsJson = False,
) -> None:
    """Add a member. Unless a password is given, one is generated and shown once."""
    settings = start()
    password = cli.first_line_of_stdin() if password_stdin else None

    async def main() -> tuple[str, str | None]:
        async with cli.transaction(settings) as session:
            account = await accounts.get_account(session.db, slug)
            return await accounts.create_member(
                session.db, account, email=email, role=role, password=password, by=OPERATOR, now=session.now
            )

    created, generated = run(main)
    show({"email": created, "role": role, "password": generated}, as_json=as_json)


@user.command("list")
def list_users(
    slug: Annotated[
        str | None, typer.Option("--account", metavar="SLUG", help="Only members of this account.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List members."""
    settings = start()

    async def main() -> list[Member]:
        async with open_session(settings) as session:
            account = None if slug is None else await accounts.get_account(session.db, slug)
            return await accounts.list_members(session.db, account)

    show_all([_member(m) for m in run(main)], ["email", "role", "account", "created_at"], as_json=as_json)


@user.command("remove")
def remove_user(email: str, as_json: AsJson = False) -> None:
    """Remove a member. API keys that the member created stay valid."""
    settings = start()

    async def main() -> None:
        async with cli.transaction(settings) as session:
            await accounts.remove_member(session.db, email, by=OPERATOR, now=session.now)

    run(main)
    show({"email": email, "removed": True}, as_json=as_json)


@user.command("invite")
def invite_user(
    email: str, slug: Slug, role: Annotated[Role, typer.Option()] = Role.MEMBER, as_json: AsJson = False
) -> None:
    """Create an invitation link. It works once, for 7 days; the invited person sets a password."""
    settings = start()

    async def main() -> tuple[str, datetime]:
        async with cli.transaction(settings) as session:
            account = await accounts.get_account(session.db, slug)
            token = await team.invite_member(
                session.db, account, OPERATOR, email=email, role=role, now=session.now
            )
            return token, session.now

    token, now = run(main)
    _show_link(settings, token, LinkKind.INVITE, now, {"email": email, "role": role}, as_json=as_json)


@user.command("reset-password")
def reset_password(
    email: str,
    password_stdin: PasswordStdin = False,
    link: Annotated[
        bool,
        typer.Option("--link", help="Create a link for setting the password; it works once, for 24 hours."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Set a new password and end all sessions of the member. By default it is generated and shown once."""
    settings = start()
    if link:
        if password_stdin:
            raise BadInputError("--link and --password-stdin cannot be combined")
        _reset_link(settings, email, as_json=as_json)
        return
    password = cli.first_line_of_stdin() if password_stdin else None

    async def main() -> tuple[Member, str | None]:
        async with cli.transaction(settings) as session:
            return await accounts.reset_password(session.db, email, password, by=OPERATOR, now=session.now)

    member, generated = run(main)
    show({"email": member.email, "role": member.role, "password": generated}, as_json=as_json)


@user.command("totp-off")
def turn_totp_off(email: str, as_json: AsJson = False) -> None:
    """Turn off the second factor of a member who has lost the authenticator app."""
    settings = start()

    async def main() -> Member:
        async with cli.transaction(settings) as session:
            return await second_factor.disable_totp_by_operator(
                session.db, email, by=OPERATOR, now=session.now
            )

    show({"email": run(main).email, "totp": False}, as_json=as_json)


def _reset_link(settings: Settings, email: str, *, as_json: bool) -> None:
    """Create and print a link for setting a new password."""

    async def main() -> tuple[str, datetime]:
        async with cli.transaction(settings) as session:
            token = await team.create_reset_link(session.db, email, by=OPERATOR, now=session.now)
            return token, session.now

    token, now = run(main)
    _show_link(settings, token, LinkKind.RESET, now, {"email": email}, as_json=as_json)


def _show_link(
    settings: Settings, token: str, kind: LinkKind, now: datetime, record: dict[str, object], *, as_json: bool
) -> None:
    """Print a one-time link with its expiry time."""
    address = f"{settings.base_url or DEFAULT_BASE_URL}/join/{token}"
    show(record | {"link": address, "expires_at": (now + LINK_LIFETIME[kind]).isoformat()}, as_json=as_json)


def _member(record: Member) -> dict[str, Any]:
    return {
        "email": record.email,
        "role": record.role,
        "account": record.account,
        "created_at": record.created_at.isoformat(),
    }
