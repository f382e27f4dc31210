"""The commands `outcrop migrate`, `backup`, `restore` and `secrets`."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from outcrop import __version__
from outcrop.cli import session as cli
from outcrop.cli.progress import byte_progress
from outcrop.cli.session import AsJson, run, show, start
from outcrop.domain import clock
from outcrop.domain.errors import BadInputError
from outcrop.domain.secret import KeepSecrets
from outcrop.runtime import open_database, open_session, operator_key
from outcrop.services import backup as backups
from outcrop.services import maintenance
from outcrop.settings import Settings
from outcrop.store import db as database
from outcrop.store import schema
from outcrop.store.backup.archive import create_file
from outcrop.store.embedded.server import describe_full_disk
from outcrop.store.operator_key import MIN_OPERATOR_KEY_LENGTH

secrets = typer.Typer(help="Stored credentials, and the key that protects them.", no_args_is_help=True)


def migrate(as_json: AsJson = False) -> None:
    """Apply all migrations of this version to the database."""
    settings = start()

    async def main() -> list[str]:
        with open_database(settings) as url:
            async with await database.connect(url) as db:
                return await schema.migrate(db)

    show({"applied": run(main)}, as_json=as_json)


def backup(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to create; an existing file is not replaced.")
    ],
    as_json: AsJson = False,
) -> None:
    """Write a consistent backup into one file, while the service runs. It does not contain the secret key."""
    settings, moment = start(), clock.now()

    async def main(target: BinaryIO, progress: Callable[[int], None]) -> backups.BackupSummary:
        with open_database(settings) as url:
            async with await database.connect(url) as db:
                cli.lower_priority(db.info.backend_pid if settings.database_url is None else None)
                return await backups.write_backup(
                    db, operator_key(settings), target, version=__version__, now=moment, progress=progress
                )

    with (
        database.convert_database_errors("the backup failed"),
        create_file(file.absolute()) as target,
        byte_progress("backing up", None) as progress,
    ):
        summary = run(lambda: main(target, progress))
    record = {
        "file": str(file.absolute()),
        "bytes": summary.size,
        "made_at": moment.isoformat(),
        "schema": summary.schema,
    }
    show(record | _counts(summary.rows), as_json=as_json)
    if not as_json:
        where = settings.secret_key_file if settings.secret_key is None else "OUTCROP_SECRET_KEY"
        print(
            f"The secret key ({where}) is not in the backup, and a restore needs it. Keep a copy elsewhere."
        )


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file written by `outcrop backup`.")],
    as_json: AsJson = False,
) -> None:
    """Restore a backup into an empty database: everything, or nothing if it fails."""
    settings, moment = start(), clock.now()

    async def main(source: BinaryIO, size: int) -> tuple[backups.VerifiedBackup, backups.RestoreSummary]:
        with byte_progress("checking", size) as progress:
            checked = await backups.verify_backup(
                source, str(file), operator_key(settings), progress=progress
            )
        source.seek(0)
        with byte_progress("restoring", size) as progress, open_database(settings) as url:
            async with await database.connect(url) as db, db.transaction():
                return checked, await backups.restore_backup(
                    db, source, str(file), checked, by=cli.OPERATOR, now=moment, progress=progress
                )

    def explain() -> str:
        """Return a hint about a full disk, if there is one."""
        room = "" if settings.database_url else describe_full_disk(settings.data_dir)
        return room and f" ({room})"

    with (
        database.convert_database_errors("nothing was restored", explain),
        _readable_twice(file) as (source, size),
    ):
        checked, summary = run(lambda: main(source, size))
    made_at = checked.header.made_at.isoformat()
    record = {
        "file": str(file.absolute()),
        "made_at": made_at,
        "schema": checked.header.schema,
        "migrated": summary.migrated,
    }
    show(
        record
        | _counts(summary.rows)
        | {"deliveries_unknown": summary.deliveries, "runs_ended": summary.runs},
        as_json=as_json,
    )
    if not as_json:
        print(f"Keys, members and passwords are as of {made_at}; later changes and revocations are undone.")


def _counts(rows: dict[str, int]) -> dict[str, object]:
    """Return the printed counts of a backup: accounts, findings, all rows."""
    return {"accounts": rows["accounts"], "findings": rows.get("findings", 0), "rows": sum(rows.values())}


@contextmanager
def _readable_twice(file: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a seekable file and yield it with its size: it is verified first, then restored."""
    try:
        with file.open("rb") as source:
            if not source.seekable():
                raise BadInputError(f"{file} must be a regular file: it is read twice")
            yield source, file.stat().st_size
    except OSError as error:
        raise BadInputError(f"cannot read {file}: {error.strerror or error}") from None


@secrets.command("keep")
def keep(
    which: Annotated[
        KeepSecrets,
        typer.Argument(metavar="WHICH", help="active: until 30 days after a finding was closed; none."),
    ],
    as_json: AsJson = False,
) -> None:
    """Set which credentials are stored, for all processes of the database. With none, a worker erases all."""
    settings = replace(start(), keep_secrets=None)  # the setting to change may differ

    async def main() -> None:
        async with open_session(settings) as session:
            await maintenance.keep_secrets(session.db, which, by=cli.OPERATOR, now=session.now)

    run(main)
    show({"keep": which}, as_json=as_json)


@secrets.command("rotate")
def rotate(
    new_key_stdin: Annotated[
        bool,
        typer.Option(
            "--new-key-stdin", help="Read the new key from standard input instead of generating one."
        ),
    ] = False,
    data_key: Annotated[
        bool,
        typer.Option(
            "--data-key", help="Encrypt every stored value with a new key, while the service is stopped."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Protect the database's keys with a new secret key. A key file in the data folder is replaced."""
    settings = start()
    if data_key:
        if new_key_stdin:
            raise BadInputError("--data-key cannot be combined with --new-key-stdin")
        _rotate_data_key(settings, as_json=as_json)
        return
    new = cli.first_line_of_stdin() if new_key_stdin else os.urandom(32).hex()
    if len(new) < MIN_OPERATOR_KEY_LENGTH:
        raise BadInputError(f"a secret key must have at least {MIN_OPERATOR_KEY_LENGTH} characters")

    async def main() -> None:
        async with open_session(settings) as session:
            await maintenance.rotate_key(
                session.db, operator_key(settings), new, by=cli.OPERATOR, now=session.now
            )

    run(main)
    result: dict[str, object] = {"key_file": str(settings.secret_key_file), "new_key": None}
    if settings.secret_key is not None:  # the operator stores the key: show the generated one
        result = {"key_file": None, "new_key": None if new_key_stdin else new}
    show({"rotated": True} | result, as_json=as_json)


def _rotate_data_key(settings: Settings, *, as_json: bool) -> None:
    """Encrypt all values with a new data key, and print how many there are."""

    async def main() -> maintenance.DataKeyRotation:
        async with open_session(settings) as session:
            return await maintenance.rotate_data_key(
                session.db, operator_key(settings), os.urandom(32), by=cli.OPERATOR, now=session.now
            )

    result = run(main)
    show({"rotated": True, "values": result.values, "damaged": result.damaged}, as_json=as_json)
