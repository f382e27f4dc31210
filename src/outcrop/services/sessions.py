"""Signing in to the portal and out again, and who a session belongs to.

`sign_in` is handed the pool and opens short transactions itself: a password takes long to compare, and no connection waits for it.
"""

import hashlib
import ipaddress
import re
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID, uuid4

from outcrop.domain import totp
from outcrop.domain.account import EMAIL_LENGTH, PASSWORD_LENGTHS, SessionSummary, SignedInMember
from outcrop.domain.errors import CodeNeededError, NotFoundError, SignInError, SignInLimitedError
from outcrop.domain.secret import reveal
from outcrop.store import audit
from outcrop.store.db import Connection, Pool
from outcrop.store.keyring import Keyring
from outcrop.store.people import accounts, links, passwords, second_factors, sessions, sign_in_attempts
from outcrop.store.people.accounts import MemberCredentials

__all__ = [
    "SessionSummary",
    "SignedInMember",
    "delete_expired",
    "end_session",
    "list_sessions",
    "resume_session",
    "sign_in",
    "sign_out",
    "sign_out_everywhere",
]

AGENT_LENGTH = 300
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")  # 256 bits
_BUSY = 5  # seconds to wait where too many passwords are being looked at


@dataclass(frozen=True, slots=True)
class _Try:
    """One try to sign in, counted as `attempt`."""

    attempt: int
    code: str = field(repr=False)
    address: str
    agent: str
    replaces: str | None = field(repr=False)
    now: datetime

    def line(self, who: MemberCredentials, outcome: str, **detail: object) -> audit.AuditLine:
        told = {"address": self.address, "agent": self.agent} | detail
        return audit.AuditLine(self.now, who.member.email, "session.sign_in", who.member.email, outcome, told)


async def sign_in(
    pool: Pool,
    keys: Keyring,
    *,
    email: str,
    password: str,
    code: str | None,
    address: str,
    agent: str,
    now: datetime,
    replaces: str | None = None,
) -> str:
    """Make a session and give its token; `replaces` is the token that the browser came with, which ends.

    Raise SignInError, the same and after the same work whether the e-mail address is known or not.
    """
    email = _text(email.strip(), EMAIL_LENGTH)
    async with pool.connection() as db, db.transaction():
        begun = await sign_in_attempts.begin_attempt(db, email, _network(address), now=now)
        known = None if begun.id is None else await accounts.select_credentials(db, email)
    if begun.id is None:
        raise SignInLimitedError(begun.retry_after)
    this = _Try(begun.id, code or "", _text(address, 64), _text(agent, AGENT_LENGTH), replaces, now)
    while True:
        right, renewed = await _compare(pool, this, known, password)
        async with pool.connection() as db, db.transaction():
            there = (
                None
                if known is None
                else await accounts.lock_credentials(db, known.member.account, known.member.id)
            )
            if right and there and known and there.password_hash != known.password_hash:
                known = there  # the password was changed meanwhile: the new one decides
                continue
            outcome = await _decide(db, keys, this, there, right=right)
            if renewed is not None and there is not None:
                await accounts.update_password(db, there.account_id, there.member.id, renewed)
        if isinstance(outcome, SignInError):
            raise outcome
        return outcome


async def _compare(
    pool: Pool, this: _Try, known: MemberCredentials | None, password: str
) -> tuple[bool, str | None]:
    """Tell whether the password is right, and give its hash anew where the kept one is outdated."""
    password = password[: PASSWORD_LENGTHS.stop]  # one more than the longest that can be right
    try:
        right = await passwords.verify_password(None if known is None else known.password_hash, password)
        outdated = right and known is not None and passwords.is_outdated(known.password_hash)
        return right, await passwords.hash_password(password) if outdated else None
    except passwords.PasswordQueueFullError:
        async with pool.connection() as db:
            await sign_in_attempts.delete_attempt(db, this.attempt)
        raise SignInLimitedError(_BUSY) from None


