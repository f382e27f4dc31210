"""Store suppression rules, hide the findings that they match, and show them again.

A finding that a rule hides has the rule's id in `suppressed_by`. The column is null if a person hides it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from outcrop.domain.finding import Finding
from outcrop.store.db import Connection
from outcrop.store.findings import rows

ACTOR = "suppression"  # the actor of the audit lines of findings
_RULE = """r.id, r.path, r.repo, r.secret_type, r.reason, r.created_by, r.created_at, r.expires_at,
           (SELECT count(*) FROM findings f WHERE f.account_id = r.account_id AND f.suppressed_by = r.id)"""
_ACTIVE = "r.ended_at IS NULL AND (r.expires_at IS NULL OR r.expires_at > clock_timestamp())"
_MATCHES = """(r.path_like IS NULL OR f.file_path LIKE r.path_like)
              AND (r.repo_like IS NULL OR lower(f.repo_full_name) LIKE r.repo_like)
              AND (r.secret_type IS NULL OR f.pattern_secret_type = r.secret_type)"""


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


def to_like_pattern(glob: str | None) -> str | None:
    """Return a pattern as a pattern of SQL's LIKE, whose escape character is the backslash."""
    if glob is None:
        return None
    special = {"*": "%", "?": "_", "%": "\\%", "_": "\\_", "\\": "\\\\"}
    return "".join(special.get(char, char) for char in glob)


async def insert(db: Connection, account_id: int, rule: SuppressionRule) -> None:
    """Insert a rule that is not applied yet."""
    scope = rule.scope
    await db.execute(
        """INSERT INTO suppression_rules (account_id, id, path, repo, path_like, repo_like, secret_type,
                                          reason, created_by, created_at, expires_at)
           VALUES (%s, %s, %s, %s, %s, lower(%s), %s, %s, %s, %s, %s)""",
        [
            *(account_id, rule.id, scope.path, scope.repo),
            *(to_like_pattern(scope.path), to_like_pattern(scope.repo), scope.secret_type),
            *(rule.reason, rule.created_by, rule.created_at, rule.expires_at),
        ],
    )


async def count(db: Connection, account_id: int) -> int:
    """Return the number of rules that have not ended."""
    cursor = await db.execute(
        f"SELECT count(*) FROM suppression_rules r WHERE r.account_id = %s AND {_ACTIVE}".encode(),
        [account_id],
    )
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def select_all(db: Connection, account_id: int) -> list[SuppressionRule]:
    """Return the rules of the account that have not ended, newest first."""
    cursor = await db.execute(
        f"""SELECT {_RULE} FROM suppression_rules r WHERE r.account_id = %s AND {_ACTIVE}
            ORDER BY r.created_at DESC, r.id""".encode(),
        [account_id],
    )
    return [_build_rule(row) for row in await cursor.fetchall()]


async def end(db: Connection, account_id: int, rule_id: UUID, *, now: datetime) -> SuppressionRule | None:
    """End a rule and return it; None if the account has no such rule that has not ended."""
    cursor = await db.execute(
        f"""UPDATE suppression_rules r SET ended_at = %s
            WHERE r.account_id = %s AND r.id = %s AND {_ACTIVE} RETURNING {_RULE}""".encode(),
        [now, account_id, rule_id],
    )
    row = await cursor.fetchone()
    return None if row is None else _build_rule(row)


@dataclass(frozen=True, slots=True)
class SuppressionPreview:
    """What a rule would do: how many findings match, how many of them it would hide, and some of these."""

    matching: int
    hidden: int
    examples: list[Finding]


async def preview(
    db: Connection, account_id: int, scope: SuppressionScope, *, limit: int
) -> SuppressionPreview:
    """Return what a rule with this scope would hide."""
    source = f"""FROM (SELECT %s::text AS path_like, lower(%s)::text AS repo_like, %s::text AS secret_type) r
                 JOIN findings f ON f.account_id = %s AND {_MATCHES}"""
    values = [to_like_pattern(scope.path), to_like_pattern(scope.repo), scope.secret_type, account_id]
    cursor = await db.execute(
        f"SELECT count(*), count(*) FILTER (WHERE f.suppressed_at IS NULL) {source}".encode(), values
    )
    matching, hidden = await cursor.fetchone() or (0, 0)
    cursor = await db.execute(
        f"""SELECT {rows.COLUMNS} FROM findings WHERE account_id = %s AND id IN (
                SELECT f.id {source} WHERE f.suppressed_at IS NULL
                ORDER BY f.composite_score DESC, f.id LIMIT %s)""".encode(),
        [account_id, *values, limit],
    )
    examples = [rows.build_finding(row) for row in await cursor.fetchall()]
    return SuppressionPreview(matching, hidden, sorted(examples, key=lambda found: -found.composite_score))


async def hide(db: Connection, account_id: int, rule_id: UUID, *, limit: int) -> list[UUID]:
    """Hide at most `limit` findings that a rule matches and nobody hides; return their ids.

    If fewer are left, the rule is marked as applied.
    """
    cursor = await db.execute(
        f"""UPDATE findings SET suppressed_at = date_trunc('second', clock_timestamp()), suppressed_by = %s
            WHERE account_id = %s AND id = ANY(ARRAY(
                SELECT f.id FROM suppression_rules r JOIN findings f ON f.account_id = r.account_id
                WHERE r.account_id = %s AND r.id = %s AND f.suppressed_at IS NULL AND {_ACTIVE} AND {_MATCHES}
                ORDER BY f.id LIMIT %s))
            RETURNING id""".encode(),
        [rule_id, account_id, account_id, rule_id, limit],
    )
    hidden = [finding_id for (finding_id,) in await cursor.fetchall()]
    if len(hidden) < limit:
        await db.execute(
            "UPDATE suppression_rules SET is_applied = true WHERE account_id = %s AND id = %s",
            [account_id, rule_id],
        )
    return hidden


