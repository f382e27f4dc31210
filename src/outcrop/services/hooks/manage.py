"""Create, list and remove the push hooks of an account."""

import base64
import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from outcrop.domain.account import Account
from outcrop.domain.errors import BadInputError, NotFoundError
from outcrop.domain.ids import parse_id
from outcrop.domain.push import Hook, HookHost
from outcrop.domain.secret import Secret
from outcrop.lazy_regex import regex
from outcrop.limits import HOOK_DELIVERY_DAYS, HOOK_DELIVERY_IDS, HOOKS
from outcrop.store import audit, hooks
from outcrop.store.db import Connection, Pool
from outcrop.store.keyring import Keyring
from outcrop.store.people import accounts

PATH = "/hooks"
_TOKEN = regex(r"[A-Za-z0-9_-]{43}")
_DELETE_BATCH_SIZE = 5_000  # ids of one hook that one transaction deletes


@dataclass(frozen=True, slots=True)
class NewHook:
    """A created hook, with its address and its secret, which are shown only once."""

    id: UUID
    url: str
    secret: str


async def create_hook(
    db: Connection, keys: Keyring, account: Account, host: str, *, base_url: str, by: str, now: datetime
) -> NewHook:
    """Create a hook for a code host. Raise BadInputError for another host, or if there are too many hooks."""
    try:
        kind = HookHost(host)
    except ValueError:
        raise BadInputError(f"{host[:100]!r} is not one of {', '.join(HookHost)}") from None
    await accounts.lock_account(db, account.id)
    if len(await hooks.select_all(db, account.id)) >= HOOKS:
        raise BadInputError(f"an account has at most {HOOKS} push hooks: remove one first")
    token, secret = secrets.token_urlsafe(32), _new_secret(kind, secrets.token_bytes(32))
    hook = Hook(uuid4(), account.slug, kind, now, by)
    await hooks.insert(
        db,
        account.id,
        hook,
        token_digest=digest_token(token) or b"",
        secret_box=keys.seal(Secret(secret, mask_all=True), account.id, hook.id),
    )
    line = audit.AuditLine(now, by, "hook.create", str(hook.id), detail={"host": kind})
    await audit.append(db, account.id, line)
    return NewHook(hook.id, f"{base_url}{PATH}/{kind}/{token}", secret)


def _new_secret(host: HookHost, random: bytes) -> str:
    """Return a secret: base64 for GitLab, which decodes the key of its signatures, otherwise hexadecimal."""
    return base64.b64encode(random).decode() if host is HookHost.GITLAB else random.hex()


def digest_token(token: str) -> bytes | None:
    """Return the digest of the token in an address; None if the text is no such token.

    The digest has no salt: a token has 256 random bits.
    """
    return hashlib.sha256(token.encode()).digest() if _TOKEN.fullmatch(token) else None


async def list_hooks(db: Connection, account: Account) -> list[Hook]:
    """Return the hooks of an account, oldest first."""
    return await hooks.select_all(db, account.id)


async def remove_hook(db: Connection, account: Account, hook_id: str, *, by: str, now: datetime) -> None:
    """Remove a hook; raise NotFoundError if the account has none with this id."""
    id_ = parse_id(hook_id)
    host = None if id_ is None else await hooks.delete(db, account.id, id_)
    if host is None:
        raise NotFoundError(f"there is no push hook {hook_id[:100]!r}")
    line = audit.AuditLine(now, by, "hook.remove", str(id_), detail={"host": host})
    await audit.append(db, account.id, line)


async def delete_old_deliveries(pool: Pool) -> int:
    """Delete the ids of old deliveries, in several transactions; return how many."""
    deleted = 0
    while True:
        async with pool.connection() as db:
            count = await hooks.delete_old_deliveries(
                db, days=HOOK_DELIVERY_DAYS, most=HOOK_DELIVERY_IDS, limit=_DELETE_BATCH_SIZE
            )
        deleted += count
        if not count:
            return deleted
