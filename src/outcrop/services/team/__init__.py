"""Manage the members of an account from the portal: invitations, roles, and what an account requires.

The parameter `by` is the acting member, whose current role decides, or the name of the operator, who may do
everything. Functions that hash a password get the connection pool and open short transactions themselves.
"""

import hashlib
import secrets
from datetime import datetime
from uuid import UUID, uuid4

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
from outcrop.domain.errors import BadInputError, ForbiddenError, NotFoundError
from outcrop.lazy_regex import regex
from outcrop.notes import mask_random_words
from outcrop.services.team.passwords import hash_password
from outcrop.store import audit
from outcrop.store.db import Connection, Pool
from outcrop.store.people import accounts, links, second_factors, sessions, sign_in_attempts

_TOKEN = regex(r"[A-Za-z0-9_-]{43}")  # 256 bits


# --- invitations and other links


async def invite_member(
    db: Connection, account: Account, by: Member | str, *, email: str, role: Role, now: datetime
) -> str:
    """Create an invitation and return the token of its link; an earlier one for this address becomes invalid.

    Only the operator learns that the address is a member of another account; a member does not.
    """
    email = checked_email(email.strip())
    if not manages(await _lock_role(db, account, by), role):
        raise ForbiddenError("your role does not allow it")
    existing = await accounts.lock_member(db, email)
    if existing is not None and (existing[0] == account.id or isinstance(by, str)):
        raise BadInputError(f"{email} is a member of an account already")
    link = OneTimeLink(
        uuid4(),
        LinkKind.INVITE,
        account.slug,
        email,
        role,
        _actor(by),
        now,
        now + LINK_LIFETIME[LinkKind.INVITE],
    )
    token = secrets.token_urlsafe(32)
    invited_by = by.id if isinstance(by, Member) else None
    await links.insert(db, account.id, link, _sha256(token), member_id=None, invited_by=invited_by)
    await audit.append(
        db,
        account.id,
        audit.AuditLine(now, _actor(by), "user.invite", mask_random_words(email), detail={"role": role}),
    )
    return token


async def list_invitations(db: Connection, account_id: int) -> list[OneTimeLink]:
    """Return the open invitations of an account, newest first."""
    return await links.select_invitations(db, account_id)


async def withdraw_invitation(
    db: Connection, account: Account, by: Member | str, link_id: UUID, now: datetime
) -> None:
    """Delete an invitation, so that its link no longer works."""
    role = await _lock_role(db, account, by)
    if (link := await links.lock_invitation(db, account.id, link_id)) is None:
        raise NotFoundError("there is no such invitation")
    if not manages(role, link.role):
        raise ForbiddenError("your role does not allow it")
    await links.delete(db, account.id, link_id)
    await audit.append(
        db,
        account.id,
        audit.AuditLine(
            now,
            _actor(by),
            "user.withdraw_invitation",
            mask_random_words(link.email),
            detail={"role": link.role},
        ),
    )


async def create_reset_link(db: Connection, email: str, *, by: str, now: datetime) -> str:
    """Create a link with which a member sets a new password, and return its token. For the operator only."""
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
    """Return the link of a token; None if it was used, has expired or never existed."""
    return await links.select(db, _sha256(token), now=now) if _TOKEN.fullmatch(token) else None


async def accept_link(pool: Pool, token: str, *, password: str, now: datetime) -> Member:
    """Use a link once, with the member's new password; return the member.

    An invitation creates the member. A reset link sets the password and ends all sessions.
    """
    checked_password(password)
    async with pool.connection() as db:
        if await find_link(db, token, now=now) is None:
            raise _link_error()
    password_hash = await hash_password(password, token)
    async with pool.connection() as db, db.transaction():
        if (used := await links.use_link(db, _sha256(token), now=now)) is None:
            raise _link_error()
        link = used.link
        if used.member_id is None:
            member_id = uuid4()
            new_member = accounts.NewMember(member_id, link.email, link.role, password_hash)
            try:
                await accounts.insert_member(db, used.account_id, new_member, now=now)
            except (
                BadInputError
            ):  # an inviter may open the link too, and must not learn about another account
                raise _link_error() from None
            line = audit.AuditLine(
                now,
                mask_random_words(link.email),
                "user.accept",
                mask_random_words(link.email),
                detail={"role": link.role, "invited_by": link.created_by},
            )
        else:
            member_id = used.member_id
            await accounts.update_password(db, used.account_id, member_id, password_hash)
            ended = await sessions.delete_all(db, used.account_id, member_id)
            line = audit.AuditLine(
                now, link.email, "user.set_password", link.email, detail={"sessions_ended": ended}
            )
        await sign_in_attempts.delete_attempts(db, link.email)
        await audit.append(db, used.account_id, line)
        member = await accounts.select_member(db, used.account_id, member_id)
        assert member is not None  # noqa: S101 - written in this transaction
        return member


