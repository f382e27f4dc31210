"""Sign members in to the portal and out again, and find the member of a session.

`sign_in` gets the connection pool and opens short transactions itself: comparing a password takes long, and
no connection is held meanwhile.
"""

import asyncio
import hashlib
import ipaddress
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID, uuid4

from outcrop.domain import totp
from outcrop.domain.account import PASSWORD_LENGTHS, SessionSummary, SignedInMember
from outcrop.domain.errors import (
    CodeNeededError,
    NotFoundError,
    SignInError,
    SignInLimitedError,
    TicketExpiredError,
)
from outcrop.domain.secret import reveal
from outcrop.lazy_regex import regex
from outcrop.limits import AGENT_LENGTH, CLIENT_ADDRESS_LENGTH, EMAIL_LENGTH, SIGN_IN_STEP
from outcrop.store import audit
from outcrop.store.db import Connection, Pool
from outcrop.store.keyring import Keyring
from outcrop.store.people import (
    accounts,
    known_browser,
    links,
    second_factors,
    sessions,
    sign_in_attempts,
    sign_in_ticket,
)
from outcrop.store.people.accounts import MemberCredentials
from outcrop.store.people.passwords import PASSWORDS, PasswordCaller, PasswordQueueFullError, PasswordThreads
from outcrop.store.people.sign_in_attempts import Visitor

__all__ = [
    "SessionSummary",
    "SignedInMember",
    "delete_expired",
    "end_session",
    "list_sessions",
    "remember_browser",
    "resume_session",
    "sign_in",
    "sign_in_with_code",
    "sign_out",
    "sign_out_everywhere",
]

_TOKEN = regex(r"[A-Za-z0-9_-]{43}")  # 256 bits
_RETRY_IF_BUSY = 5  # seconds to wait if too many passwords are being compared


@dataclass(frozen=True, slots=True)
class _SignInRequest:
    """A request to sign in, counted under `attempt_id`."""

    attempt_id: int
    visitor: Visitor
    code: str = field(repr=False)
    address: str
    agent: str
    replaces: str | None = field(repr=False)
    now: datetime

    def audit_line(self, member: MemberCredentials, outcome: str, **detail: object) -> audit.AuditLine:
        """Return the audit line of this attempt of a member."""
        email = member.member.email
        all_detail = {"address": self.address, "agent": self.agent} | detail
        return audit.AuditLine(self.now, email, "session.sign_in", email, outcome, all_detail)


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
    browser: str = "",
    passwords: PasswordThreads = PASSWORDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> str:
    """Start a session and return its token.

    `replaces` is the browser's old token, whose session ends; `browser` is its cookie of a known browser.
    Raise SignInError if e-mail address, password or code is wrong, CodeNeededError if the password is right
    and only the code is missing: its ticket leads to `sign_in_with_code`. Whether the address exists changes
    neither the error nor the time it takes: the error comes after a multiple of SIGN_IN_STEP.
    """
    began = clock()
    email = _clean_text(email.strip(), EMAIL_LENGTH)
    visitor = Visitor(email, _network(address), known_browser.find_id(keys.browser_key, browser, email))
    async with pool.connection() as db, db.transaction():
        attempt = await sign_in_attempts.begin_attempt(db, visitor, now=now)
        compared = None if attempt.id is None else await accounts.select_credentials(db, email)
    if attempt.id is None:
        raise SignInLimitedError(attempt.retry_after)
    request = _SignInRequest(
        attempt.id,
        visitor,
        code or "",
        _clean_text(address, CLIENT_ADDRESS_LENGTH),
        _clean_text(agent, AGENT_LENGTH),
        replaces,
        now,
    )
    result = await _finish_attempt(pool, keys, request, compared, password, passwords=passwords)
    if isinstance(result, SignInError):
        await sleep(SIGN_IN_STEP - (clock() - began) % SIGN_IN_STEP)
        raise result
    return result


