"""The example account. It is created on the first start; login and API key are new on every start."""

from dataclasses import dataclass, field
from datetime import datetime

from outcrop.demo import receiver, report
from outcrop.demo.code_host import HOST
from outcrop.demo.repositories import GIST, OWNER
from outcrop.demo.stand_ins import SITE, TOKEN
from outcrop.domain.account import Account, Plan, Role
from outcrop.domain.errors import NotFoundError, OperatorError
from outcrop.domain.secret import Secret
from outcrop.domain.target import Schedule, Target, TargetKind
from outcrop.runtime import CommandSession
from outcrop.services import accounts, keys, targets, views, webhooks
from outcrop.services.exchange.importer import import_findings

SLUG = "demo"
EMAIL = "demo@acme.example"
COLLEAGUES = {"sam@acme.example": Role.ADMIN, "jo@acme.example": Role.MEMBER, "kim@acme.example": Role.MEMBER}
BY = "demo"  # actor in the audit trail
_VIEWS = {
    "Alive now": "validation=valid",
    "On the web site": "source_type=endpoint",
    "Highest scores": "min_score=80",
}
# The targets: address, kind (None: guessed), whether it has its own credential.
TARGETS: list[tuple[str, TargetKind | None, bool]] = [
    (f"github:{OWNER}", None, True),
    (f"https://{HOST}/gist/{GIST}", None, False),
    (f"https://{SITE}/", TargetKind.SITE, False),
    (f"{report.ADDRESS}.git", None, False),
]


@dataclass(frozen=True, slots=True)
class DemoLogin:
    """Credentials that the demo prints."""

    email: str
    password: str = field(repr=False)
    key: str = field(repr=False)


async def find_account(session: CommandSession, now: datetime) -> tuple[Account, bool]:
    """Return the example account, and whether it was just created.

    Refuse a database with other accounts: the stand-ins would answer for their credentials too.
    """
    existing = {account.slug: account for account in await accounts.list_accounts(session.db)}
    account = existing.pop(SLUG, None)
    if existing or (account is not None and account.email != EMAIL):
        raise OperatorError(
            "this database has other accounts than the demo's; set OUTCROP_DATA_DIR to another folder"
        )
    if account is not None:
        return account, False
    async with session.db.transaction():
        account = await accounts.create_account(
            session.db, slug=SLUG, plan=Plan.GROWTH, email=EMAIL, by=BY, now=now
        )
        for email, role in COLLEAGUES.items():
            await accounts.create_member(
                session.db, account, email=email, role=role, password=None, by=BY, now=now
            )
        for name, query in _VIEWS.items():
            await views.save_view(session.db, account, name=name, query=query, by=EMAIL, now=now)
    lines = report.earlier_report(now)
    await import_findings(
        session.db,
        session.keys,
        account,
        lines,
        by=EMAIL,
        now=now,
        progress=lambda _: None,
    )
    return account, True


async def create_login(session: CommandSession, account: Account, now: datetime) -> DemoLogin:
    """Return a new login and API key; revoke those of earlier starts."""
    async with session.db.transaction():
        try:
            _, password = await accounts.reset_password(session.db, EMAIL, None, by=BY, now=now)
        except NotFoundError:
            _, password = await accounts.create_member(
                session.db, account, email=EMAIL, role=Role.OWNER, password=None, by=BY, now=now
            )
        for key in await keys.list_keys(session.db, account):
            if key.name == SLUG and key.revoked_at is None:
                await keys.revoke_key(session.db, str(key.id), by=BY, now=now)
        new = await keys.create_key(
            session.db, account, name=SLUG, expires_at=None, by=BY, member=EMAIL, now=now
        )
    assert password is not None  # noqa: S101 - it is generated if none is given
    return DemoLogin(EMAIL, password, new.token)


async def set_webhook(session: CommandSession, account: Account, now: datetime) -> str:
    """Save the receiver as the account's webhook; return the signing secret."""
    async with session.db.transaction():
        return await webhooks.save_webhook(session.db, session.keys, account, receiver.URL, by=EMAIL, now=now)


async def send_test_event(session: CommandSession, account: Account, now: datetime) -> None:
    """Queue a test event for the receiver."""
    async with session.db.transaction():
        await webhooks.send_test_event(session.db, account, by=EMAIL, now=now)


async def add_targets(session: CommandSession, account: Account, now: datetime) -> list[Target]:
    """Add the missing targets, which are due at once; return those that existed before."""
    existing = await targets.list_targets(session.db, session.keys, account)
    names = {target.spec.name for target in existing}
    async with session.db.transaction():
        for text, kind, has_credential in TARGETS:
            if text.removesuffix("/") in {name.removesuffix("/") for name in names}:
                continue
            await targets.add_target(
                session.db,
                session.keys,
                account,
                text,
                kind=kind,
                schedule=Schedule.DAILY,
                include=(),
                exclude=(),
                chosen={},
                credential=Secret(TOKEN, mask_all=True) if has_credential else None,
                by=EMAIL,
                now=now,
                web_host=HOST,
            )
    return existing