async def hide_new(db: Connection, account_id: int, finding_ids: Sequence[UUID]) -> None:
    """Hide those of these new findings that a rule matches, with an audit line for each."""
    if not await count(db, account_id):  # most accounts have no rule, and an import has many findings
        return
    # OFFSET 0 keeps the planner from joining all findings of the account with the rules.
    await db.execute(
        f"""WITH hidden AS (
            UPDATE findings t SET suppressed_at = date_trunc('second', clock_timestamp()),
                                  suppressed_by = m.rule
            FROM (SELECT DISTINCT ON (f.id) f.id AS finding, r.id AS rule
                  FROM unnest(%s::uuid[]) AS batch (finding_id)
                  CROSS JOIN LATERAL (SELECT * FROM findings
                                      WHERE {rows.OF_ACCOUNT} AND id = batch.finding_id OFFSET 0) f
                  JOIN suppression_rules r ON r.account_id = f.account_id
                  WHERE f.suppressed_at IS NULL AND {_ACTIVE} AND {_MATCHES}
                  ORDER BY f.id, r.created_at, r.id) m
            WHERE {rows.OF_ACCOUNT} AND t.id = m.finding AND {rows.one_of("t.id")}
            RETURNING m.finding, m.rule)
            INSERT INTO audit (account_id, at, actor, action, target, outcome, detail)
            SELECT %s, date_trunc('second', clock_timestamp()), %s, 'finding.suppress', finding::text, 'ok',
                   jsonb_build_object('rule', rule) FROM hidden""".encode(),
        [list(finding_ids), account_id, account_id, list(finding_ids), account_id, ACTOR],
    )


async def show(db: Connection, account_id: int, rule_id: UUID, *, limit: int) -> tuple[list[UUID], bool]:
    """Show again at most `limit` findings that an ended rule hides, and whether these were all.

    A finding that another rule matches stays hidden by that rule. The ended rule is deleted at the end.
    """
    cursor = await db.execute(
        f"""WITH of_rule AS (SELECT f.* FROM findings f WHERE f.account_id = %s AND f.suppressed_by = %s
                             ORDER BY f.id LIMIT %s)
            UPDATE findings SET suppressed_by = m.other,
                   suppressed_at = CASE WHEN m.other IS NOT NULL THEN findings.suppressed_at END
            FROM (SELECT f.id, (SELECT r.id FROM suppression_rules r
                                WHERE r.account_id = f.account_id AND r.id <> f.suppressed_by
                                  AND {_ACTIVE} AND {_MATCHES}
                                ORDER BY r.created_at, r.id LIMIT 1) AS other
                  FROM of_rule f) m
            WHERE findings.account_id = %s AND findings.id = m.id
            RETURNING findings.id, m.other""".encode(),
        [account_id, rule_id, limit, account_id],
    )
    changed = await cursor.fetchall()
    if is_last := len(changed) < limit:
        await db.execute(
            "DELETE FROM suppression_rules WHERE account_id = %s AND id = %s", [account_id, rule_id]
        )
    return [finding_id for finding_id, other in changed if other is None], is_last


async def adopt(db: Connection, account_id: int, finding_id: UUID) -> None:
    """Keep a finding hidden when the rule that hides it ends: a person wants it hidden too."""
    await db.execute(
        f"UPDATE findings SET suppressed_by = NULL WHERE {rows.BY_ID} AND suppressed_by IS NOT NULL".encode(),
        [account_id, finding_id],
    )


async def end_expired(db: Connection) -> list[tuple[int, UUID]]:
    """End the rules of all accounts that have expired; return (account id, rule id) of each."""
    cursor = await db.execute(
        """UPDATE suppression_rules SET ended_at = expires_at
           WHERE ended_at IS NULL AND expires_at <= clock_timestamp() RETURNING account_id, id"""
    )
    return [(account_id, rule_id) for account_id, rule_id in await cursor.fetchall()]


async def lock_pending(db: Connection) -> tuple[int, UUID, bool] | None:
    """Lock a rule of any account that is not applied, or has ended: (account id, id, whether it has ended).

    Rules that another process has locked are skipped. None if nothing is pending.
    """
    cursor = await db.execute(
        """SELECT account_id, id, ended_at IS NOT NULL FROM suppression_rules
           WHERE NOT is_applied OR ended_at IS NOT NULL
           ORDER BY account_id, id LIMIT 1 FOR UPDATE SKIP LOCKED"""
    )
    row = await cursor.fetchone()
    return None if row is None else (row[0], row[1], row[2])


def _build_rule(row: tuple[Any, ...]) -> SuppressionRule:
    """Return the rule of a row with the columns of `_RULE`."""
    id_, path, repo, secret_type, reason, by, at, expires_at, hidden = row
    scope = SuppressionScope(path, repo, secret_type)
    return SuppressionRule(id_, scope, reason, by, at, expires_at, int(hidden))