async def _decide(
    db: Connection, keys: Keyring, this: _Try, there: MemberCredentials | None, *, right: bool
) -> str | SignInError:
    """Open the session, or give why not: what was counted and recorded has to stay, so nothing is raised here."""
    if there is None or not right:
        return await _fail(db, this, there, "password")
    with_code: dict[str, object] = {}
    factor = await second_factors.lock(db, there.account_id, there.member.id)
    if factor is not None and factor.confirmed:
        if not this.code.strip():
            await sign_in_attempts.delete_attempt(db, this.attempt)
            return CodeNeededError()
        secret = reveal(keys.open(factor.box, there.account_id, there.member.id, mask_all=True))
        step = totp.used_step(secret, this.code, after=factor.last_step, now=this.now)
        if step is not None:
            await second_factors.update_last_step(db, there.account_id, there.member.id, step)
        elif await second_factors.use_recovery_code(db, there.member.id, totp.recovery_digest(this.code)):
            with_code = {
                "recovery_codes_left": await second_factors.count_recovery_codes(
                    db, there.account_id, there.member.id
                )
            }
        else:
            return await _fail(db, this, there, "code")
    return await _open(db, this, there, with_code)


async def _fail(db: Connection, this: _Try, there: MemberCredentials | None, reason: str) -> SignInError:
    await sign_in_attempts.mark_failed(db, this.attempt)
    if there is not None:
        await audit.append(db, there.account_id, this.line(there, "failed", wrong=reason))
    return SignInError()


async def _open(db: Connection, this: _Try, there: MemberCredentials, detail: dict[str, object]) -> str:
    await sign_in_attempts.delete_attempts(db, there.member.email)
    if this.replaces is not None and (old := _digest(this.replaces)) is not None:
        await sessions.delete(db, old)
    token = secrets.token_urlsafe(32)
    line = SessionSummary(uuid4(), this.now, this.now, this.address, this.agent)
    await sessions.insert(db, there.account_id, there.member.id, line, _sha256(token))
    await audit.append(db, there.account_id, this.line(there, "ok", session=str(line.id), **detail))
    return token


async def resume_session(db: Connection, token: str, *, now: datetime) -> SignedInMember | None:
    """Tell who a request comes from; None where the session is over or never was."""
    digest = _digest(token)
    return None if digest is None else await sessions.resume_session(db, digest, now=now)


async def sign_out(db: Connection, token: str, *, now: datetime) -> None:
    """End a session; one that is over already stays so."""
    digest = _digest(token)
    if digest is not None and (ended := await sessions.delete(db, digest)) is not None:
        account_id, session_id, email = ended
        await audit.append(
            db,
            account_id,
            audit.AuditLine(now, email, "session.sign_out", email, detail={"session": str(session_id)}),
        )


async def sign_out_everywhere(
    db: Connection, member_id: UUID, account_id: int, *, keep: UUID | None, by: str, now: datetime
) -> int:
    """End all of a member's sessions but the one to keep; give how many."""
    ended = await sessions.delete_all(db, account_id, member_id, keep=keep)
    if ended:
        detail = {"member": str(member_id), "ended": ended}
        await audit.append(
            db, account_id, audit.AuditLine(now, by, "session.sign_out_everywhere", by, detail=detail)
        )
    return ended


async def list_sessions(db: Connection, account_id: int, member_id: UUID) -> list[SessionSummary]:
    """Give where a member is signed in, last used first."""
    return await sessions.select_all(db, account_id, member_id)


async def end_session(
    db: Connection, account_id: int, member_id: UUID, session_id: UUID, *, by: str, now: datetime
) -> None:
    if not await sessions.delete_one(db, account_id, member_id, session_id):
        raise NotFoundError("there is no such session")
    await audit.append(
        db, account_id, audit.AuditLine(now, by, "session.sign_out", by, detail={"session": str(session_id)})
    )


async def delete_expired(db: Connection, *, now: datetime) -> int:
    """Forget sessions that are over, links that have expired, and tries that no longer count."""
    return (
        await sessions.delete_expired(db, now=now)
        + await links.delete_expired(db, now=now)
        + await sign_in_attempts.delete_expired(db, now=now)
    )


def _digest(token: str) -> bytes | None:
    return _sha256(token) if _TOKEN.fullmatch(token) else None


def _sha256(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _network(address: str) -> str | None:
    """Give what the tries of one place are counted by: whoever has one IPv6 address has the 64 bits below it too."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return str(ipaddress.ip_network((ip, 64), strict=False))
        ip = ip.ipv4_mapped
    return str(ip)


def _text(text: str, length: int) -> str:
    """Make text from a request fit to be stored."""
    return "".join(character for character in text[: 2 * length] if character.isprintable())[:length]
