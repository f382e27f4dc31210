"""Read the last runs of each target, and count the findings in its sources.

The cost depends on the number of targets and sources, neither on the number of findings nor on that of runs:
an index leads to the last runs, and findings are counted by the rollups of sources.
"""

from typing import Any
from uuid import UUID

from outcrop.domain.finding import Status, Validation
from outcrop.domain.paging import FindingQuery
from outcrop.domain.scan import ScanStatus
from outcrop.domain.target import TargetHealth, TargetRun
from outcrop.store.db import Connection
from outcrop.store.findings.facets import list_matching_facets
from outcrop.store.runs import targets
from outcrop.store.runs.scans import SHOWN_STATUS

_SOURCE_KIND = 30  # of the cells that count findings by source
_RUN = f"""id, {SHOWN_STATUS} AS status, created_at, finished_at, jsonb_array_length(coverage_gaps) AS gaps,
           error"""
_NEWEST = f"""(SELECT {_RUN} FROM scans s
               WHERE s.account_id = t.account_id AND s.target_id = t.id AND s.pushed_repository IS NULL {{}}
               ORDER BY s.created_at DESC, s.id DESC LIMIT 1)"""
_FIELDS = "{0}.id, {0}.status, {0}.created_at, {0}.finished_at, {0}.gaps, {0}.error"


async def select_health(db: Connection, account_id: int) -> list[TargetHealth]:
    """Return the account's targets with their last runs and numbers of findings, oldest first."""
    cursor = await db.execute(
        f"""SELECT t.id, {_FIELDS.format("last")}, {_FIELDS.format("complete")} FROM targets t
            LEFT JOIN LATERAL {_NEWEST.format("")} last ON true
            LEFT JOIN LATERAL {_NEWEST.format("AND s.status = 'completed'")} complete ON true
            WHERE t.account_id = %s""".encode(),
        [account_id],
    )
    runs = {row[0]: (_build_run(row[1:7]), _build_run(row[7:13])) for row in await cursor.fetchall()}
    counts = await _count_findings(db, account_id)
    return [
        TargetHealth(target, *runs.get(target.id, (None, None)), *counts.get(target.id, (0, 0)))
        for target in await targets.select_all(db, account_id)
    ]


async def _count_findings(db: Connection, account_id: int) -> dict[UUID, tuple[int, int]]:
    """Return the numbers of active findings and of valid ones among them, by target."""
    active = list_matching_facets(FindingQuery(status=Status.ACTIVE))
    valid = list_matching_facets(FindingQuery(status=Status.ACTIVE, validation=Validation.VALID))
    cursor = await db.execute(
        """WITH counted AS MATERIALIZED (
               SELECT service AS source, sum(n) AS active,
                      coalesce(sum(n) FILTER (WHERE facet = ANY(%s)), 0) AS valid
               FROM rollup_cells WHERE account_id = %s AND kind = %s AND facet = ANY(%s) GROUP BY service)
           SELECT target_id, sum(active)::bigint, sum(valid)::bigint
           FROM (SELECT DISTINCT t.target_id, coalesce(a.source, t.source) AS source FROM target_sources t
                 LEFT JOIN source_aliases a ON a.account_id = t.account_id AND a.alias = t.source
                 WHERE t.account_id = %s) sources
           JOIN counted USING (source) GROUP BY target_id""",
        [valid, account_id, _SOURCE_KIND, active, account_id],
    )
    return {target_id: (active, valid) for target_id, active, valid in await cursor.fetchall()}


def _build_run(row: tuple[Any, ...]) -> TargetRun | None:
    """Return the run of these columns; None if there is none."""
    if row[0] is None:
        return None
    id_, status, created_at, finished_at, gaps, error = row
    return TargetRun(id_, ScanStatus(status), created_at, finished_at, gaps, error)
