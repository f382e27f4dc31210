"""The people of an account, as they themselves see to it: invitations, roles, passwords and the second step of signing in.

Who changes something is a member, whose role of this moment decides, or the operator by name, who may do everything. What has to
hash a password is handed the pool and opens short transactions itself.
"""

import hashlib
import re
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID, uuid4

from outcrop.domain import totp
from outcrop.domain.account import (
    LINK_LIFETIME,
    PERMISSIONS,
    Account,
    LinkKind,
    Member,
    OneTimeLink,
    Role,
    checked_email,
    checked_password,
    manages,
)
from outcrop.domain.errors import (
    BadInputError,
    ForbiddenError,
    NotFoundError,
    SignInError,
    SignInLimitedError,
)
from outcrop.domain.secret import Secret, reveal
from outcrop.store import audit
from outcrop.store.db import Connection, Pool
from outcrop.store.keyring import Keyring
from outcrop.store.people import accounts, links, passwords, second_factors, sessions, sign_in_attempts
from outcrop.store.people.accounts import MemberCredentials

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")  # 256 bits
_BUSY = 5  # seconds to wait where too many passwords are being looked at


@dataclass(frozen=True, slots=True)
class TotpSetup:
    """What an authenticator app is given, once."""

    secret: str = field(repr=False)
    uri: str = field(repr=False)


# --- invitations and other links


async def invite_member(
    db: Connection, account: Account, by: Member | str, *, email: str, role: Role, now: datetime
) -> str:
    """Make a link that lets someone join; an earlier one for the same address works no longer.

    Whether the address belongs to another account is told to the operator only, and to who opens the link.
    """
    email = checked_email(email.strip())
    if not manages(await _role(db, account, by), role):
        raise ForbiddenError("your role does not allow it")
    there = await accounts.lock_member(db, email)
    if there is not None and (there[0] == account.id or isinstance(by, str)):
        raise BadInputError(f"{email} is a member of an account already")
    link = OneTimeLink(
        uuid4(),
        LinkKind.INVITE,
        account.slug,
        email,
        role,
        _name(by),
        now,
        now + LINK_LIFETIME[LinkKind.INVITE],
    )
    token = secrets.token_urlsafe(32)
    invited_by = by.id if isinstance(by, Member) else None
    await links.insert(db, account.id, link, _sha256(token), member_id=None, invited_by=invited_by)
    await audit.append(
        db, account.id, audit.AuditLine(now, _name(by), "user.invite", email, detail={"role": role})
    )
    return token


async def list_invitations(db: Connection, account_id: int) -> list[OneTimeLink]:
    """Newest first."""
    return await links.select_invitations(db, account_id)


async def withdraw_invitation(
    db: Connection, account: Account, by: Member | str, link_id: UUID, now: datetime
) -> None:
    role = await _role(db, account, by)
    if (link := await links.select_invitation(db, account.id, link_id)) is None:
        raise NotFoundError("there is no such invitation")
    if not manages(role, link.role):
        raise ForbiddenError("your role does not allow it")
    await links.delete(db, account.id, link_id)
    await audit.append(
        db,
        account.id,
        audit.AuditLine(now, _name(by), "user.withdraw_invitation", link.email, detail={"role": link.role}),
    )


async def create_reset_link(db: Connection, email: str, *, by: str, now: datetime) -> str:
    """Make a link by which a member sets a new password; for the operator alone."""
    if "\0" in email or (found := await accounts.lock_member(db, email)) is None:
        raise NotFoundError(f"there is no user {email!r}")
    account_id, member = found
    link = OneTimeLink(
        uuid4(),
        LinkKind.RESET,
        member.account,
        member.email,
        member.role,
        by,
        now,
        now + LINK_LIFETIME[LinkKind.RESET],
    )
    token = secrets.token_urlsafe(32)
    await links.insert(db, account_id, link, _sha256(token), member_id=member.id, invited_by=None)
    await audit.append(db, account_id, audit.AuditLine(now, by, "user.reset_link", member.email))
    return token


async def find_link(db: Connection, token: str, *, now: datetime) -> OneTimeLink | None:
    """Tell what a link is for; None where it was used, has expired, or never was."""
    return await links.select(db, _sha256(token), now=now) if _TOKEN.fullmatch(token) else None


