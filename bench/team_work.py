"""Fill an account of the benchmarks with what a team works with: due dates, assignees, findings by run."""

from uuid import UUID

from bench import corpus
from outcrop.domain.finding import Severity
from outcrop.services import accounts
from outcrop.store.db import Connection
from outcrop.store.findings import rollups
from outcrop.store.incidents import due, pending

COMMON_MEMBER, RARE_MEMBER = "member0@example.com", "member19@example.com"  # 10 % of all incidents, and 0.3 %
COMMON_RUN, RARE_RUN = UUID(int=0), UUID(int=7)  # that reported 10 % of all findings as new, and 0.02 %
_DUE_DAYS = {Severity.CRITICAL: 7, Severity.HIGH: 90, Severity.MEDIUM: 1000}  # of the others none is due


async def fill_team_work(db: Connection, slug: str) -> None:
    """Set due dates, assignees and runs, unless an earlier call has. Not for use in a transaction."""
    account_id = (await accounts.get_account(db, slug)).id
    if await due.select_days(db, account_id):
        return
    async with db.transaction():
        await db.execute("SET LOCAL statement_timeout = 0")
        # A hash of the id decides: the same incidents and findings in every run.
        await db.execute(
            """UPDATE incidents SET assignee = 'member' || CASE WHEN n < 2000 THEN 0 ELSE n %% 19 + 1 END
                                               || '@example.com'
               FROM (SELECT id AS incident, abs(hashtext(id::text) %% 20000) AS n FROM incidents
                     WHERE account_id = %s) chosen
               WHERE account_id = %s AND id = incident AND n < 3000""",
            [account_id, account_id],
        )
        await db.execute(
            """UPDATE findings f SET assignee = i.assignee FROM incidents i
               WHERE f.account_id = %s AND i.account_id = f.account_id AND i.id = f.incident_id
                 AND i.assignee IS NOT NULL""",
            [account_id],
        )
        await db.execute(
            """UPDATE findings
               SET new_scan_id = lpad(to_hex(CASE WHEN n < 2000 THEN 0 ELSE n %% 40 + 1 END), 32, '0')::uuid
               FROM (SELECT id AS finding, abs(hashtext(id::text) %% 20000) AS n FROM findings
                     WHERE account_id = %s) chosen
               WHERE account_id = %s AND id = finding AND n < 2200""",
            [account_id, account_id],
        )
        await accounts.set_due_days(db, slug, _DUE_DAYS, by="bench", now=corpus.NOW)
    await pending.apply_changes(db, account_id)
    await rollups.fold_deltas(db)
    await db.execute("VACUUM (ANALYZE) findings, incidents, incident_changes, rollups, rollup_deltas")
