"""Store the rules that assign new incidents, and apply them.

A rule matches an incident if one place meets all its conditions. Of several rules the oldest counts. A rule
that assigns to somebody who is no longer a member has no effect.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from outcrop.domain.incident import Incident
from outcrop.store.db import Connection, fetch_single_row
from outcrop.store.findings import rows
from outcrop.store.findings.suppressions import to_like_pattern
from outcrop.store.incidents.table import COLUMNS, build_incident

ACTOR = "assignment"  # the actor of the audit lines of incidents
# The address of an author such as `Jo <jo@example.com>`, or all of the text.
_AUTHOR = "lower(coalesce(substring(f.author FROM '<([^<>]*)>[[:space:]]*$'), f.author))"
_MATCHES = f"""(r.path_like IS NULL OR f.file_path LIKE r.path_like)
               AND (r.repo_like IS NULL OR lower(f.repo_full_name) LIKE r.repo_like)
               AND (r.author_like IS NULL OR {_AUTHOR} LIKE r.author_like)"""


@dataclass(frozen=True, slots=True)
class AssignmentScope:
    """The incidents that a rule matches: one place meets every condition that is not None.

    In patterns, `*` is any text, also with slashes, and `?` is one character. Repositories and authors are
    compared in any case, paths as they are.
    """

    repo: str | None = None
    path: str | None = None
    author: str | None = None  # the e-mail address

    def like_patterns(self) -> list[str | None]:
        """Return the patterns of LIKE for repository, path and author."""
        repo, author = (None if text is None else text.lower() for text in (self.repo, self.author))
        return [to_like_pattern(text) for text in (repo, self.path, author)]


@dataclass(frozen=True, slots=True)
class AssignmentRule:
    """A rule of an account."""

    id: UUID
    scope: AssignmentScope
    assignee: str
    created_by: str
    created_at: datetime
    is_member: bool = True  # whether the assignee is still a member


async def insert(db: Connection, account_id: int, rule: AssignmentRule) -> None:
    """Insert a rule."""
    scope = rule.scope
    await db.execute(
        """INSERT INTO assignment_rules (account_id, id, repo, path, author, repo_like, path_like,
                                         author_like, assignee, created_by, created_at)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)""",
        [
            *(account_id, rule.id, scope.repo, scope.path, scope.author),
            *(*scope.like_patterns(), rule.assignee, rule.created_by, rule.created_at),
        ],
    )


async def select_all(db: Connection, account_id: int) -> list[AssignmentRule]:
    """Return the rules of an account in the order in which they count, the oldest first."""
    cursor = await db.execute(
        """SELECT r.id, r.repo, r.path, r.author, r.assignee, r.created_by, r.created_at,
                  EXISTS (SELECT FROM members m
                          WHERE m.account_id = r.account_id AND lower(m.email) = lower(r.assignee))
           FROM assignment_rules r WHERE r.account_id = %s ORDER BY r.n""",
        [account_id],
    )
    return [_build_rule(row) for row in await cursor.fetchall()]


async def delete(db: Connection, account_id: int, rule_id: UUID) -> bool:
    """Delete a rule; return False if the account has no such rule."""
    cursor = await db.execute(
        "DELETE FROM assignment_rules WHERE account_id = %s AND id = %s", [account_id, rule_id]
    )
    return cursor.rowcount > 0


@dataclass(frozen=True, slots=True)
class AssignmentPreview:
    """The open incidents that a rule matches, those of them that nobody is assigned to, and some examples."""

    matching: int
    unassigned: int
    examples: list[Incident]


async def preview(
    db: Connection, account_id: int, scope: AssignmentScope, *, limit: int
) -> AssignmentPreview:
    """Return the open incidents that a rule with this scope matches, the highest score first."""
    repo, path, author = scope.like_patterns()
    cursor = await db.execute(
        f"""WITH matching AS MATERIALIZED (
                SELECT DISTINCT f.incident_id AS id
                FROM (SELECT %s::text AS repo_like, %s::text AS path_like, %s::text AS author_like) r
                JOIN findings f ON f.account_id = %s AND {_MATCHES}),
            open AS MATERIALIZED (
                SELECT i.* FROM incidents i JOIN matching m ON m.id = i.id
                WHERE i.account_id = %s AND i.open_places > 0)
            SELECT (SELECT count(*) FROM open), (SELECT count(*) FROM open WHERE assignee IS NULL),
                   {COLUMNS}, i.assignee
            FROM (SELECT 1) one LEFT JOIN open i ON true
            ORDER BY i.composite_score DESC NULLS LAST, i.id LIMIT %s""".encode(),
        [repo, path, author, account_id, account_id, limit],
    )
    found = await cursor.fetchall()
    matching, unassigned = found[0][:2]
    return AssignmentPreview(
        matching, unassigned, [build_incident(row[2:]) for row in found if row[2] is not None]
    )


async def apply(db: Connection, account_id: int, incident_ids: Collection[UUID]) -> bool:
    """Assign those of these new incidents that a rule matches and nobody is assigned to.

    Each gets an audit line. The caller holds the lock of the incidents. Return whether any may be assigned.
    """
    if not incident_ids or not await _has_rules(db, account_id):
        return False
    # OFFSET 0 keeps the planner from joining all findings of the account with the rules.
    await db.execute(
        f"""WITH assigned AS (
                UPDATE incidents t SET assignee = m.assignee
                FROM (SELECT DISTINCT ON (f.incident_id) f.incident_id, r.id AS rule, p.email AS assignee
                      FROM unnest(%s::uuid[]) AS batch (incident_id)
                      CROSS JOIN LATERAL (SELECT * FROM findings
                                          WHERE {rows.OF_ACCOUNT} AND incident_id = batch.incident_id
                                          OFFSET 0) f
                      JOIN assignment_rules r ON r.account_id = f.account_id
                      JOIN members p ON p.account_id = r.account_id AND lower(p.email) = lower(r.assignee)
                      WHERE {_MATCHES}
                      ORDER BY f.incident_id, r.n) m
                WHERE t.{rows.OF_ACCOUNT} AND t.id = m.incident_id AND t.assignee IS NULL
                RETURNING t.id, m.rule, m.assignee)
            INSERT INTO audit (account_id, at, actor, action, target, outcome, detail)
            SELECT %s, date_trunc('second', clock_timestamp()), %s, 'incident.assign', id::text, 'ok',
                   jsonb_build_object('from', NULL, 'to', assignee, 'rule', rule) FROM assigned""".encode(),
        [list(incident_ids), account_id, account_id, account_id, ACTOR],
    )
    return True


async def _has_rules(db: Connection, account_id: int) -> bool:
    """Whether the account has a rule: most have none, and an import has many new incidents."""
    (found,) = await fetch_single_row(
        db, "SELECT EXISTS (SELECT FROM assignment_rules WHERE account_id = %s)", [account_id]
    )
    return bool(found)


def _build_rule(row: tuple[Any, ...]) -> AssignmentRule:
    """Return the rule of a row of `select_all`."""
    return AssignmentRule(row[0], AssignmentScope(*row[1:4]), *row[4:])
