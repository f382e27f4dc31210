"""Store whether credentials are kept: a setting that is the same for all processes of a database.

Each process may state it in `OUTCROP_KEEP_SECRETS`. The stored value counts. Null means `active`, until the
first process that serves or scans stores it.
"""

from outcrop.domain.errors import OperatorError
from outcrop.domain.secret import KeepSecrets
from outcrop.store.db import Connection


async def select(db: Connection) -> KeepSecrets | None:
    """Return the stored value; None if no process has stored it yet."""
    row = await (await db.execute("SELECT keep_secrets FROM keyring")).fetchone()
    return None if row is None or row[0] is None else KeepSecrets(row[0])


async def keeps_secrets(db: Connection) -> bool:
    """Whether credentials are stored, encrypted."""
    return await select(db) is not KeepSecrets.NONE


async def save(db: Connection, value: KeepSecrets) -> None:
    """Store the value, in place of the earlier one."""
    await db.execute("UPDATE keyring SET keep_secrets = %s", [value])


async def settle(db: Connection, stated: KeepSecrets | None) -> None:
    """Store the value that a process states if none is stored; raise OperatorError if another one is.

    A process that states none follows the stored value. If none is stored, it stores `active`.
    """
    await db.execute(
        "UPDATE keyring SET keep_secrets = %s WHERE keep_secrets IS NULL", [stated or KeepSecrets.ACTIVE]
    )
    await check(db, stated)


async def check(db: Connection, stated: KeepSecrets | None) -> None:
    """Raise OperatorError if a process states another value than the stored one."""
    stored = await select(db)
    if stated is not None and stored is not None and stated is not stored:
        raise OperatorError(
            f"OUTCROP_KEEP_SECRETS is {stated}, but this database has {stored}: change the setting,"
            f" or the database with `outcrop secrets keep {stated}`"
        )