async def accept_link(pool: Pool, _keys: Keyring, token: str, *, password: str, now: datetime) -> Member:
    """Use a link up: an invitation makes the member, a reset sets the password and ends every session."""
    checked_password(password)
    async with pool.connection() as db:
        if await find_link(db, token, now=now) is None:
            raise _gone()
    password_hash = await _hashed(password)
    async with pool.connection() as db, db.transaction():
        if (taken := await links.use_link(db, _sha256(token), now=now)) is None:
            raise _gone()
        link = taken.link
        if taken.member_id is None:
            made = accounts.NewMember(uuid4(), link.email, link.role, password_hash)
            await accounts.insert_member(db, taken.account_id, made, now=now)
            line = audit.AuditLine(
                now,
                link.email,
                "user.accept",
                link.email,
                detail={"role": link.role, "invited_by": link.created_by},
            )
            member_id = made.id
        else:
            member_id = taken.member_id
            await accounts.update_password(db, taken.account_id, member_id, password_hash)
            ended = await sessions.delete_all(db, taken.account_id, member_id)
            line = audit.AuditLine(
                now, link.email, "user.set_password", link.email, detail={"sessions_ended": ended}
            )
        await sign_in_attempts.delete_attempts(db, link.email)
        await audit.append(db, taken.account_id, line)
        member = await accounts.select_member(db, taken.account_id, member_id)
        assert member is not None  # noqa: S101 - just written, in this transaction
        return member


# --- roles


async def change_role(
    db: Connection, account: Account, by: Member | str, member_id: UUID, role: Role, *, now: datetime
) -> Member:
    """Give a member another role, which holds at once. Everybody may step down; a step down takes back what one had invited."""
    own = await _role(db, account, by)
    member = await _member(db, account, member_id)
    if member.role is role:
        return member
    down = PERMISSIONS[role] < PERMISSIONS[member.role]
    if not (down and _is(by, member)) and not (manages(own, member.role) and manages(own, role)):
        raise ForbiddenError("your role does not allow it")
    detail: dict[str, object] = {"from": member.role, "to": role}
    if down:
        await _leave_an_owner(db, account, member)
        detail["invitations_withdrawn"] = await links.delete_invitations_by(db, account.id, member.id)
    await accounts.update_role(db, account.id, member.id, role)
    await audit.append(
        db, account.id, audit.AuditLine(now, _name(by), "user.change_role", member.email, detail=detail)
    )
    return await _member(db, account, member_id)


async def remove_member(
    db: Connection, account: Account, by: Member | str, member_id: UUID, *, now: datetime
) -> None:
    """Remove a member with sessions and open invitations. The keys the member made belong to the account and stay."""
    own = await _role(db, account, by)
    member = await _member(db, account, member_id)
    if not manages(own, member.role):
        raise ForbiddenError("your role does not allow it")
    await _leave_an_owner(db, account, member)
    withdrawn = await links.delete_invitations_by(db, account.id, member.id)
    await accounts.delete_member(db, account.id, member.id)
    detail = {"role": member.role, "invitations_withdrawn": withdrawn}
    await audit.append(
        db, account.id, audit.AuditLine(now, _name(by), "user.remove", member.email, detail=detail)
    )


# --- the password and the second step


async def change_password(
    pool: Pool, _keys: Keyring, member: Member, *, old: str, new: str, keep: UUID, now: datetime
) -> None:
    """Set a new password and end every session but the one to keep."""
    checked_password(new)
    confirmed = await _confirm(pool, member, old, "user.change_password", now=now)
    password_hash = await _hashed(new)
    async with pool.connection() as db, db.transaction():
        there = await _unchanged(db, confirmed)
        await accounts.update_password(db, there.account_id, member.id, password_hash)
        ended = await sessions.delete_all(db, there.account_id, member.id, keep=keep)
        line = audit.AuditLine(
            now, member.email, "user.change_password", member.email, detail={"sessions_ended": ended}
        )
        await audit.append(db, there.account_id, line)


async def begin_totp(
    db: Connection, keys: Keyring, account: Account, member: Member, *, now: datetime
) -> TotpSetup:
    """Make a secret for an authenticator app; it asks for nothing until a code has confirmed it."""
    factor = await second_factors.lock(db, account.id, member.id)
    if factor is not None and factor.confirmed:
        raise BadInputError("the second step is on already")
    secret = totp.secret_text(secrets.token_bytes(totp.SECRET_BYTES))
    await second_factors.save_unconfirmed(
        db, account.id, member.id, keys.seal(Secret(secret, mask_all=True), account.id, member.id)
    )
    await audit.append(db, account.id, audit.AuditLine(now, member.email, "user.totp_begin", member.email))
    return TotpSetup(secret, totp.address(secret, member.email))


async def find_pending_totp(
    db: Connection, keys: Keyring, account: Account, member: Member
) -> TotpSetup | None:
    """Give the secret that is still to be confirmed: the app has it already, and another one would leave a dead entry there."""
    factor = await second_factors.lock(db, account.id, member.id)
    if factor is None or factor.confirmed:
        return None
    secret = reveal(keys.open(factor.box, account.id, member.id, mask_all=True))
    return TotpSetup(secret, totp.address(secret, member.email))


