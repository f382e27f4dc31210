"""Create, list and revoke API keys."""

import secrets
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID, uuid4

from outcrop.domain.account import Account, ApiKey, new_token, token_digest, token_hint
from outcrop.domain.errors import BadInputError, NotFoundError
from outcrop.domain.ids import parse_id
from outcrop.limits import NAME_LENGTH
from outcrop.store import audit
from outcrop.store.db import Connection
from outcrop.store.people import keys


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new API key with its token."""

    key: ApiKey
    token: str = field(repr=False)  # shown once, stored nowhere


async def create_key(
    db: Connection,
    account: Account,
    *,
    name: str,
    expires_at: datetime | None,
    by: str,
    member: str | None,
    now: datetime,
) -> NewKey:
    """Create an API key for a member, or for the account itself if `member` is None."""
    check_name(name)
    if expires_at is not None and expires_at <= now:
        raise BadInputError("the key would have expired already")
    token = new_token(secrets.token_bytes(32))
    digest = token_digest(token)
    assert digest is not None  # noqa: S101 - a token just made is well-formed
    key = ApiKey(uuid4(), name, token_hint(token), now, member, expires_at, None, None)
    await keys.insert(db, account.id, key, digest)
    expiry = {} if expires_at is None else {"expires_at": expires_at.isoformat()}
    await audit.append(
        db, account.id, audit.AuditLine(now, by, "key.create", str(key.id), detail={"name": name} | expiry)
    )
    return NewKey(key, token)


def check_name(name: str) -> None:
    """Raise BadInputError if the name of a key is too long, empty or not printable."""
    if len(name) > NAME_LENGTH or not name.strip() or not name.isprintable():
        raise BadInputError(f"a key's name has 1 to {NAME_LENGTH} printable characters")


async def list_keys(db: Connection, account: Account) -> list[ApiKey]:
    """Return all API keys of an account, revoked ones too."""
    return await keys.select_all(db, account.id)


async def revoke_key(db: Connection, key_id: str, *, by: str, now: datetime) -> UUID:
    """Revoke a key permanently and return its id; revoking it again changes nothing."""
    if (id_ := parse_id(key_id)) is None:
        raise BadInputError(f"{key_id!r} is not a key id; `outcrop key list` shows them")
    if (found := await keys.revoke(db, id_, now=now)) is None:
        raise NotFoundError(f"there is no key {key_id}")
    account_id, name, done = found
    if done:
        await audit.append(
            db, account_id, audit.AuditLine(now, by, "key.revoke", str(id_), detail={"name": name})
        )
    return id_
