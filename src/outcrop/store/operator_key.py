"""The operator's key, and the keys that it wraps.

A check value beside the wrapped keys shows whether an operator's key is the right one. New keys are made only
for a database that has none.
"""

import os
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from outcrop.domain.errors import OperatorError
from outcrop.store.aes import decrypt, encrypt
from outcrop.store.db import Connection, count_other_clients
from outcrop.store.keyring import Keyring
from outcrop.store.locks import AdvisoryLock

MIN_OPERATOR_KEY_LENGTH = 16  # characters
_CHECK_PLAINTEXT = b"outcrop keyring 1"
_OWNER_ONLY = stat.S_IRWXG | stat.S_IRWXO  # the permissions that a key file must not have


@dataclass(frozen=True, slots=True)
class OperatorKey:
    """The source of the operator's key: `text` from the environment, otherwise `file` in the data folder."""

    text: str | None = field(repr=False)
    file: Path

    def read(self) -> str | None:
        """Return the operator's key; None if neither the environment nor the file has one."""
        if self.text is not None:
            return self.text
        try:
            with self.file.open(encoding="ascii") as file:
                if os.fstat(file.fileno()).st_mode & _OWNER_ONLY:
                    raise OperatorError(
                        f"others can read the secret key in {self.file}: run `chmod 600 {self.file}`,"
                        " and `outcrop secrets rotate` if somebody may have read it"
                    )
                return file.read().strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise OperatorError(f"cannot read the secret key in {self.file}: {error}") from None


@dataclass(frozen=True, slots=True)
class WrappedKeys:
    """The row of the table `keyring`: the keys, wrapped by the operator's key."""

    salt: bytes
    check_value: bytes
    data_key: bytes
    fingerprint_key: bytes
    previous_data_key: bytes | None = None


async def unlock_keyring(db: Connection, operator: OperatorKey, random: bytes) -> Keyring:
    """Return the database's keys, unwrapped. Make them first if the database has none.

    `random` is 80 random bytes, used only for new keys.
    """
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock(%s)", [AdvisoryLock.KEYRING])
        row = await select_wrapped_keys(db)
        if row is None:
            text = operator.read() or _create_key_file(operator.file)
            salt, keys = random[:16], Keyring(random[16:48], random[48:80])
            await upsert_wrapped_keys(db, _wrap(keys, text, salt))
            return keys
        _finish_rotation(operator, row)
        if (found := operator.read()) is None:
            raise OperatorError(
                f"the database has keys already, but OUTCROP_SECRET_KEY is not set and {operator.file}"
                " does not exist: bring the key back"
            )
        return _unwrap(row, found, "this database")


def unwrap_backup_keys(row: WrappedKeys, operator: OperatorKey, owner: str) -> Keyring:
    """Return the unwrapped keys of `row`, for making or restoring a backup; write nothing.

    `owner` names the database or backup in error messages. The key file of an unfinished rotation is tried
    first: `row` may be wrapped by either key.
    """
    text = operator.read()
    try:
        if (
            operator.text is None
            and (next_text := OperatorKey(None, _pending_file(operator.file)).read()) is not None
        ):
            text = next_text if _fits(row, _derive_wrapping_key(next_text, row.salt)) else text
        if text is None:
            raise OperatorError(
                f"the secret key of {owner} is needed: set OUTCROP_SECRET_KEY to it,"
                f" or put it into {operator.file}"
            )
        return _unwrap(row, text, owner)
    except (InvalidTag, ValueError):  # the row comes from a forged or damaged backup
        raise OperatorError(f"the keys of {owner} are damaged") from None


async def rotate_operator_key(db: Connection, operator: OperatorKey, new: str, salt: bytes) -> None:
    """Wrap the same keys with the new operator's key, and replace the key file if there is one.

    The new key is first written beside the key file. After a crash at any point, either the old file or the
    new one fits the database (`_finish_rotation` picks it).
    """
    pending = _pending_file(operator.file)
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock(%s)", [AdvisoryLock.KEYRING])
        row = await select_wrapped_keys(db)
        if row is None or (text := operator.read()) is None:
            raise OperatorError("there is no key to rotate yet")
        keys = _unwrap(row, text, "this database")
        if operator.text is None:
            _write_private_file(pending, new)
        await upsert_wrapped_keys(db, _wrap(keys, new, salt))
    if operator.text is None:
        pending.replace(operator.file)


async def begin_data_key_rotation(db: Connection, operator: OperatorKey, new: bytes) -> Keyring:
    """Store a new data key beside the previous one; return both. If both are there already, keep them.

    Raise OperatorError if another program is connected to the database: it knows the previous key only. One
    that connects later waits for the lock, and then knows both.
    """
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock(%s)", [AdvisoryLock.KEYRING])
        if others := await count_other_clients(db):
            raise OperatorError(
                f"{others} other connection{'s' if others > 1 else ''} to the database: stop the service"
                " and all other programs first"
            )
        row = await select_wrapped_keys(db)
        if row is None or (text := operator.read()) is None:
            raise OperatorError("there is no key to rotate yet")
        keys = _unwrap(row, text, "this database")
        if keys.previous_data_key is None:
            keys = replace(keys, data_key=new, previous_data_key=keys.data_key)
            await upsert_wrapped_keys(db, _wrap(keys, text, row.salt))
    return keys


