-- compatible_from: 9
-- The sources of a run that have begun are found by an index that no other index can replace. Before, old
-- statistics made the planner read all sources of the run by the primary key.

DROP INDEX scan_sources_begun;
-- The expression is also in store/runs/scans.py.
CREATE INDEX scan_sources_begun ON scan_sources ((
    CASE WHEN status = 'running' OR (status = 'queued'
        AND (progress <> '{}' OR findings_new + findings_seen + findings_resolved > 0)) THEN scan_id END))
    WHERE status = 'running' OR (status = 'queued'
        AND (progress <> '{}' OR findings_new + findings_seen + findings_resolved > 0));
