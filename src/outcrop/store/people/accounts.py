"""Store accounts and their members."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.errors import UniqueViolation

from outcrop.domain.account import Account, Member, Plan, Role
from outcrop.domain.errors import BadInputError
from outcrop.store.db import Connection
from outcrop.store.locks import AdvisoryLock

_ACCOUNT = "id, slug, plan, email, created_at"
_MEMBER = "m.id, a.slug, m.email, m.role, m.created_at"


async def insert(db: Connection, *, slug: str, plan: Plan, email: str, now: datetime) -> Account:
    """Insert an account and return it; raise BadInputError if the slug is in use."""
    try:
        cursor = await db.execute(
            f"""INSERT INTO accounts (slug, plan, email, created_at) VALUES (%s, %s, %s, %s)
                RETURNING {_ACCOUNT}""".encode(),
            [slug, plan, email, now],
        )
    except UniqueViolation:
        raise BadInputError(f"there is an account {slug} already") from None
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101
    return _build_account(row)


async def select(db: Connection, slug: str) -> Account | None:
    """Return the account with this slug."""
    cursor = await db.execute(f"SELECT {_ACCOUNT} FROM accounts WHERE slug = %s".encode(), [slug])
    row = await cursor.fetchone()
    return None if row is None else _build_account(row)


async def select_all(db: Connection) -> list[Account]:
    """Return all accounts, by slug."""
    cursor = await db.execute(f"SELECT {_ACCOUNT} FROM accounts ORDER BY slug".encode())
    return [_build_account(row) for row in await cursor.fetchall()]


async def update_plan(db: Connection, account_id: int, plan: Plan) -> None:
    """Save the account's plan."""
    await db.execute("UPDATE accounts SET plan = %s WHERE id = %s", [plan, account_id])


async def requires_second_factor(db: Connection, account_id: int) -> bool:
    """Whether every member of the account needs a second factor."""
    cursor = await db.execute("SELECT requires_second_factor FROM accounts WHERE id = %s", [account_id])
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def update_requires_second_factor(db: Connection, account_id: int, *, required: bool) -> bool:
    """Save whether every member of the account needs a second factor; return whether that has changed."""
    cursor = await db.execute(
        "UPDATE accounts SET requires_second_factor = %s WHERE id = %s AND requires_second_factor <> %s",
        [required, account_id, required],
    )
    return cursor.rowcount == 1


async def delete(db: Connection, account_id: int) -> None:
    """Delete the account and everything that belongs to it.

    The fold lock is held until the transaction ends, so that no fold writes counts of the account again.
    """
    await db.execute("SELECT pg_advisory_xact_lock(%s)", [AdvisoryLock.FOLD_ROLLUPS])
    await db.execute("DELETE FROM accounts WHERE id = %s", [account_id])
    await db.execute("DELETE FROM audit WHERE account_id = %s", [account_id])
    await db.execute("DELETE FROM incident_changes WHERE account_id = %s", [account_id])
    await db.execute("DELETE FROM rollups WHERE account_id = %s", [account_id])
    await db.execute("DELETE FROM rollup_deltas WHERE account_id = %s", [account_id])


@dataclass(frozen=True, slots=True)
class NewMember:
    """A member to insert, with the hash of the password."""

    id: UUID
    email: str
    role: Role
    password_hash: str


async def insert_member(db: Connection, account_id: int, member: NewMember, *, now: datetime) -> None:
    """Insert a member; raise BadInputError if the e-mail address belongs to a member of any account."""
    try:
        await db.execute(
            """INSERT INTO members (id, account_id, email, role, password_hash, created_at)
               VALUES (%s, %s, %s, %s, %s, %s)""",
            [member.id, account_id, member.email, member.role, member.password_hash, now],
        )
    except UniqueViolation:
        raise BadInputError(f"{member.email} is a member of an account already") from None


async def select_members(db: Connection, account_id: int | None = None) -> list[Member]:
    """Return the members of one account, or of all accounts, by account and e-mail address."""
    cursor = await db.execute(
        f"""SELECT {_MEMBER} FROM members m JOIN accounts a ON a.id = m.account_id
            WHERE %s::int IS NULL OR a.id = %s ORDER BY a.slug, m.email""".encode(),
        [account_id, account_id],
    )
    return [
        Member(id_, slug, email, Role(role), created)
        for id_, slug, email, role, created in await cursor.fetchall()
    ]


