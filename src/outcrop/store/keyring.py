"""Encrypt and fingerprint stored credentials.

The database holds two random keys, one for encryption and one for fingerprints. Both are wrapped
(encrypted) by the operator's key, which comes from OUTCROP_SECRET_KEY or a file and is never in the
database. A check value beside them shows whether an operator's key is the right one. New keys are made only
for a database that has none.
"""

import hashlib
import hmac
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from outcrop.domain.errors import OperatorError
from outcrop.domain.excerpt import Excerpt
from outcrop.domain.secret import Secret, reveal
from outcrop.store.db import Connection, count_other_clients
from outcrop.store.locks import AdvisoryLock

MIN_OPERATOR_KEY_LENGTH = 16  # characters
_CHECK_PLAINTEXT = b"outcrop keyring 1"
_NONCE_BYTES = 12
FINGERPRINT_BYTES = 32
_COMPANIONS_DIGEST_BYTES = 16
_VERDICT_PURPOSE = b"companions of a verdict\0"
_BACKUP_PURPOSE = b"backup"
_BROWSER_PURPOSE = b"known browsers"
# Part of the associated data: only an excerpt's box opens as an excerpt, and only a URL's as a URL.
EXCERPT_PURPOSE = b"excerpt"
URL_PURPOSE = b"url"
_OWNER_ONLY = stat.S_IRWXG | stat.S_IRWXO  # the permissions that a key file must not have
_COMPANIONS_MARK = "\x1e"  # first character of a plaintext that is JSON: the credential and its companions


class DamagedValueError(OperatorError):
    """A stored value cannot be decrypted: it is damaged, or was encrypted for another owner."""


@dataclass(frozen=True, slots=True)
class Keyring:
    """The unwrapped keys of a running process.

    What it encrypts is bound to an account and an owner id (a finding's, target's, webhook's or member's),
    and can be decrypted only for the same two. Otherwise every method that decrypts raises DamagedValueError.
    """

    data_key: bytes = field(repr=False)
    fingerprint_key: bytes = field(repr=False)
    previous_data_key: bytes | None = field(default=None, repr=False)  # while values are encrypted again

    def seal(
        self, secret: Secret, account_id: int, owner_id: UUID, companions: Mapping[str, Secret] | None = None
    ) -> bytes:
        """Encrypt a credential together with its companions, which a validation needs too."""
        value = reveal(secret)
        if companions or value.startswith(_COMPANIONS_MARK):
            value = _COMPANIONS_MARK + json.dumps(
                [value, {name: reveal(companion) for name, companion in (companions or {}).items()}]
            )
        return _encrypt(
            self.data_key, value.encode("utf-8", "surrogatepass"), _associated_data(account_id, owner_id)
        )

    def open(self, box: bytes, account_id: int, owner_id: UUID, *, mask_all: bool) -> Secret:
        """Decrypt a credential, without its companions. `mask_all` is passed to the Secret."""
        return self.open_with_companions(box, account_id, owner_id, mask_all=mask_all)[0]

    def open_with_companions(
        self, box: bytes, account_id: int, owner_id: UUID, *, mask_all: bool
    ) -> tuple[Secret, dict[str, Secret]]:
        """Decrypt a credential and its companions by name."""
        plaintext = self._open(box, _associated_data(account_id, owner_id))
        value = plaintext.decode("utf-8", "surrogatepass")
        if not value.startswith(_COMPANIONS_MARK):
            return Secret(value, mask_all=mask_all), {}
        value, companions = json.loads(value.removeprefix(_COMPANIONS_MARK))
        return (
            Secret(value, mask_all=mask_all),
            {name: Secret(companion) for name, companion in companions.items()},
        )

    def seal_bytes(self, plaintext: bytes, account_id: int, owner_id: UUID) -> bytes:
        """Encrypt bytes that contain credentials, such as staged records."""
        return _encrypt(self.data_key, plaintext, _associated_data(account_id, owner_id))

    def open_bytes(self, box: bytes, account_id: int, owner_id: UUID) -> bytes:
        """Decrypt the result of `seal_bytes`."""
        return self._open(box, _associated_data(account_id, owner_id))

    def seal_url(self, url: str, account_id: int, owner_id: UUID) -> bytes:
        """Encrypt a URL, which may contain a token."""
        return _encrypt(self.data_key, url.encode(), _associated_data(account_id, owner_id) + URL_PURPOSE)

    def open_url(self, box: bytes, account_id: int, owner_id: UUID) -> str:
        """Decrypt a URL."""
        return self._open(box, _associated_data(account_id, owner_id) + URL_PURPOSE).decode()

    def seal_excerpt(self, excerpt: Excerpt, account_id: int, finding_id: UUID) -> bytes:
        """Encrypt the lines around a finding's credential."""
        plaintext = json.dumps([excerpt.first, excerpt.at, excerpt.lines], ensure_ascii=False)
        return _encrypt(
            self.data_key,
            plaintext.encode("utf-8", "replace"),
            _associated_data(account_id, finding_id) + EXCERPT_PURPOSE,
        )

    def open_excerpt(self, box: bytes, account_id: int, finding_id: UUID) -> Excerpt:
        """Decrypt the lines around a finding's credential."""
        plaintext = self._open(box, _associated_data(account_id, finding_id) + EXCERPT_PURPOSE)
        first, at, lines = json.loads(plaintext)
        return Excerpt(first, tuple(lines), at)

    def reencrypt(self, box: bytes, account_id: int, owner_id: UUID, purpose: bytes) -> bytes | None:
        """Return a value encrypted with the newest data key; None if it is already."""
        data = _associated_data(account_id, owner_id) + purpose
        try:
            _decrypt(self.data_key, box, data)
        except (InvalidTag, ValueError):
            return _encrypt(self.data_key, self._open(box, data), data)
        return None

    def _open(self, box: bytes, associated_data: bytes) -> bytes:
        """Decrypt a box with the data key that it was encrypted with."""
        for key in (self.data_key, self.previous_data_key):
            if key is not None:
                with suppress(InvalidTag, ValueError):  # ValueError: it is shorter than a nonce
                    return _decrypt(key, box, associated_data)
        raise DamagedValueError("a stored value is damaged: it cannot be decrypted")

    def compute_backup_mac(self, digest: bytes) -> bytes:
        """Return the MAC of a backup's digest. Without these keys nobody can make a valid one."""
        return hmac.digest(hmac.digest(self.data_key, _BACKUP_PURPOSE, "sha256"), digest, "sha256")

    @property
    def browser_key(self) -> bytes:
        """Return the key that the cookies of known browsers are signed with."""
        return hmac.digest(self.fingerprint_key, _BROWSER_PURPOSE, "sha256")

    def compute_fingerprint(self, secret: Secret) -> bytes:
        """Return the HMAC of the raw value, by which the same credential is recognised in other places.

        Line endings and outer white space of a PEM block do not count.
        """
        raw = reveal(secret)
        if raw.startswith("-----BEGIN "):
            raw = raw.replace("\r\n", "\n").strip()
        return hmac.digest(self.fingerprint_key, raw.encode(), "sha256")

    def compute_verdict_key(self, fingerprint: bytes, companions: Mapping[str, Secret]) -> bytes:
        """Return the key of the verdict on a credential that is checked together with these companions.

        It begins with the fingerprint, and is equal to it without companions.
        """
        if not companions:
            return fingerprint
        parts = sorted((name, reveal(companion)) for name, companion in companions.items())
        text = _VERDICT_PURPOSE + json.dumps(parts).encode()
        return fingerprint + hmac.digest(self.fingerprint_key, text, "sha256")[:_COMPANIONS_DIGEST_BYTES]


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
        _encrypt(wrapping_key, _CHECK_PLAINTEXT, b"check"),
        _encrypt(wrapping_key, keys.data_key, b"data"),
        _encrypt(wrapping_key, keys.fingerprint_key, b"fingerprint"),
        None
        if keys.previous_data_key is None
        else _encrypt(wrapping_key, keys.previous_data_key, b"previous data"),
    )


