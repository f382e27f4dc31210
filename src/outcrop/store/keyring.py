"""What protects stored credentials: random keys in the database, wrapped by the operator's key that never is.

A wrong operator's key is told by a check value; a key is never made for a database that has one.
"""

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from outcrop.domain.errors import OperatorError
from outcrop.domain.excerpt import Excerpt
from outcrop.domain.secret import Secret, reveal
from outcrop.store.db import Connection

MIN_OPERATOR_KEY_LENGTH = 16
_LOCK_KEYRING = 7_264_003
_CHECK = b"outcrop keyring 1"
_NONCE = 12
_BACKUP = b"backup"
_EXCERPT = b"excerpt"  # so that no other box opens as one
_WITH_PARTS = "\x1e"  # begins what is more than a bare value


@dataclass(frozen=True, slots=True)
class Keyring:
    """The unwrapped keys of a running process."""

    data_key: bytes = field(repr=False)
    fingerprint_key: bytes = field(repr=False)

    def seal(
        self, secret: Secret, account_id: int, finding_id: UUID, parts: Mapping[str, Secret] | None = None
    ) -> bytes:
        """Encrypt a credential, with its companions where it has some: a check needs them too."""
        value = reveal(secret)
        if parts or value.startswith(_WITH_PARTS):
            value = _WITH_PARTS + json.dumps(
                [value, {name: reveal(part) for name, part in (parts or {}).items()}]
            )
        return _seal(self.data_key, value.encode("utf-8", "surrogatepass"), _owner(account_id, finding_id))

    def open(self, box: bytes, account_id: int, finding_id: UUID, *, mask_all: bool) -> Secret:
        return self.open_with_companions(box, account_id, finding_id, mask_all=mask_all)[0]

    def open_with_companions(
        self, box: bytes, account_id: int, finding_id: UUID, *, mask_all: bool
    ) -> tuple[Secret, dict[str, Secret]]:
        """Give a credential with its companions."""
        value = _open(self.data_key, box, _owner(account_id, finding_id)).decode("utf-8", "surrogatepass")
        if not value.startswith(_WITH_PARTS):
            return Secret(value, mask_all=mask_all), {}
        value, parts = json.loads(value.removeprefix(_WITH_PARTS))
        return Secret(value, mask_all=mask_all), {name: Secret(part) for name, part in parts.items()}

    def seal_excerpt(self, excerpt: Excerpt, account_id: int, finding_id: UUID) -> bytes:
        """Encrypt the lines around a credential, for this purpose and this finding only."""
        plain = json.dumps([excerpt.first, excerpt.at, excerpt.lines], ensure_ascii=False)
        return _seal(
            self.data_key, plain.encode("utf-8", "replace"), _owner(account_id, finding_id) + _EXCERPT
        )

    def open_excerpt(self, box: bytes, account_id: int, finding_id: UUID) -> Excerpt:
        first, at, lines = json.loads(_open(self.data_key, box, _owner(account_id, finding_id) + _EXCERPT))
        return Excerpt(first, tuple(lines), at)

    def compute_backup_mac(self, digest: bytes) -> bytes:
        """Give the code that nobody can make for a backup who has not these keys."""
        return hmac.digest(hmac.digest(self.data_key, _BACKUP, "sha256"), digest, "sha256")

    def compute_fingerprint(self, secret: Secret) -> bytes:
        """Identify the raw value alone; a PEM block is the same however its lines end."""
        raw = reveal(secret)
        if raw.startswith("-----BEGIN "):
            raw = raw.replace("\r\n", "\n").strip()
        return hmac.digest(self.fingerprint_key, raw.encode(), "sha256")


@dataclass(frozen=True, slots=True)
class OperatorKey:
    """Where the operator's key comes from: the environment, or a file in the data folder that is made once."""

    text: str | None = field(repr=False)
    file: Path

    def read(self) -> str | None:
        if self.text is not None:
            return self.text
        try:
            return self.file.read_text("ascii").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise OperatorError(f"cannot read the secret key in {self.file}: {error}") from None


async def unlock_keyring(db: Connection, operator: OperatorKey, random: bytes) -> Keyring:
    """Unwrap the database's keys, or make them where it has none. `random` is 80 fresh bytes, used only to make them."""
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK_KEYRING])
        row = await select_wrapped_keys(db)
        if row is None:
            text = operator.read() or _make_file(operator.file)
            salt, keys = random[:16], Keyring(random[16:48], random[48:80])
            await upsert_wrapped_keys(db, _wrap(keys, text, salt))
            return keys
        _finish_rotation(operator, row)
        if (given := operator.read()) is None:
            raise OperatorError(
                f"the database has keys already, but OUTCROP_SECRET_KEY is not set and {operator.file} is not there: bring the key back"
            )
        return _unwrap(row, given, "this database")