async def select_address(db: Connection, account_id: int, email: str) -> str | None:
    """Return the stored e-mail address of a member, which `email` has in any case; None without one."""
    cursor = await db.execute(
        "SELECT email FROM members WHERE account_id = %s AND lower(email) = lower(%s)", [account_id, email]
    )
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def lock_member(db: Connection, email: str) -> tuple[int, Member] | None:
    """Lock the member with this e-mail address; return the account's id and the member."""
    cursor = await db.execute(
        f"""SELECT a.id, {_MEMBER} FROM members m JOIN accounts a ON a.id = m.account_id
            WHERE lower(m.email) = lower(%s) FOR UPDATE OF m""".encode(),
        [email],
    )
    row = await cursor.fetchone()
    return None if row is None else (row[0], Member(row[1], row[2], row[3], Role(row[4]), row[5]))


@dataclass(frozen=True, slots=True)
class MemberCredentials:
    """A member with account id and password hash, to check a password."""

    account_id: int
    member: Member
    password_hash: str = field(repr=False)


_CREDENTIALS = (
    f"SELECT a.id, {_MEMBER}, m.password_hash FROM members m JOIN accounts a ON a.id = m.account_id"
)


async def select_credentials(db: Connection, email: str) -> MemberCredentials | None:
    """Return the member with this e-mail address, in any account, for a sign-in."""
    cursor = await db.execute(f"{_CREDENTIALS} WHERE lower(m.email) = lower(%s)".encode(), [email])
    return _build_credentials(await cursor.fetchone())


async def lock_credentials(db: Connection, slug: str, member_id: UUID) -> MemberCredentials | None:
    """Lock a member until the transaction ends; return the member with the password hash."""
    cursor = await db.execute(
        f"{_CREDENTIALS} WHERE a.slug = %s AND m.id = %s FOR UPDATE OF m".encode(), [slug, member_id]
    )
    return _build_credentials(await cursor.fetchone())


async def lock_account(db: Connection, account_id: int) -> None:
    """Lock the account's row until the transaction ends.

    Transactions that check the account's members or targets and then change them so run one after the other.
    """
    await db.execute("SELECT 1 FROM accounts WHERE id = %s FOR NO KEY UPDATE", [account_id])


async def select_member(db: Connection, account_id: int, member_id: UUID) -> Member | None:
    """Return one member of the account."""
    cursor = await db.execute(
        f"""SELECT {_MEMBER} FROM members m JOIN accounts a ON a.id = m.account_id
            WHERE a.id = %s AND m.id = %s""".encode(),
        [account_id, member_id],
    )
    row = await cursor.fetchone()
    return None if row is None else Member(row[0], row[1], row[2], Role(row[3]), row[4])


async def count_owners(db: Connection, account_id: int) -> int:
    """Return the number of the account's members with the role owner."""
    row = await (
        await db.execute(
            "SELECT count(*) FROM members WHERE account_id = %s AND role = 'owner'", [account_id]
        )
    ).fetchone()
    return 0 if row is None else int(row[0])


async def update_role(db: Connection, account_id: int, member_id: UUID, role: Role) -> None:
    """Save a member's role."""
    await db.execute(
        "UPDATE members SET role = %s WHERE account_id = %s AND id = %s", [role, account_id, member_id]
    )


async def delete_member(db: Connection, account_id: int, member_id: UUID) -> None:
    """Delete a member, with all sessions and invitations."""
    await db.execute("DELETE FROM members WHERE account_id = %s AND id = %s", [account_id, member_id])


async def update_password(db: Connection, account_id: int, member_id: UUID, password_hash: str) -> None:
    """Save the hash of a member's new password."""
    await db.execute(
        "UPDATE members SET password_hash = %s WHERE account_id = %s AND id = %s",
        [password_hash, account_id, member_id],
    )


def _build_account(row: tuple[int, str, str, str, datetime]) -> Account:
    """Return the account of a row with the columns of `_ACCOUNT`."""
    return Account(row[0], row[1], Plan(row[2]), row[3], row[4])


def _build_credentials(row: tuple[Any, ...] | None) -> MemberCredentials | None:
    """Return the credentials of a row of `_CREDENTIALS`; None if there is no row."""
    return (
        None
        if row is None
        else MemberCredentials(row[0], Member(row[1], row[2], row[3], Role(row[4]), row[5]), row[6])
    )
