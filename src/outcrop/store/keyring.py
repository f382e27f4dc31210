"""Encrypt and fingerprint stored credentials.

The database holds two random keys, one for encryption and one for fingerprints. Both are wrapped
(encrypted) by the operator's key, which comes from OUTCROP_SECRET_KEY or a file and is never in the
database.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from cryptography.exceptions import InvalidTag

from outcrop.domain.errors import OperatorError
from outcrop.domain.excerpt import Excerpt
from outcrop.domain.secret import Secret, reveal
from outcrop.store.aes import decrypt, encrypt

FINGERPRINT_BYTES = 32
_COMPANIONS_DIGEST_BYTES = 16
_VERDICT_PURPOSE = b"companions of a verdict\0"
_BACKUP_PURPOSE = b"backup"
_BROWSER_PURPOSE = b"known browsers"
# Part of the associated data: only an excerpt's box opens as an excerpt, and only a URL's as a URL.
EXCERPT_PURPOSE = b"excerpt"
URL_PURPOSE = b"url"
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
        return encrypt(
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
        return encrypt(self.data_key, plaintext, _associated_data(account_id, owner_id))

    def open_bytes(self, box: bytes, account_id: int, owner_id: UUID) -> bytes:
        """Decrypt the result of `seal_bytes`."""
        return self._open(box, _associated_data(account_id, owner_id))

    def seal_url(self, url: str, account_id: int, owner_id: UUID) -> bytes:
        """Encrypt a URL, which may contain a token."""
        return encrypt(self.data_key, url.encode(), _associated_data(account_id, owner_id) + URL_PURPOSE)

    def open_url(self, box: bytes, account_id: int, owner_id: UUID) -> str:
        """Decrypt a URL."""
        return self._open(box, _associated_data(account_id, owner_id) + URL_PURPOSE).decode()

    def seal_excerpt(self, excerpt: Excerpt, account_id: int, finding_id: UUID) -> bytes:
        """Encrypt the lines around a finding's credential."""
        plaintext = json.dumps([excerpt.first, excerpt.at, excerpt.lines], ensure_ascii=False)
        return encrypt(
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
            decrypt(self.data_key, box, data)
        except (InvalidTag, ValueError):
            return encrypt(self.data_key, self._open(box, data), data)
        return None

    def _open(self, box: bytes, associated_data: bytes) -> bytes:
        """Decrypt a box with the data key that it was encrypted with."""
        for key in (self.data_key, self.previous_data_key):
            if key is not None:
                with suppress(InvalidTag, ValueError):  # ValueError: it is shorter than a nonce
                    return decrypt(key, box, associated_data)
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


def _associated_data(account_id: int, owner_id: UUID) -> bytes:
    """Return the associated data that binds a ciphertext to its account and owner."""
    return hashlib.sha256(f"{account_id}/{owner_id}".encode()).digest()