def unwrap_backup_keys(row: "WrappedKeys", operator: OperatorKey, what: str) -> Keyring:
    """Unwrap keys that a backup is made of or from, and touch nothing: a rotation may be under way, or the keys be those of long ago."""
    given = operator.read()
    try:
        if operator.text is None and (next_ := OperatorKey(None, _pending(operator.file)).read()) is not None:
            given = next_ if _fits(row, _wrapping_key(next_, row.salt)) else given
        if given is None:
            raise OperatorError(
                f"the secret key of {what} is needed: set OUTCROP_SECRET_KEY to it, or put it into {operator.file}"
            )
        return _unwrap(row, given, what)
    except (InvalidTag, ValueError):  # of a file that somebody has put together
        raise OperatorError(f"the keys of {what} are damaged") from None


async def rotate_operator_key(db: Connection, operator: OperatorKey, new: str, salt: bytes) -> None:
    """Wrap the same keys with a new operator's key. A crash at any point leaves a pair that fits."""
    pending = _pending(operator.file)
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK_KEYRING])
        row = await select_wrapped_keys(db)
        if row is None or (text := operator.read()) is None:
            raise OperatorError("there is no key to rotate yet")
        keys = _unwrap(row, text, "this database")
        if operator.text is None:
            _write_private(pending, new)
        await upsert_wrapped_keys(db, _wrap(keys, new, salt))
    if operator.text is None:
        pending.replace(operator.file)


@dataclass(frozen=True, slots=True)
class WrappedKeys:
    """The keys as they are stored."""

    salt: bytes
    check_value: bytes
    data_key: bytes
    fingerprint_key: bytes


async def select_wrapped_keys(db: Connection) -> WrappedKeys | None:
    cursor = await db.execute("SELECT salt, check_value, data_key, fingerprint_key FROM keyring")
    row = await cursor.fetchone()
    return None if row is None else WrappedKeys(*row)


async def upsert_wrapped_keys(db: Connection, row: WrappedKeys) -> None:
    await db.execute(
        """INSERT INTO keyring (salt, check_value, data_key, fingerprint_key) VALUES (%s, %s, %s, %s)
           ON CONFLICT (only_row) DO UPDATE SET salt = excluded.salt, check_value = excluded.check_value,
               data_key = excluded.data_key, fingerprint_key = excluded.fingerprint_key""",
        [row.salt, row.check_value, row.data_key, row.fingerprint_key],
    )


def _wrap(keys: Keyring, text: str, salt: bytes) -> WrappedKeys:
    wrapping = _wrapping_key(text, salt)
    return WrappedKeys(
        salt,
        _seal(wrapping, _CHECK, b"check"),
        _seal(wrapping, keys.data_key, b"data"),
        _seal(wrapping, keys.fingerprint_key, b"fingerprint"),
    )


def _unwrap(row: WrappedKeys, text: str, what: str) -> Keyring:
    wrapping = _wrapping_key(text, row.salt)
    if not _fits(row, wrapping):
        raise OperatorError(
            f"the secret key does not fit {what}: set OUTCROP_SECRET_KEY to the key it was made with"
        )
    return Keyring(
        _open(wrapping, row.data_key, b"data"), _open(wrapping, row.fingerprint_key, b"fingerprint")
    )


def _fits(row: WrappedKeys, wrapping: bytes) -> bool:
    try:
        return _open(wrapping, row.check_value, b"check") == _CHECK
    except InvalidTag:
        return False


def _finish_rotation(operator: OperatorKey, row: WrappedKeys) -> None:
    """A rotation that died between the database and the file left the new key beside the old one."""
    pending = _pending(operator.file)
    if operator.text is None and pending.exists():
        if _fits(row, _wrapping_key(pending.read_text("ascii").strip(), row.salt)):
            pending.replace(operator.file)
        else:
            pending.unlink()


def _wrapping_key(text: str, salt: bytes) -> bytes:
    """Slow on purpose: an operator may have set a pass phrase."""
    if len(text) < MIN_OPERATOR_KEY_LENGTH:
        raise OperatorError(
            f"the secret key is too short: give OUTCROP_SECRET_KEY at least {MIN_OPERATOR_KEY_LENGTH} characters, best 64 random ones"
        )
    return Scrypt(salt=salt, length=32, n=2**14, r=8, p=1).derive(text.encode())


def _make_file(path: Path) -> str:
    text = os.urandom(32).hex()
    _write_private(path, text)
    return text


def _write_private(path: Path, text: str) -> None:
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


def _pending(file: Path) -> Path:
    return file.with_name(file.name + ".new")


def _owner(account_id: int, finding_id: UUID) -> bytes:
    return hashlib.sha256(f"{account_id}/{finding_id}".encode()).digest()


def _seal(key: bytes, plain: bytes, owner: bytes) -> bytes:
    nonce = os.urandom(_NONCE)
    return nonce + AESGCM(key).encrypt(nonce, plain, owner)


def _open(key: bytes, box: bytes, owner: bytes) -> bytes:
    return AESGCM(key).decrypt(box[:_NONCE], box[_NONCE:], owner)
