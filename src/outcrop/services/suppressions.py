"""Add, list and end rules that hide findings: the first of them at once, the others by the worker."""

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from outcrop.domain.account import Account
from outcrop.domain.errors import BadInputError, NotFoundError
from outcrop.domain.secret import MaskedText
from outcrop.limits import SUPPRESSION_PATTERN_LENGTH, SUPPRESSION_REASON_LENGTH, SUPPRESSION_RULES
from outcrop.notes import mask_random_words
from outcrop.store import audit
from outcrop.store.db import Connection, Pool, current_time
from outcrop.store.findings import suppressions
from outcrop.store.findings.suppressions import (
    ACTOR,
    SuppressionPreview,
    SuppressionRule,
    SuppressionScope,
)
from outcrop.store.people import accounts

BATCH_SIZE = 2_000  # findings that one transaction hides or shows
_EXAMPLES = 10

__all__ = [
    "SuppressionPreview",
    "SuppressionRule",
    "SuppressionScope",
    "add_rule",
    "check_reason",
    "checked_scope",
    "end_rule",
    "finish_pending",
    "list_rules",
    "preview_rule",
    "public_fields",
    "run_pending",
]


def checked_scope(path: str | None, repo: str | None, secret_type: str | None) -> SuppressionScope:
    """Return the scope of a rule; raise BadInputError if it has no condition or one cannot be used."""
    scope = SuppressionScope(path or None, repo or None, secret_type or None)
    texts = [text for text in (scope.path, scope.repo, scope.secret_type) if text is not None]
    if not texts:
        raise BadInputError("a rule needs a path, a repository or a type")
    for text in texts:
        if not text.strip() or len(text) > SUPPRESSION_PATTERN_LENGTH or not text.isprintable():
            raise BadInputError(f"a pattern has 1 to {SUPPRESSION_PATTERN_LENGTH} printable characters")
    return scope


def check_reason(reason: str) -> None:
    """Raise BadInputError if a reason is empty or too long."""
    if not reason.strip() or len(reason) > SUPPRESSION_REASON_LENGTH or "\0" in reason:
        raise BadInputError(f"a reason has 1 to {SUPPRESSION_REASON_LENGTH} characters")


def public_fields(rule: SuppressionRule) -> dict[str, Any]:
    """Return a rule as JSON values."""
    return {
        "id": str(rule.id),
        "path": rule.scope.path,
        "repo": rule.scope.repo,
        "type": rule.scope.secret_type,
        "reason": rule.reason,
        "created_by": rule.created_by,
        "created_at": rule.created_at.isoformat(),
        "expires_at": None if rule.expires_at is None else rule.expires_at.isoformat(),
        "hidden": rule.hidden,
    }


async def preview_rule(db: Connection, account: Account, scope: SuppressionScope) -> SuppressionPreview:
    """Return what a rule would hide, without adding it."""
    return await suppressions.preview(db, account.id, scope, limit=_EXAMPLES)


async def add_rule(
    db: Connection,
    account: Account,
    scope: SuppressionScope,
    *,
    reason: MaskedText,
    expires_at: datetime | None,
    by: str,
    now: datetime,
) -> SuppressionRule:
    """Add a rule and hide the first BATCH_SIZE findings that it matches; `run_pending` hides the others."""
    if expires_at is not None and expires_at <= now:
        raise BadInputError("the rule would have expired already")
    await accounts.lock_account(db, account.id)
    if await suppressions.count(db, account.id) >= SUPPRESSION_RULES:
        raise BadInputError(f"an account has at most {SUPPRESSION_RULES} suppression rules: remove one first")
    rule = SuppressionRule(uuid4(), scope, reason[:SUPPRESSION_REASON_LENGTH], by, now, expires_at)
    await suppressions.insert(db, account.id, rule)
    path = None if scope.path is None else mask_random_words(scope.path)
    detail = {"path": path, "repo": scope.repo, "type": scope.secret_type, "reason": rule.reason}
    detail |= {"expires_at": None if expires_at is None else expires_at.isoformat()}
    await audit.append(
        db, account.id, audit.AuditLine(now, by, "suppression.add", str(rule.id), detail=detail)
    )
    await _hide_batch(db, account.id, rule.id, now=now)
    return rule


async def list_rules(db: Connection, account: Account) -> list[SuppressionRule]:
    """Return the rules of an account that have not ended, newest first."""
    return await suppressions.select_all(db, account.id)


async def end_rule(
    db: Connection, account: Account, rule_id: UUID, *, by: str, now: datetime
) -> SuppressionRule:
    """End a rule and show the first findings that only it hid; raise NotFoundError if there is none."""
    if (rule := await suppressions.end(db, account.id, rule_id, now=now)) is None:
        raise NotFoundError("there is no such suppression rule")
    await audit.append(db, account.id, audit.AuditLine(now, by, "suppression.remove", str(rule_id)))
    await _show_batch(db, account.id, rule_id, now=now)
    return rule


async def run_pending(pool: Pool) -> int:
    """End expired rules, and finish all that are not applied yet or have ended; return how many batches."""
    async with pool.connection() as db:
        return await finish_pending(db)


async def finish_pending(db: Connection) -> int:
    """Do the work of `run_pending` on one connection, in a transaction for each batch."""
    async with db.transaction():
        now = await current_time(db)
        for account_id, rule_id in await suppressions.end_expired(db):
            line = audit.AuditLine(now, ACTOR, "suppression.expire", str(rule_id))
            await audit.append(db, account_id, line)
    batches = 0
    while True:
        async with db.transaction():
            if (pending := await suppressions.lock_pending(db)) is None:
                return batches
            account_id, rule_id, has_ended = pending
            change = _show_batch if has_ended else _hide_batch
            await change(db, account_id, rule_id, now=await current_time(db))
        batches += 1


async def _hide_batch(db: Connection, account_id: int, rule_id: UUID, *, now: datetime) -> None:
    """Hide the next findings that a rule matches, with their audit lines."""
    hidden = await suppressions.hide(db, account_id, rule_id, limit=BATCH_SIZE)
    lines: list[tuple[str, dict[str, object]]] = [(str(id_), {"rule": str(rule_id)}) for id_ in hidden]
    await audit.append_many(db, account_id, lines, at=now, actor=ACTOR, action="finding.suppress")


async def _show_batch(db: Connection, account_id: int, rule_id: UUID, *, now: datetime) -> None:
    """Show again the next findings that only an ended rule hid, with their audit lines."""
    shown, _ = await suppressions.show(db, account_id, rule_id, limit=BATCH_SIZE)
    lines: list[tuple[str, dict[str, object]]] = [(str(id_), {"rule": str(rule_id)}) for id_ in shown]
    await audit.append_many(db, account_id, lines, at=now, actor=ACTOR, action="finding.unsuppress")
