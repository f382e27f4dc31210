"""Create, change and delete accounts and their members, as the operator does on the command line."""

import secrets
from collections.abc import Mapping
from datetime import datetime
from uuid import uuid4

from outcrop.domain.account import SLUG, Account, Member, Plan, Role, checked_email, checked_password
from outcrop.domain.errors import BadInputError, NotFoundError
from outcrop.domain.finding import Severity
from outcrop.store import audit
from outcrop.store.db import Connection
from outcrop.store.incidents import due, pending
from outcrop.store.people import accounts, sessions, sign_in_attempts
from outcrop.store.people.passwords import PASSWORDS

MAX_DUE_DAYS = 3_650


async def create_account(
    db: Connection, *, slug: str, plan: Plan, email: str, by: str, now: datetime
) -> Account:
    """Create an account; `email` is its contact address."""
    if SLUG.fullmatch(slug) is None:
        raise BadInputError("a slug is 2 to 40 characters of a-z, 0-9 and -")
    account = await accounts.insert(db, slug=slug, plan=plan, email=checked_email(email), now=now)
    await audit.append(
        db, account.id, audit.AuditLine(now, by, "account.create", slug, detail={"plan": plan})
    )
    return account


async def get_account(db: Connection, slug: str) -> Account:
    """Return an account; raise NotFoundError if there is none of this slug."""
    if "\0" in slug or (account := await accounts.select(db, slug)) is None:
        raise NotFoundError(f"there is no account {slug!r}")
    return account


async def list_accounts(db: Connection) -> list[Account]:
    """Return all accounts."""
    return await accounts.select_all(db)


async def set_plan(db: Connection, slug: str, plan: Plan, *, by: str, now: datetime) -> Account:
    """Change the plan of an account; return the account."""
    account = await get_account(db, slug)
    if account.plan is not plan:
        await accounts.update_plan(db, account.id, plan)
        await audit.append(
            db,
            account.id,
            audit.AuditLine(now, by, "account.set_plan", slug, detail={"from": account.plan, "to": plan}),
        )
    return await get_account(db, slug)


async def set_due_days(
    db: Connection, slug: str, days: Mapping[Severity, int], *, by: str, now: datetime
) -> dict[Severity, int]:
    """Set the days within which incidents of a severity are due; return those of every severity.

    Severities that are not in `days` keep theirs. `apply_due_days` updates the incidents afterwards.
    """
    if any(not 0 <= number <= MAX_DUE_DAYS for number in days.values()):
        raise BadInputError(f"a number of days is 0 to {MAX_DUE_DAYS:,}")
    account = await get_account(db, slug)
    before = await due.select_days(db, account.id)
    after = before | dict(days)
    if after != before:
        await due.save_days(db, account.id, after)
        detail = {"from": _by_name(before), "to": _by_name(after)}
        await audit.append(db, account.id, audit.AuditLine(now, by, "account.set_sla", slug, detail=detail))
    return {severity: after[severity] for severity in Severity if severity in after}


def _by_name(days: Mapping[Severity, int]) -> dict[str, int]:
    """Return the days with the names of the severities."""
    return {severity.value: number for severity, number in days.items()}


async def apply_due_days(db: Connection, slug: str) -> None:
    """Bring the due dates of an account's incidents up to date, in transactions of its own."""
    await pending.apply_changes(db, (await get_account(db, slug)).id)


async def delete_account(db: Connection, slug: str) -> None:
    """Delete an account with all its data, including its audit trail."""
    account = await get_account(db, slug)
    await accounts.delete(db, account.id)


async def create_member(
    db: Connection, account: Account, *, email: str, role: Role, password: str | None, by: str, now: datetime
) -> tuple[str, str | None]:
    """Add a member to an account; return the e-mail address, and the password if it was generated.

    A password of None is generated.
    """
    chosen, generated = _choose_password(password)
    member = accounts.NewMember(uuid4(), checked_email(email), role, await PASSWORDS.hash_for_command(chosen))
    await accounts.insert_member(db, account.id, member, now=now)
    await audit.append(
        db, account.id, audit.AuditLine(now, by, "user.create", member.email, detail={"role": role})
    )
    return member.email, generated


async def list_members(db: Connection, account: Account | None) -> list[Member]:
    """Return the members of an account, or of all accounts."""
    return await accounts.select_members(db, None if account is None else account.id)


async def remove_member(db: Connection, email: str, *, by: str, now: datetime) -> None:
    """Remove a member. API keys that the member created belong to the account and stay."""
    account_id, member = await _lock_member(db, email)
    await accounts.delete_member(db, account_id, member.id)
    await audit.append(db, account_id, audit.AuditLine(now, by, "user.remove", member.email))


async def reset_password(
    db: Connection, email: str, password: str | None, *, by: str, now: datetime
) -> tuple[Member, str | None]:
    """Set a member's password and end all sessions; return the member, and the password if generated."""
    account_id, member = await _lock_member(db, email)
    chosen, generated = _choose_password(password)
    await accounts.update_password(db, account_id, member.id, await PASSWORDS.hash_for_command(chosen))
    await sessions.delete_all(db, account_id, member.id)
    await sign_in_attempts.delete_attempts(db, member.email)
    await audit.append(db, account_id, audit.AuditLine(now, by, "user.reset_password", member.email))
    return member, generated


async def _lock_member(db: Connection, email: str) -> tuple[int, Member]:
    """Lock and return a member with the id of the account; raise NotFoundError if there is none."""
    if "\0" in email or (found := await accounts.lock_member(db, email)) is None:
        raise NotFoundError(f"there is no user {email!r}")
    return found


def _choose_password(password: str | None) -> tuple[str, str | None]:
    """Return the password to set, and the same again if it was generated, else None."""
    if password is None:
        generated = secrets.token_urlsafe(15)
        return generated, generated
    return checked_password(password), None
