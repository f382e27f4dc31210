"""Rules that hide findings from the active view: what they match, why, and until when."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from outcrop.domain.errors import BadInputError

PATTERN_LENGTH, REASON_LENGTH, MAX_RULES = 300, 500, 200


@dataclass(frozen=True, slots=True)
class SuppressionScope:
    """What a rule hides: a finding must match every condition that is not None.

    In patterns, `*` is any text, also with slashes, and `?` is one character. Repositories are compared in
    any case, paths as they are.
    """

    path: str | None = None
    repo: str | None = None
    secret_type: str | None = None


@dataclass(frozen=True, slots=True)
class SuppressionRule:
    """A rule of an account."""

    id: UUID
    scope: SuppressionScope
    reason: str
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    hidden: int = 0  # findings that this rule hides


def checked_scope(path: str | None, repo: str | None, secret_type: str | None) -> SuppressionScope:
    """Return the scope of a rule; raise BadInputError if it has no condition or one cannot be used."""
    scope = SuppressionScope(path or None, repo or None, secret_type or None)
    texts = [text for text in (scope.path, scope.repo, scope.secret_type) if text is not None]
    if not texts:
        raise BadInputError("a rule needs a path, a repository or a type")
    for text in texts:
        if not text.strip() or len(text) > PATTERN_LENGTH or not text.isprintable():
            raise BadInputError(f"a pattern has 1 to {PATTERN_LENGTH} printable characters")
    return scope


def check_reason(reason: str) -> None:
    """Raise BadInputError if a reason is empty or too long."""
    if not reason.strip() or len(reason) > REASON_LENGTH or "\0" in reason:
        raise BadInputError(f"a reason has 1 to {REASON_LENGTH} characters")


def to_like_pattern(glob: str | None) -> str | None:
    """Return a pattern as a pattern of SQL's LIKE, whose escape character is the backslash."""
    if glob is None:
        return None
    special = {"*": "%", "?": "_", "%": "\\%", "_": "\\_", "\\": "\\\\"}
    return "".join(special.get(char, char) for char in glob)


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