async def confirm_totp(db: Connection, keys: Keyring, member: Member, code: str, now: datetime) -> list[str]:
    """Turn the second step on; give the recovery codes, each of which works once."""
    there = await accounts.lock_credentials(db, member.account, member.id)
    factor = None if there is None else await second_factors.lock(db, there.account_id, member.id)
    if there is None or factor is None or factor.confirmed:
        raise BadInputError("there is no second step to confirm")
    secret = reveal(keys.open(factor.box, there.account_id, member.id, mask_all=True))
    if (step := totp.used_step(secret, code, after=factor.last_step, now=now)) is None:
        raise BadInputError(
            "the code is wrong: give the one that the app shows now, and see that its clock is right"
        )
    codes = [totp.recovery_code(secrets.token_bytes(totp.RECOVERY_BYTES)) for _ in range(totp.RECOVERY_CODES)]
    await second_factors.confirm(
        db, there.account_id, member.id, step, [totp.recovery_digest(code) for code in codes], now=now
    )
    await audit.append(db, there.account_id, audit.AuditLine(now, member.email, "user.totp_on", member.email))
    return codes


async def count_recovery_codes(db: Connection, account: Account, member: Member) -> int | None:
    """Count the recovery codes that are left; None where the second step is off."""
    return await second_factors.count_recovery_codes(db, account.id, member.id)


async def disable_totp(pool: Pool, member: Member, *, password: str, now: datetime) -> None:
    """Turn the second step off, by the password."""
    confirmed = await _confirm(pool, member, password, "user.totp_off", now=now)
    async with pool.connection() as db, db.transaction():
        there = await _unchanged(db, confirmed)
        if not await second_factors.delete(db, there.account_id, member.id):
            raise BadInputError("the second step is off already")
        await audit.append(
            db, there.account_id, audit.AuditLine(now, member.email, "user.totp_off", member.email)
        )


async def disable_totp_by_operator(db: Connection, email: str, *, by: str, now: datetime) -> Member:
    """Turn the second step off for a member who has lost the app and the recovery codes; for the operator alone."""
    if "\0" in email or (found := await accounts.lock_member(db, email)) is None:
        raise NotFoundError(f"there is no user {email!r}")
    account_id, member = found
    if await second_factors.delete(db, account_id, member.id):
        await audit.append(db, account_id, audit.AuditLine(now, by, "user.totp_off", member.email))
    return member


async def _confirm(
    pool: Pool, member: Member, password: str, action: str, *, now: datetime
) -> MemberCredentials:
    """Have who is signed in show that they know the password: as many tries as at the door, counted with those."""
    async with pool.connection() as db, db.transaction():
        begun = await sign_in_attempts.begin_attempt(db, member.email, None, now=now)
        known = None if begun.id is None else await accounts.lock_credentials(db, member.account, member.id)
    if begun.id is None:
        raise SignInLimitedError(begun.retry_after)
    try:
        right = await passwords.verify_password(None if known is None else known.password_hash, password)
    except passwords.PasswordQueueFullError:
        raise SignInLimitedError(_BUSY) from None
    async with pool.connection() as db, db.transaction():
        if right and known is not None:
            await sign_in_attempts.delete_attempts(db, member.email)
            return known
        await sign_in_attempts.mark_failed(db, begun.id)
        if known is not None:
            await audit.append(
                db,
                known.account_id,
                audit.AuditLine(now, member.email, action, member.email, "failed", {"wrong": "password"}),
            )
    raise SignInError("the password is wrong")


async def _unchanged(db: Connection, confirmed: MemberCredentials) -> MemberCredentials:
    """Lock the member, whose password must still be the one that was confirmed."""
    there = await accounts.lock_credentials(db, confirmed.member.account, confirmed.member.id)
    if there is None or there.password_hash != confirmed.password_hash:
        raise SignInError("the password was changed meanwhile")
    return there


async def _hashed(password: str) -> str:
    try:
        return await passwords.hash_password(password)
    except passwords.PasswordQueueFullError:
        raise SignInLimitedError(_BUSY) from None


async def _role(db: Connection, account: Account, by: Member | str) -> Role:
    """Give the role of who asks as it is now, which no other change to the account's members alters meanwhile."""
    await accounts.lock_account(db, account.id)
    if isinstance(by, str):
        return Role.OWNER
    if (there := await accounts.select_member(db, account.id, by.id)) is None:
        raise ForbiddenError("you are no member of this account")
    return there.role


async def _member(db: Connection, account: Account, member_id: UUID) -> Member:
    if (member := await accounts.select_member(db, account.id, member_id)) is None:
        raise NotFoundError("there is no such member")
    return member


async def _leave_an_owner(db: Connection, account: Account, member: Member) -> None:
    if member.role is Role.OWNER and await accounts.count_owners(db, account.id) == 1:
        raise BadInputError(f"{member.email} is the last owner: appoint another one first")


def _is(by: Member | str, member: Member) -> bool:
    return isinstance(by, Member) and by.id == member.id


def _name(by: Member | str) -> str:
    return by if isinstance(by, str) else by.email


def _gone() -> NotFoundError:
    return NotFoundError("this link has expired or was used already: ask for a new one")


def _sha256(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
