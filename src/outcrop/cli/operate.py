"""`outcrop migrate`, `doctor` and `secrets`: looking after the database."""

import os
from typing import Annotated

import typer

from outcrop.cli import session as cli
from outcrop.cli.session import AsJson, run, show, show_all, start
from outcrop.domain.errors import BadInputError
from outcrop.runtime import database_url, open_session, operator_key
from outcrop.services import upkeep
from outcrop.store import db as database
from outcrop.store import schema
from outcrop.store.keyring import LONG_ENOUGH

secrets = typer.Typer(help="The key that protects stored credentials.", no_args_is_help=True)


def migrate(as_json: AsJson = False) -> None:
    """Bring the database to this version's schema."""
    settings = start()

    async def main() -> list[str]:
        with database_url(settings) as url:
            async with await database.connect(url) as db:
                return await schema.migrate(db)

    show({"applied": run(main)}, as_json=as_json)


def doctor(as_json: AsJson = False) -> None:
    """Check the database, its schema, the secret key, and that every count is what a recount gives."""
    settings = start()

    async def main() -> list[upkeep.Check]:
        with database_url(settings) as url:
            async with await database.connect(url) as db:
                return await upkeep.examine(db, operator_key(settings))

    checks = run(main)
    show_all([{"check": c.name, "ok": c.ok, "detail": c.detail} for c in checks], ["check", "ok", "detail"], as_json=as_json)
    if not all(check.ok for check in checks):
        raise typer.Exit(2)


@secrets.command("rotate")
def rotate(
    new_key_stdin: Annotated[
        bool, typer.Option("--new-key-stdin", help="Read the new key from standard input instead of making one up.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Protect the database's keys with a new secret key. One that is kept in the data folder is replaced there."""
    settings = start()
    new = cli.first_line_of_stdin() if new_key_stdin else os.urandom(32).hex()
    if len(new) < LONG_ENOUGH:
        raise BadInputError(f"a secret key has at least {LONG_ENOUGH} characters")

    async def main() -> None:
        async with open_session(settings) as session:
            await upkeep.rotate_key(session.db, operator_key(settings), new, by=cli.OPERATOR, now=cli.now())

    run(main)
    kept: dict[str, object] = {"key_file": str(settings.secret_key_file), "new_key": None}
    if settings.secret_key is not None:  # the operator keeps it: show what was made up
        kept = {"key_file": None, "new_key": None if new_key_stdin else new}
    show({"rotated": True} | kept, as_json=as_json)
