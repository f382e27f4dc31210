"""The parts that the hooks of all code hosts share: signatures of a body, and fields of a payload."""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from outcrop.domain.push import HookHost, ReportedPush
from outcrop.domain.secret import Secret, reveal
from outcrop.lazy_regex import regex
from outcrop.limits import PUSH_ADDRESS_LENGTH, PUSH_BRANCHES, PUSH_TEXT_LENGTH
from outcrop.sources.repository_address import normalise_repository

Headers = Mapping[str, str]  # names in lower case
Payload = Mapping[str, Any]
_HEX_DIGEST = regex(r"[0-9a-fA-F]{64}")
_COMMIT = regex(r"[0-9a-f]{7,64}")


class UnreadablePushError(ValueError):
    """A delivery about a push does not name a repository. The text contains nothing of the delivery."""


class BodyCheck:
    """Checks the signatures of a body as it arrives. `signatures` are the accepted digests.

    Without a key, the sender was authenticated by a header, and every body is accepted.
    """

    def __init__(self, key: bytes | None, signatures: tuple[bytes, ...] = (), prefix: bytes = b"") -> None:
        self._signatures = signatures
        self._hmac = None if key is None else hmac.new(key, prefix, hashlib.sha256)

    def update(self, piece: bytes) -> None:
        """Add the next bytes of the body."""
        if self._hmac is not None:
            self._hmac.update(piece)

    def is_authentic(self) -> bool:
        """Whether one of the signatures is that of the body. All are compared, in constant time."""
        if self._hmac is None:
            return True
        digest = self._hmac.digest()
        return any([hmac.compare_digest(signature, digest) for signature in self._signatures])  # noqa: C419


class HookProtocol(NamedTuple):
    """How one code host sends pushes.

    `check` returns None if the headers alone show that the sender is not the host. `read_pushes` returns no
    push for another event, and raises UnreadablePushError.
    """

    check: Callable[[Headers, Secret, float], BodyCheck | None]  # the last argument is a Unix time
    delivery_id: Callable[[Headers, Payload], str | None]
    read_pushes: Callable[[Headers, Payload], list[ReportedPush]]


def check_hex_signature(header: str | None, secret: Secret, prefix: str = "") -> BodyCheck | None:
    """Return the check of a hexadecimal HMAC-SHA-256; None if the header has none."""
    if header is None or not header.startswith(prefix):
        return None
    digest = header[len(prefix) :]
    if _HEX_DIGEST.fullmatch(digest) is None:
        return None
    return BodyCheck(reveal(secret).encode(), (bytes.fromhex(digest),))


def is_secret(given: str, secret: Secret) -> bool:
    """Whether a text is the secret, compared in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), reveal(secret).encode())


# --- fields of a payload, which may have any form


def find(payload: Any, *names: str | int) -> Any:
    """Return the value at a path of keys and indexes; None if there is none."""
    for name in names:
        if isinstance(name, int):
            payload = payload[name] if isinstance(payload, list) and len(payload) > name else None
        else:
            payload = payload.get(name) if isinstance(payload, Mapping) else None
    return payload


def text_of(payload: Any, *names: str | int, limit: int = PUSH_TEXT_LENGTH) -> str | None:
    """Return the text at a path, in one line and cut to `limit`; None if there is none."""
    value = find(payload, *names)
    if not isinstance(value, str):
        return None
    line = " ".join(value.replace("\0", "\ufffd").split())[:limit]
    return line or None


def id_of(payload: Any, *names: str | int) -> str | None:
    """Return the number or text at a path, which identifies a repository."""
    value = find(payload, *names)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return text_of(payload, *names)


def commit_of(payload: Any, *names: str | int) -> str | None:
    """Return the commit id at a path; None for one of zeros, which says that there is no commit."""
    value = find(payload, *names)
    if not isinstance(value, str) or _COMMIT.fullmatch(value) is None:
        return None
    return value if value.strip("0") else None


def branch_name(ref: str | None) -> str | None:
    """Return the name of a branch or tag without `refs/heads/` or `refs/tags/`."""
    if ref is None:
        return None
    return ref.removeprefix("refs/heads/").removeprefix("refs/tags/") or None


def list_of(payload: Any, *names: str | int) -> list[Any]:
    """Return the list at a path; an empty one if there is none."""
    value = find(payload, *names)
    return value if isinstance(value, list) else []


def build_push(
    host: HookHost,
    *,
    repository_id: str | None,
    full_name: str | None,
    addresses: tuple[str | None, ...],
    branches: tuple[str | None, ...],
    author: str | None,
    before: str | None = None,
    after: str | None = None,
) -> ReportedPush:
    """Return a push with the normalised addresses of its repository.

    Raise UnreadablePushError if it has neither an address nor a name.
    """
    normal: dict[str, str] = {}  # normalised address -> as it was written
    for address in addresses:
        if address is not None and len(address) <= PUSH_ADDRESS_LENGTH:
            normalised = normalise_repository(address)
            if normalised is not None and normalised.startswith("https://"):
                normal.setdefault(normalised, address)
    known = tuple(normal)
    if not known and full_name is None:
        raise UnreadablePushError("the delivery does not name a repository")
    named = tuple(dict.fromkeys(branch for branch in branches if branch is not None))
    url = _without_login(normal[known[0]]) if known else None
    return ReportedPush(
        host, repository_id, full_name, known, named[-PUSH_BRANCHES:], author, before, after, url
    )


def _without_login(address: str) -> str:
    """Return the address of a repository without user name, password and query."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
