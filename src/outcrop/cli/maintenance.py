"""`outcrop migrate`, `doctor`, `backup`, `restore` and `secrets`: looking after the database."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from outcrop import __version__
from outcrop.cli import session as cli
from outcrop.cli.progress import bytes_done
from outcrop.cli.session import AsJson, run, show, show_all, start
from outcrop.domain.errors import BadInputError
from outcrop.runtime import open_database, open_session, operator_key
from outcrop.services import backup as backups
from outcrop.services import maintenance
from outcrop.store import db as database
from outcrop.store import schema
from outcrop.store.backup.archive import create_file
from outcrop.store.embedded.server import describe_full_disk
from outcrop.store.keyring import MIN_OPERATOR_KEY_LENGTH

secrets = typer.Typer(help="The key that protects stored credentials.", no_args_is_help=True)


def migrate(as_json: AsJson = False) -> None:
    """Bring the database to this version's schema."""
    settings = start()

    async def main() -> list[str]:
        with open_database(settings) as url:
            async with await database.connect(url) as db:
                return await schema.migrate(db)

    show({"applied": run(main)}, as_json=as_json)


def doctor(as_json: AsJson = False) -> None:
    """Check the database, its schema, the secret key, and that every count is what a recount gives."""
    settings = start()

    async def main() -> list[maintenance.HealthCheck]:
        with open_database(settings) as url:
            async with await database.connect(url) as db:
                return await maintenance.run_health_checks(db, operator_key(settings))

    checks = run(main)
    show_all(
        [{"check": c.name, "ok": c.ok, "detail": c.detail} for c in checks],
        ["check", "ok", "detail"],
        as_json=as_json,
    )
    if not all(check.ok for check in checks):
        raise typer.Exit(2)


def backup(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to make; one that is there is not replaced.")
    ],
    as_json: AsJson = False,
) -> None:
    """Write everything as it is at this moment into one file; the service may go on meanwhile. The secret key is not in it."""
    settings, moment = start(), cli.now()

    async def main(target: BinaryIO, told: Callable[[int], None]) -> backups.BackupSummary:
        with open_database(settings) as url:
            async with await database.connect(url) as db:
                cli.step_back(db.info.backend_pid if settings.database_url is None else None)
                return await backups.write_backup(
                    db, operator_key(settings), target, version=__version__, now=moment, progress=told
                )

    with (
        database.convert_database_errors("the backup failed"),
        create_file(file.absolute()) as target,
        bytes_done("backing up", None) as told,
    ):
        done = run(lambda: main(target, told))
    record = {
        "file": str(file.absolute()),
        "bytes": done.size,
        "made_at": moment.isoformat(),
        "schema": done.schema,
    }
    show(record | _counts(done.rows), as_json=as_json)
    if not as_json:
        where = settings.secret_key_file if settings.secret_key is None else "OUTCROP_SECRET_KEY"
        print(
            f"The secret key ({where}) is not in it and a restore needs it: keep a copy, apart from the backup."
        )


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `outcrop backup` has written.")],
    as_json: AsJson = False,
) -> None:
    """Fill an empty database from a backup, wholly or not at all."""
    settings, moment = start(), cli.now()

    async def main(source: BinaryIO, size: int) -> tuple[backups.VerifiedBackup, backups.RestoreSummary]:
        with bytes_done("checking", size) as told:
            checked = await backups.verify_backup(source, str(file), operator_key(settings), progress=told)
        source.seek(0)
        with bytes_done("restoring", size) as told, open_database(settings) as url:
            async with await database.connect(url) as db, db.transaction():
                return checked, await backups.restore_backup(
                    db, source, str(file), checked, by=cli.OPERATOR, now=moment, progress=told
                )

    def why() -> str:
        room = "" if settings.database_url else describe_full_disk(settings.data_dir)
        return room and f" ({room})"

    with (
        database.convert_database_errors("nothing was restored", why),
        _readable_twice(file) as (source, size),
    ):
        checked, done = run(lambda: main(source, size))
    made_at = checked.header.made_at.isoformat()
    record = {
        "file": str(file.absolute()),
        "made_at": made_at,
        "schema": checked.header.schema,
        "migrated": done.migrated,
    }
    show(
        record | _counts(done.rows) | {"deliveries_unknown": done.deliveries, "runs_ended": done.runs},
        as_json=as_json,
    )
    if not as_json:
        print(
            f"Keys, members and passwords are those of {made_at}: what was revoked or changed since has come back."
        )


def _counts(rows: dict[str, int]) -> dict[str, object]:
    return {"accounts": rows["accounts"], "findings": rows.get("findings", 0), "rows": sum(rows.values())}


@contextmanager
def _readable_twice(file: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file that is looked at first and restored from then."""
    try:
        with file.open("rb") as source:
            if not source.seekable():
                raise BadInputError(f"{file} is read twice: it must be a file")
            yield source, file.stat().st_size
    except OSError as error:
        raise BadInputError(f"cannot read {file}: {error.strerror or error}") from None


@secrets.command("rotate")
def rotate(
    new_key_stdin: Annotated[
        bool,
        typer.Option(
            "--new-key-stdin", help="Read the new key from standard input instead of making one up."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Protect the database's keys with a new secret key. One that is kept in the data folder is replaced there."""
    settings = start()
    new = cli.first_line_of_stdin() if new_key_stdin else os.urandom(32).hex()
    if len(new) < MIN_OPERATOR_KEY_LENGTH:
        raise BadInputError(f"a secret key has at least {MIN_OPERATOR_KEY_LENGTH} characters")

    async def main() -> None:
        async with open_session(settings) as session:
            await maintenance.rotate_key(
                session.db, operator_key(settings), new, by=cli.OPERATOR, now=cli.now()
            )

    run(main)
    kept: dict[str, object] = {"key_file": str(settings.secret_key_file), "new_key": None}
    if settings.secret_key is not None:  # the operator keeps it: show what was made up
        kept = {"key_file": None, "new_key": None if new_key_stdin else new}
    show({"rotated": True} | kept, as_json=as_json)