def _unwrap(row: WrappedKeys, operator_text: str, owner: str) -> Keyring:
    """Decrypt the keys; raise OperatorError, which names `owner`, if the operator's key does not fit."""
    wrapping_key = _derive_wrapping_key(operator_text, row.salt)
    if not _fits(row, wrapping_key):
        raise OperatorError(
            f"the secret key does not fit {owner}: set OUTCROP_SECRET_KEY to the key it was made with"
        )
    return Keyring(
        _decrypt(wrapping_key, row.data_key, b"data"),
        _decrypt(wrapping_key, row.fingerprint_key, b"fingerprint"),
        None
        if row.previous_data_key is None
        else _decrypt(wrapping_key, row.previous_data_key, b"previous data"),
    )


def _fits(row: WrappedKeys, wrapping_key: bytes) -> bool:
    """Whether the row was wrapped by this key, by its check value."""
    try:
        return _decrypt(wrapping_key, row.check_value, b"check") == _CHECK_PLAINTEXT
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


def _associated_data(account_id: int, owner_id: UUID) -> bytes:
    """Return the associated data that binds a ciphertext to its account and owner."""
    return hashlib.sha256(f"{account_id}/{owner_id}".encode()).digest()


def _encrypt(key: bytes, plaintext: bytes, associated_data: bytes) -> bytes:
    """Encrypt with AES-GCM; return a random nonce followed by the ciphertext."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plaintext, associated_data)


def _decrypt(key: bytes, box: bytes, associated_data: bytes) -> bytes:
    """Decrypt the result of `_encrypt`; raise InvalidTag if key or associated data differ."""
    return AESGCM(key).decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], associated_data)