async def end_data_key_rotation(db: Connection) -> None:
    """Delete the previous data key."""
    await db.execute("UPDATE keyring SET previous_data_key = NULL")


async def select_wrapped_keys(db: Connection) -> WrappedKeys | None:
    """Return the database's wrapped keys; None if it has none yet. The schema may be an older one."""
    cursor = await db.execute(
        """SELECT salt, check_value, data_key, fingerprint_key,
                  (to_jsonb(keyring) ->> 'previous_data_key')::bytea FROM keyring"""
    )
    row = await cursor.fetchone()
    return None if row is None else WrappedKeys(*row)


async def upsert_wrapped_keys(db: Connection, row: WrappedKeys) -> None:
    """Save the wrapped keys, in place of the earlier ones."""
    await db.execute(
        """INSERT INTO keyring (salt, check_value, data_key, fingerprint_key) VALUES (%s, %s, %s, %s)
           ON CONFLICT (only_row) DO UPDATE SET salt = excluded.salt, check_value = excluded.check_value,
               data_key = excluded.data_key, fingerprint_key = excluded.fingerprint_key""",
        [row.salt, row.check_value, row.data_key, row.fingerprint_key],
    )
    if row.previous_data_key is not None:  # an older schema, which a backup may have, has no such column
        await db.execute("UPDATE keyring SET previous_data_key = %s", [row.previous_data_key])


def _wrap(keys: Keyring, operator_text: str, salt: bytes) -> WrappedKeys:
    """Encrypt the keys and the check value with a key derived from the operator's key."""
    wrapping_key = _derive_wrapping_key(operator_text, salt)
    return WrappedKeys(
        salt,
        encrypt(wrapping_key, _CHECK_PLAINTEXT, b"check"),
        encrypt(wrapping_key, keys.data_key, b"data"),
        encrypt(wrapping_key, keys.fingerprint_key, b"fingerprint"),
        None
        if keys.previous_data_key is None
        else encrypt(wrapping_key, keys.previous_data_key, b"previous data"),
    )


def _unwrap(row: WrappedKeys, operator_text: str, owner: str) -> Keyring:
    """Decrypt the keys; raise OperatorError, which names `owner`, if the operator's key does not fit."""
    wrapping_key = _derive_wrapping_key(operator_text, row.salt)
    if not _fits(row, wrapping_key):
        raise OperatorError(
            f"the secret key does not fit {owner}: set OUTCROP_SECRET_KEY to the key it was made with"
        )
    return Keyring(
        decrypt(wrapping_key, row.data_key, b"data"),
        decrypt(wrapping_key, row.fingerprint_key, b"fingerprint"),
        None
        if row.previous_data_key is None
        else decrypt(wrapping_key, row.previous_data_key, b"previous data"),
    )


def _fits(row: WrappedKeys, wrapping_key: bytes) -> bool:
    """Whether the row was wrapped by this key, by its check value."""
    try:
        return decrypt(wrapping_key, row.check_value, b"check") == _CHECK_PLAINTEXT
    except InvalidTag:
        return False


def _finish_rotation(operator: OperatorKey, row: WrappedKeys) -> None:
    """Finish or undo a rotation that died before it replaced the key file.

    The new key then lies beside the old one: keep the one that the database's row fits.
    """
    pending = _pending_file(operator.file)
    if operator.text is None and pending.exists():
        if _fits(row, _derive_wrapping_key(pending.read_text("ascii").strip(), row.salt)):
            pending.replace(operator.file)
        else:
            pending.unlink()


def _derive_wrapping_key(operator_text: str, salt: bytes) -> bytes:
    """Derive an AES key from the operator's key. Slow on purpose: that key may be a pass phrase."""
    if len(operator_text) < MIN_OPERATOR_KEY_LENGTH:
        raise OperatorError(
            "the secret key is too short: give OUTCROP_SECRET_KEY at least"
            f" {MIN_OPERATOR_KEY_LENGTH} characters, best 64 random ones"
        )
    return Scrypt(salt=salt, length=32, n=2**14, r=8, p=1).derive(operator_text.encode())


def _create_key_file(path: Path) -> str:
    """Write a new random operator's key to the file, and return it."""
    text = os.urandom(32).hex()
    _write_private_file(path, text)
    return text


def _write_private_file(path: Path, text: str) -> None:
    """Write a file that only this user can read, durably and in one step; replace an existing one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise OperatorError(f"cannot write the secret key to {path}: {error.strerror}") from None


def _pending_file(file: Path) -> Path:
    """Return the path beside the key file at which a rotation writes the new key first."""
    return file.with_name(file.name + ".new")
