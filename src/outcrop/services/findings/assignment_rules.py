"""Add, list and remove rules that assign new incidents to members."""

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from outcrop.domain.account import Account
from outcrop.domain.errors import BadInputError, NotFoundError
from outcrop.limits import ASSIGNMENT_PATTERN_LENGTH, ASSIGNMENT_RULES
from outcrop.store import audit
from outcrop.store.db import Connection
from outcrop.store.incidents import assignment_rules
from outcrop.store.incidents.assignment_rules import AssignmentPreview, AssignmentRule, AssignmentScope
from outcrop.store.people import accounts

_EXAMPLES = 10

__all__ = [
    "AssignmentPreview",
    "AssignmentRule",
    "AssignmentScope",
    "add_rule",
    "checked_scope",
    "list_rules",
    "preview_rule",
    "public_fields",
    "remove_rule",
]


def checked_scope(repo: str | None, path: str | None, author: str | None) -> AssignmentScope:
    """Return the scope of a rule; raise BadInputError if it has no condition or one cannot be used."""
    scope = AssignmentScope(repo or None, path or None, author or None)
    texts = [text for text in (scope.repo, scope.path, scope.author) if text is not None]
    if not texts:
        raise BadInputError("a rule needs a repository, a path or an author")
    for text in texts:
        if not text.strip() or len(text) > ASSIGNMENT_PATTERN_LENGTH or not text.isprintable():
            raise BadInputError(f"a pattern has 1 to {ASSIGNMENT_PATTERN_LENGTH} printable characters")
    return scope


def public_fields(rule: AssignmentRule) -> dict[str, Any]:
    """Return a rule as JSON values."""
    return {
        "id": str(rule.id),
        "repo": rule.scope.repo,
        "path": rule.scope.path,
        "author": rule.scope.author,
        "assignee": rule.assignee,
        "is_member": rule.is_member,
        "created_by": rule.created_by,
        "created_at": rule.created_at.isoformat(),
    }


async def preview_rule(db: Connection, account: Account, scope: AssignmentScope) -> AssignmentPreview:
    """Return the open incidents that a rule would match."""
    return await assignment_rules.preview(db, account.id, scope, limit=_EXAMPLES)


async def find_assignee(db: Connection, account: Account, address: str) -> str:
    """Return a member's address as it is stored; raise BadInputError if no member has it."""
    if (assignee := await accounts.select_address(db, account.id, address)) is None:
        raise BadInputError("the assignee must be a member of the account")
    return assignee


async def add_rule(
    db: Connection, account: Account, scope: AssignmentScope, *, assignee: str, by: str, now: datetime
) -> AssignmentRule:
    """Add a rule for incidents that are new from now on. `assignee` comes from `find_assignee`."""
    await accounts.lock_account(db, account.id)
    if len(await assignment_rules.select_all(db, account.id)) >= ASSIGNMENT_RULES:
        raise BadInputError(f"an account has at most {ASSIGNMENT_RULES} assignment rules: remove one first")
    rule = AssignmentRule(uuid4(), scope, assignee, by, now)
    await assignment_rules.insert(db, account.id, rule)
    detail = {"repo": scope.repo, "path": scope.path, "author": scope.author, "assignee": assignee}
    line = audit.AuditLine(now, by, "assignment_rule.add", str(rule.id), detail=detail)
    await audit.append(db, account.id, line)
    return rule


async def list_rules(db: Connection, account: Account) -> list[AssignmentRule]:
    """Return the rules of an account in the order in which they count, the oldest first."""
    return await assignment_rules.select_all(db, account.id)


async def remove_rule(db: Connection, account: Account, rule_id: UUID, *, by: str, now: datetime) -> None:
    """Remove a rule; raise NotFoundError if there is none. What it has assigned stays assigned."""
    if not await assignment_rules.delete(db, account.id, rule_id):
        raise NotFoundError("there is no such assignment rule")
    await audit.append(db, account.id, audit.AuditLine(now, by, "assignment_rule.remove", str(rule_id)))
