"""SCRAM (RFC 5802, 7677): both sides prove that they know the password, and neither sends it."""

import base64
import hashlib
import hmac
from dataclasses import dataclass, field

_MOST_ROUNDS = 300_000  # a server that wants more wants our CPU


class ScramError(ValueError):
    """A server that does not keep to the scheme, or does not know the password itself."""


@dataclass(slots=True)
class Scram:
    """One login: `first`, then `answer` to what the server says, then `check` its own proof."""

    algorithm: str  # sha1 or sha256
    user: str
    password: bytes = field(repr=False)
    nonce: str
    _proof: bytes = field(default=b"", repr=False)

    def first(self) -> bytes:
        return f"n,,{self._bare()}".encode()

    def answer(self, challenge: bytes) -> bytes:
        given = dict(pair.partition("=")[::2] for pair in challenge.decode("ascii").split(","))
        nonce, rounds = given.get("r", ""), given.get("i", "")
        if (
            not nonce.startswith(self.nonce)
            or nonce == self.nonce
            or not (rounds.isdigit() and 0 < len(rounds) < 8)
        ):
            raise ScramError
        if not 0 < int(rounds) <= _MOST_ROUNDS:
            raise ScramError
        salt = base64.b64decode(given.get("s", ""), validate=True)
        salted = hashlib.pbkdf2_hmac(self.algorithm, self.password, salt, int(rounds))
        final = f"c=biws,r={nonce}"  # biws: no channel binding
        said = f"{self._bare()},{challenge.decode('ascii')},{final}".encode()
        key = self._hmac(salted, b"Client Key")
        shown = self._hmac(hashlib.new(self.algorithm, key).digest(), said)
        self._proof = self._hmac(self._hmac(salted, b"Server Key"), said)
        proof = bytes(a ^ b for a, b in zip(key, shown, strict=True))
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def check(self, final: bytes) -> None:
        if not self._proof or final != b"v=" + base64.b64encode(self._proof):
            raise ScramError

    def _bare(self) -> str:
        name = self.user.replace("=", "=3D").replace(",", "=2C")
        return f"n={name},r={self.nonce}"

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.new(key, data, self.algorithm).digest()