# --- roles


async def change_role(
    db: Connection, account: Account, by: Member | str, member_id: UUID, role: Role, *, now: datetime
) -> Member:
    """Change the role of a member, effective at once; return the member.

    All members may lower their own role. A lowered role withdraws the member's open invitations.
    """
    own_role = await _lock_role(db, account, by)
    member = await _get_member(db, account, member_id)
    if member.role is role:
        return member
    is_lower = PERMISSIONS[role] < PERMISSIONS[member.role]
    is_self = isinstance(by, Member) and by.id == member.id
    is_manager = manages(own_role, member.role) and manages(own_role, role)
    if not (is_lower and is_self) and not is_manager:
        raise ForbiddenError("your role does not allow it")
    detail: dict[str, object] = {"from": member.role, "to": role}
    if is_lower:
        await _require_other_owner(db, account, member)
        detail["invitations_withdrawn"] = await links.delete_invitations_by(db, account.id, member.id)
    await accounts.update_role(db, account.id, member.id, role)
    await audit.append(
        db, account.id, audit.AuditLine(now, _actor(by), "user.change_role", member.email, detail=detail)
    )
    return await _get_member(db, account, member_id)


async def remove_member(
    db: Connection, account: Account, by: Member | str, member_id: UUID, *, now: datetime
) -> None:
    """Remove a member with sessions and open invitations. API keys belong to the account and stay."""
    own_role = await _lock_role(db, account, by)
    member = await _get_member(db, account, member_id)
    if not manages(own_role, member.role):
        raise ForbiddenError("your role does not allow it")
    await _require_other_owner(db, account, member)
    withdrawn = await links.delete_invitations_by(db, account.id, member.id)
    await accounts.delete_member(db, account.id, member.id)
    detail = {"role": member.role, "invitations_withdrawn": withdrawn}
    await audit.append(
        db, account.id, audit.AuditLine(now, _actor(by), "user.remove", member.email, detail=detail)
    )


# --- second factors of the account


async def require_second_factor(
    db: Connection, account: Account, by: Member, *, required: bool, now: datetime
) -> None:
    """Require a second factor of every member of the account, or no longer.

    Raise ForbiddenError unless `by` is an owner, BadInputError if this owner has none: nobody else could
    correct a mistake then.
    """
    if await _lock_role(db, account, by) is not Role.OWNER:
        raise ForbiddenError("only an owner can require a second factor")
    if required and await second_factors.count_recovery_codes(db, account.id, by.id) is None:
        raise BadInputError("turn your own second factor on first")
    if not await accounts.update_requires_second_factor(db, account.id, required=required):
        return
    line = audit.AuditLine(now, by.email, "account.require_totp", account.slug, detail={"required": required})
    await audit.append(db, account.id, line)


async def is_second_factor_required(db: Connection, account: Account) -> bool:
    """Whether every member of the account needs a second factor."""
    return await accounts.requires_second_factor(db, account.id)


async def list_second_factors(db: Connection, account: Account) -> set[UUID]:
    """Return the ids of the members of the account who have a second factor."""
    return await second_factors.select_members(db, account.id)


async def _lock_role(db: Connection, account: Account, by: Member | str) -> Role:
    """Lock the account's members against other changes; return the current role of the actor."""
    await accounts.lock_account(db, account.id)
    if isinstance(by, str):
        return Role.OWNER
    if (member := await accounts.select_member(db, account.id, by.id)) is None:
        raise ForbiddenError("you are not a member of this account")
    return member.role


async def _get_member(db: Connection, account: Account, member_id: UUID) -> Member:
    """Return a member of the account; raise NotFoundError if there is none of this id."""
    if (member := await accounts.select_member(db, account.id, member_id)) is None:
        raise NotFoundError("there is no such member")
    return member


async def _require_other_owner(db: Connection, account: Account, member: Member) -> None:
    """Raise BadInputError if the member is the account's last owner."""
    if member.role is Role.OWNER and await accounts.count_owners(db, account.id) == 1:
        raise BadInputError(f"{member.email} is the last owner: appoint another one first")


def _actor(by: Member | str) -> str:
    """Return the name of the actor for the audit trail."""
    return by if isinstance(by, str) else by.email


def _link_error() -> NotFoundError:
    """Return the error for a link that cannot be used."""
    return NotFoundError("this link has expired or was used already: ask for a new one")


def _sha256(token: str) -> bytes:
    """Return the SHA-256 digest of a token."""
    return hashlib.sha256(token.encode()).digest()
