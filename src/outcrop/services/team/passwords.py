"""Change and check the password of a signed-in member.

The functions get the connection pool and open short transactions themselves: hashing takes long.
"""

from datetime import datetime
from uuid import UUID

from outcrop.domain.account import Member, checked_password
from outcrop.domain.errors import SignInError, SignInLimitedError
from outcrop.store import audit
from outcrop.store.db import Connection, Pool
from outcrop.store.people import accounts, sessions, sign_in_attempts
from outcrop.store.people.accounts import MemberCredentials
from outcrop.store.people.passwords import PASSWORDS, PasswordCaller, PasswordQueueFullError
from outcrop.store.people.sign_in_attempts import Visitor

_RETRY_IF_BUSY = 5  # seconds to wait if too many passwords are being hashed


async def change_password(
    pool: Pool, member: Member, *, old: str, new: str, keep: UUID, now: datetime
) -> None:
    """Set a member's new password, after a check of the old one, and end all sessions except `keep`."""
    checked_password(new)
    confirmed = await confirm_password(pool, member, old, "user.change_password", now=now)
    password_hash = await hash_password(new, str(member.id))
    async with pool.connection() as db, db.transaction():
        current = await lock_unchanged(db, confirmed)
        await accounts.update_password(db, current.account_id, member.id, password_hash)
        ended = await sessions.delete_all(db, current.account_id, member.id, keep=keep)
        line = audit.AuditLine(
            now, member.email, "user.change_password", member.email, detail={"sessions_ended": ended}
        )
        await audit.append(db, current.account_id, line)


async def confirm_password(
    pool: Pool, member: Member, password: str, action: str, *, now: datetime
) -> MemberCredentials:
    """Check the password of a signed-in member; return the member's credentials.

    Failures of the member count together, and apart from those of signing in. `action` is the audit action
    of a failed attempt.
    """
    visitor = Visitor(member.email, None, f"member {member.id}")
    async with pool.connection() as db, db.transaction():
        attempt = await sign_in_attempts.begin_attempt(db, visitor, now=now)
        known = None if attempt.id is None else await accounts.lock_credentials(db, member.account, member.id)
    if attempt.id is None:
        raise SignInLimitedError(attempt.retry_after)
    try:
        is_right = await PASSWORDS.verify(
            None if known is None else known.password_hash, password, PasswordCaller(keys=(str(member.id),))
        )
    except PasswordQueueFullError:
        async with pool.connection() as db:
            await sign_in_attempts.delete_attempt(db, attempt.id)
        raise SignInLimitedError(_RETRY_IF_BUSY) from None
    async with pool.connection() as db, db.transaction():
        if is_right and known is not None:
            await sign_in_attempts.delete_own_attempts(db, visitor)
            return known
        await sign_in_attempts.mark_failed(db, attempt.id)
        if known is not None:
            await audit.append(
                db,
                known.account_id,
                audit.AuditLine(now, member.email, action, member.email, "failed", {"wrong": "password"}),
            )
    raise SignInError("the password is wrong")


async def lock_unchanged(db: Connection, confirmed: MemberCredentials) -> MemberCredentials:
    """Lock and return the member's credentials; raise SignInError if the password was changed meanwhile."""
    current = await accounts.lock_credentials(db, confirmed.member.account, confirmed.member.id)
    if current is None or current.password_hash != confirmed.password_hash:
        raise SignInError("the password was changed meanwhile")
    return current


async def hash_password(password: str, key: str) -> str:
    """Hash a password of the person with this key; raise SignInLimitedError if too many are being hashed."""
    try:
        return await PASSWORDS.hash(password, PasswordCaller(keys=(key,)))
    except PasswordQueueFullError:
        raise SignInLimitedError(_RETRY_IF_BUSY) from None