async def sign_in_with_code(
    pool: Pool,
    keys: Keyring,
    ticket: str,
    *,
    code: str,
    address: str,
    agent: str,
    now: datetime,
    replaces: str | None = None,
    browser: str = "",
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> tuple[str, str]:
    """Start the session of a member whose password was right; return its token and the member's address.

    Raise TicketExpiredError if the ticket has ended, CodeNeededError without a code, SignInError if the code
    is wrong. A wrong code counts as a failed attempt to sign in.
    """
    began = clock()
    if (email := sign_in_ticket.read_email(ticket, now)) is None:
        raise TicketExpiredError
    visitor = Visitor(email, _network(address), known_browser.find_id(keys.browser_key, browser, email))
    async with pool.connection() as db, db.transaction():
        attempt = await sign_in_attempts.begin_attempt(db, visitor, now=now)
        if attempt.id is not None:
            found = await accounts.select_credentials(db, email)
            result = await _check_code(
                db,
                keys,
                ticket,
                _SignInRequest(
                    *(attempt.id, visitor, code, _clean_text(address, CLIENT_ADDRESS_LENGTH)),
                    *(_clean_text(agent, AGENT_LENGTH), replaces, now),
                ),
                found,
            )
    if attempt.id is None:
        raise SignInLimitedError(attempt.retry_after)
    if isinstance(result, SignInError):
        await sleep(SIGN_IN_STEP - (clock() - began) % SIGN_IN_STEP)
        raise result
    return result, email


async def _check_code(
    db: Connection, keys: Keyring, ticket: str, request: _SignInRequest, found: MemberCredentials | None
) -> str | SignInError:
    """Check ticket and code of a member; return the token of the new session, or the error."""
    current = None
    if found is not None:
        current = await accounts.lock_credentials(db, found.member.account, found.member.id)
    if current is None or not sign_in_ticket.is_genuine(keys.browser_key, ticket, current):
        await sign_in_attempts.delete_attempt(db, request.attempt_id)
        return TicketExpiredError()
    return await _decide(db, keys, request, current, is_right=True)


def remember_browser(keys: Keyring, cookie: str, email: str) -> str:
    """Return the cookie of a browser that a member has signed in with; `cookie` is the one that it has."""
    email = _clean_text(email.strip(), EMAIL_LENGTH)
    return known_browser.add_member(
        keys.browser_key, cookie, email, secrets.token_bytes(known_browser.ID_BYTES)
    )


async def _finish_attempt(
    pool: Pool,
    keys: Keyring,
    request: _SignInRequest,
    compared: MemberCredentials | None,
    password: str,
    *,
    passwords: PasswordThreads,
) -> str | SignInError:
    """Compare the password with that of the member; return the token of a new session, or the error."""
    while True:
        is_right, new_hash = await _compare_password(pool, passwords, request, compared, password)
        async with pool.connection() as db, db.transaction():
            current = None
            if compared is not None:
                current = await accounts.lock_credentials(db, compared.member.account, compared.member.id)
                if is_right and current and current.password_hash != compared.password_hash:
                    compared = current  # the password was changed meanwhile, so compare with the new one
                    continue
            result = await _decide(db, keys, request, current, is_right=is_right)
            if new_hash is not None and current is not None:
                await accounts.update_password(db, current.account_id, current.member.id, new_hash)
        return result


async def _compare_password(
    pool: Pool,
    passwords: PasswordThreads,
    request: _SignInRequest,
    credentials: MemberCredentials | None,
    password: str,
) -> tuple[bool, str | None]:
    """Return whether the password is right, and its new hash if the stored one uses outdated parameters."""
    password = password[: PASSWORD_LENGTHS.stop]  # one character more than the longest valid password
    password_hash = None if credentials is None else credentials.password_hash
    visitor = request.visitor
    strangers_keys = (f"network {visitor.network}", f"member {visitor.email.lower()}")
    keys = strangers_keys if visitor.browser is None else (visitor.browser,)
    caller = PasswordCaller(visitor.browser is not None, keys)
    try:
        is_right = await passwords.verify(password_hash, password, caller)
        is_outdated = is_right and password_hash is not None and passwords.is_outdated(password_hash)
        return is_right, await passwords.hash(password, caller) if is_outdated else None
    except PasswordQueueFullError:
        async with pool.connection() as db:
            await sign_in_attempts.delete_attempt(db, request.attempt_id)
        raise SignInLimitedError(_RETRY_IF_BUSY) from None


async def _decide(
    db: Connection,
    keys: Keyring,
    request: _SignInRequest,
    credentials: MemberCredentials | None,
    *,
    is_right: bool,
) -> str | SignInError:
    """Start the session and return its token, or return the error.

    The error is not raised here, because the counted attempt and the audit line must be committed.
    """
    if credentials is None or not is_right:
        return await _fail(db, request, credentials, "password")
    account_id, member_id = credentials.account_id, credentials.member.id
    detail: dict[str, object] = {}
    factor = await second_factors.lock(db, account_id, member_id)
    if factor is not None and factor.confirmed:
        if not request.code.strip():
            await sign_in_attempts.delete_attempt(db, request.attempt_id)
            return CodeNeededError(sign_in_ticket.write_ticket(keys.browser_key, credentials, request.now))
        secret = reveal(keys.open(factor.box, account_id, member_id, mask_all=True))
        step = totp.used_step(secret, request.code, after=factor.last_step, now=request.now)
        if step is not None:
            await second_factors.update_last_step(db, account_id, member_id, step)
        elif await second_factors.use_recovery_code(db, member_id, totp.recovery_digest(request.code)):
            codes_left = await second_factors.count_recovery_codes(db, account_id, member_id)
            detail["recovery_codes_left"] = codes_left
        else:
            return await _fail(db, request, credentials, "code")
    return await _start_session(db, request, credentials, detail)


async def _fail(
    db: Connection, request: _SignInRequest, credentials: MemberCredentials | None, wrong: str
) -> SignInError:
    """Count a failed attempt and write its audit line; `wrong` is "password" or "code"."""
    await sign_in_attempts.mark_failed(db, request.attempt_id)
    if credentials is not None:
        line = request.audit_line(credentials, "failed", wrong=wrong)
        await audit.append(db, credentials.account_id, line)
    return SignInError()


async def _start_session(
    db: Connection, request: _SignInRequest, credentials: MemberCredentials, detail: dict[str, object]
) -> str:
    """Store a new session, end the one that it replaces, and return the new token."""
    await sign_in_attempts.delete_own_attempts(db, request.visitor)
    if request.replaces is not None and (old := _digest(request.replaces)) is not None:
        await sessions.delete(db, old)
    token = secrets.token_urlsafe(32)
    session = SessionSummary(uuid4(), request.now, request.now, request.address, request.agent)
    await sessions.insert(db, credentials.account_id, credentials.member.id, session, _sha256(token))
    line = request.audit_line(credentials, "ok", session=str(session.id), **detail)
    await audit.append(db, credentials.account_id, line)
    return token


async def resume_session(db: Connection, token: str, *, now: datetime) -> SignedInMember | None:
    """Return the member of a session's token; None if the session has ended or never existed."""
    digest = _digest(token)
    return None if digest is None else await sessions.resume_session(db, digest, now=now)


async def sign_out(db: Connection, token: str, *, now: datetime) -> None:
    """End the session of a token, if it has not ended."""
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
    """End all sessions of a member except `keep`; return how many."""
    ended = await sessions.delete_all(db, account_id, member_id, keep=keep)
    if ended:
        detail = {"member": str(member_id), "ended": ended}
        await audit.append(
            db, account_id, audit.AuditLine(now, by, "session.sign_out_everywhere", by, detail=detail)
        )
    return ended


async def list_sessions(db: Connection, account_id: int, member_id: UUID) -> list[SessionSummary]:
    """Return the sessions of a member, last used first."""
    return await sessions.select_all(db, account_id, member_id)


async def end_session(
    db: Connection, account_id: int, member_id: UUID, session_id: UUID, *, by: str, now: datetime
) -> None:
    """End one session of a member; raise NotFoundError if there is none of this id."""
    if not await sessions.delete_by_id(db, account_id, member_id, session_id):
        raise NotFoundError("there is no such session")
    await audit.append(
        db, account_id, audit.AuditLine(now, by, "session.sign_out", by, detail={"session": str(session_id)})
    )


async def delete_expired(db: Connection, *, now: datetime) -> int:
    """Delete expired sessions and links, and sign-in attempts that no longer count; return how many."""
    return (
        await sessions.delete_expired(db, now=now)
        + await links.delete_expired(db, now=now)
        + await sign_in_attempts.delete_expired(db, now=now)
    )


def _digest(token: str) -> bytes | None:
    """Return the digest that a token is stored under; None if the text cannot be a token."""
    return _sha256(token) if _TOKEN.fullmatch(token) else None


def _sha256(token: str) -> bytes:
    """Return the SHA-256 digest of a token."""
    return hashlib.sha256(token.encode()).digest()


def _network(address: str) -> str | None:
    """Return the network whose sign-in attempts are counted together: an IPv4 address or an IPv6 /64.

    The owner of one IPv6 address usually has its whole /64. None if the text is not an address.
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return str(ipaddress.ip_network((ip, 64), strict=False))
        ip = ip.ipv4_mapped
    return str(ip)


def _clean_text(text: str, length: int) -> str:
    """Drop the characters of a request's text that are not printable, and cut it to `length`."""
    return "".join(character for character in text[: 2 * length] if character.isprintable())[:length]
