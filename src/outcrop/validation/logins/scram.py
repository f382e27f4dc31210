"""The client side of SCRAM (RFC 5802, RFC 7677), which proves the password without sending it.

The messages go back and forth in this order: client-first, server-first, client-final, server-final. Channel
binding is not used.
"""

import base64
import hashlib
import hmac
from dataclasses import dataclass, field

from outcrop.limits import SCRAM_ITERATIONS

_NO_CHANNEL_BINDING = "n,,"
_MAX_ITERATION_DIGITS = 7


class ScramError(ValueError):
    """The server breaks the protocol, or its signature shows that it does not know the password."""


@dataclass(slots=True)
class ScramClient:
    """One login. Call the methods in order: each takes the server's last message."""

    algorithm: str  # "sha1" or "sha256"
    user: str
    password: bytes = field(repr=False)
    nonce: str
    is_verified: bool = False  # the server has proved that it knows the password
    _server_signature: bytes = field(default=b"", repr=False)

    @property
    def has_proved(self) -> bool:
        """Whether the password was proved to the server."""
        return bool(self._server_signature)

    def client_first_message(self) -> bytes:
        """Return the client-first message: user name and nonce."""
        return f"{_NO_CHANNEL_BINDING}{self._client_first_bare()}".encode()

    def client_final_message(self, server_first: bytes) -> bytes:
        """Return the client-final message, which proves the password, for the server-first message.

        The signature that the server must send is kept for `verify_server_final`. Raise ScramError if the
        nonce or the iteration count in `server_first` is not acceptable, ValueError if it is not ASCII or its
        salt is not base64.
        """
        challenge = server_first.decode("ascii")
        fields = dict(pair.partition("=")[::2] for pair in challenge.split(","))
        nonce, iterations = fields.get("r", ""), self._parse_iterations(fields.get("i", ""))
        if not nonce.startswith(self.nonce) or nonce == self.nonce:
            raise ScramError
        salt = base64.b64decode(fields.get("s", ""), validate=True)
        salted_password = hashlib.pbkdf2_hmac(self.algorithm, self.password, salt, iterations)
        without_proof = f"c=biws,r={nonce}"  # biws is the base64 of `n,,`
        auth_message = f"{self._client_first_bare()},{challenge},{without_proof}".encode()
        client_key = self._hmac(salted_password, b"Client Key")
        stored_key = hashlib.new(self.algorithm, client_key).digest()
        client_signature = self._hmac(stored_key, auth_message)
        self._server_signature = self._hmac(self._hmac(salted_password, b"Server Key"), auth_message)
        proof = bytes(a ^ b for a, b in zip(client_key, client_signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify_server_final(self, server_final: bytes) -> None:
        """Raise ScramError unless the server-final message proves that the server knows the password too."""
        if not self._server_signature or server_final != b"v=" + base64.b64encode(self._server_signature):
            raise ScramError
        self.is_verified = True

    def _client_first_bare(self) -> str:
        """Return the client-first message without its channel-binding prefix, as it is signed."""
        name = self.user.replace("=", "=3D").replace(",", "=2C")
        return f"n={name},r={self.nonce}"

    def _parse_iterations(self, text: str) -> int:
        """Return the iteration count; raise ScramError if it is not a number from 1 to SCRAM_ITERATIONS."""
        if not (text.isdigit() and len(text) <= _MAX_ITERATION_DIGITS):
            raise ScramError
        iterations = int(text)
        if not 0 < iterations <= SCRAM_ITERATIONS:
            raise ScramError
        return iterations

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        """Return the HMAC of the data with this key and the client's hash algorithm."""
        return hmac.new(key, data, self.algorithm).digest()
