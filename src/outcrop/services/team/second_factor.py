"""Turn the second factor of a member on and off, and renew its recovery codes."""

import secrets
from dataclasses import dataclass, field
from datetime import datetime

from outcrop.domain import totp
from outcrop.domain.account import Account, Member
from outcrop.domain.errors import BadInputError, NotFoundError
from outcrop.domain.secret import Secret, reveal
from outcrop.services.team.passwords import confirm_password, lock_unchanged
from outcrop.store import audit
from outcrop.store.db import Connection, Pool
from outcrop.store.keyring import Keyring
from outcrop.store.people import accounts, second_factors


@dataclass(frozen=True, slots=True)
class TotpSetup:
    """The secret for an authenticator app, as text and as an `otpauth` URI. It is shown once."""

    secret: str = field(repr=False)
    uri: str = field(repr=False)


async def begin_totp(pool: Pool, keys: Keyring, member: Member, *, password: str, now: datetime) -> TotpSetup:
    """Create the secret of a second factor, after a check of the password.

    Signing in needs no code before `confirm_totp`.
    """
    confirmed = await confirm_password(pool, member, password, "user.totp_begin", now=now)
    secret = totp.secret_text(secrets.token_bytes(totp.SECRET_BYTES))
    async with pool.connection() as db, db.transaction():
        account_id = (await lock_unchanged(db, confirmed)).account_id
        factor = await second_factors.lock(db, account_id, member.id)
        if factor is not None and factor.confirmed:
            raise BadInputError("the second step is on already")
        await second_factors.save_unconfirmed(
            db, account_id, member.id, keys.seal(Secret(secret, mask_all=True), account_id, member.id)
        )
        line = audit.AuditLine(now, member.email, "user.totp_begin", member.email)
        await audit.append(db, account_id, line)
    return TotpSetup(secret, totp.address(secret, member.email))


async def find_pending_totp(
    db: Connection, keys: Keyring, account: Account, member: Member
) -> TotpSetup | None:
    """Return the secret of a second factor that is not confirmed yet; None if there is none.

    The member's app has this secret already; a new one would leave a useless entry in the app.
    """
    factor = await second_factors.lock(db, account.id, member.id)
    if factor is None or factor.confirmed:
        return None
    secret = reveal(keys.open(factor.box, account.id, member.id, mask_all=True))
    return TotpSetup(secret, totp.address(secret, member.email))


async def confirm_totp(db: Connection, keys: Keyring, member: Member, code: str, now: datetime) -> list[str]:
    """Turn the second factor on with a first code; return the recovery codes. Each of them works once."""
    credentials = await accounts.lock_credentials(db, member.account, member.id)
    if credentials is None:
        raise BadInputError("there is no second step to confirm")
    account_id = credentials.account_id
    factor = await second_factors.lock(db, account_id, member.id)
    if factor is None or factor.confirmed:
        raise BadInputError("there is no second step to confirm")
    secret = reveal(keys.open(factor.box, account_id, member.id, mask_all=True))
    if (step := totp.used_step(secret, code, after=factor.last_step, now=now)) is None:
        raise BadInputError(
            "the code is wrong: enter the one that the app shows now, and check the clock of its device"
        )
    codes = _make_recovery_codes()
    await second_factors.confirm(
        db, account_id, member.id, step, [totp.recovery_digest(code) for code in codes], now=now
    )
    await audit.append(db, account_id, audit.AuditLine(now, member.email, "user.totp_on", member.email))
    return codes


async def renew_recovery_codes(pool: Pool, member: Member, *, password: str, now: datetime) -> list[str]:
    """Replace a member's recovery codes by new ones, after a check of the password; return the new ones."""
    confirmed = await confirm_password(pool, member, password, "user.recovery_codes", now=now)
    async with pool.connection() as db, db.transaction():
        account_id = (await lock_unchanged(db, confirmed)).account_id
        factor = await second_factors.lock(db, account_id, member.id)
        if factor is None or not factor.confirmed:
            raise BadInputError("the second step is off")
        codes = _make_recovery_codes()
        await second_factors.replace_recovery_codes(
            db, account_id, member.id, [totp.recovery_digest(code) for code in codes]
        )
        line = audit.AuditLine(now, member.email, "user.recovery_codes", member.email)
        await audit.append(db, account_id, line)
    return codes


def _make_recovery_codes() -> list[str]:
    """Return new recovery codes."""
    return [totp.recovery_code(secrets.token_bytes(totp.RECOVERY_BYTES)) for _ in range(totp.RECOVERY_CODES)]


async def count_recovery_codes(db: Connection, account: Account, member: Member) -> int | None:
    """Return how many recovery codes are unused; None if the second factor is off."""
    return await second_factors.count_recovery_codes(db, account.id, member.id)


async def disable_totp(pool: Pool, member: Member, *, password: str, now: datetime) -> None:
    """Turn the second factor off, after a check of the password."""
    confirmed = await confirm_password(pool, member, password, "user.totp_off", now=now)
    async with pool.connection() as db, db.transaction():
        current = await lock_unchanged(db, confirmed)
        if await accounts.requires_second_factor(db, current.account_id):
            raise BadInputError("this account requires a second factor")
        if not await second_factors.delete(db, current.account_id, member.id):
            raise BadInputError("the second step is off already")
        line = audit.AuditLine(now, member.email, "user.totp_off", member.email)
        await audit.append(db, current.account_id, line)


async def disable_totp_by_operator(db: Connection, email: str, *, by: str, now: datetime) -> Member:
    """Turn the second factor off for a member who has lost app and recovery codes. For the operator only."""
    if "\0" in email or (found := await accounts.lock_member(db, email)) is None:
        raise NotFoundError(f"there is no user {email!r}")
    account_id, member = found
    if await second_factors.delete(db, account_id, member.id):
        await audit.append(db, account_id, audit.AuditLine(now, by, "user.totp_off", member.email))
    return member
