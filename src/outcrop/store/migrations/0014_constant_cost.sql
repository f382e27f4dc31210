-- compatible_from: 9
-- The cost of a source does not grow with the number of sources of its run.

-- The queued and running sources of a run. A trigger keeps the number, so that a release without it keeps it too.
ALTER TABLE scans ADD COLUMN open_sources integer NOT NULL DEFAULT 0;
-- From now on an unfinished run holds the sums of its ended sources; only the few running ones are added to them.
UPDATE scans s SET (open_sources, progress, findings_new, findings_seen, findings_resolved) = (
    SELECT count(*) FILTER (WHERE status IN ('queued', 'running')),
           coalesce((SELECT jsonb_object_agg(key, n) FROM (
               SELECT key, sum(value::bigint) AS n FROM scan_sources e, jsonb_each_text(e.progress)
               WHERE e.account_id = s.account_id AND e.scan_id = s.id AND e.status IN ('done', 'failed')
               GROUP BY key) ended), '{}'),
           coalesce(sum(q.findings_new) FILTER (WHERE status IN ('done', 'failed')), 0),
           coalesce(sum(q.findings_seen) FILTER (WHERE status IN ('done', 'failed')), 0),
           coalesce(sum(q.findings_resolved) FILTER (WHERE status IN ('done', 'failed')), 0)
    FROM scan_sources q WHERE q.account_id = s.account_id AND q.scan_id = s.id)
WHERE finished_at IS NULL;

CREATE FUNCTION sources_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE scans s SET open_sources = open_sources + n
    FROM (SELECT account_id, scan_id, count(*) AS n FROM new_rows WHERE status IN ('queued', 'running')
          GROUP BY account_id, scan_id) added
    WHERE s.account_id = added.account_id AND s.id = added.scan_id;
    RETURN NULL;
END $$;
CREATE TRIGGER scan_sources_added AFTER INSERT ON scan_sources
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION sources_added();

CREATE FUNCTION source_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE scans SET open_sources = open_sources - 1,
        findings_new = findings_new + NEW.findings_new,
        findings_seen = findings_seen + NEW.findings_seen,
        findings_resolved = findings_resolved + NEW.findings_resolved,
        progress = coalesce((
            SELECT jsonb_object_agg(key, n) FROM (
                SELECT key, sum(value::bigint) AS n
                FROM (SELECT * FROM jsonb_each_text(scans.progress)
                      UNION ALL SELECT * FROM jsonb_each_text(NEW.progress)) counters
                GROUP BY key) sums), '{}')
    WHERE account_id = NEW.account_id AND id = NEW.scan_id AND finished_at IS NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER scan_sources_ended AFTER UPDATE ON scan_sources FOR EACH ROW
    WHEN (OLD.status IN ('queued', 'running') AND NEW.status IN ('done', 'failed'))
    EXECUTE FUNCTION source_ended();

-- The sources whose counts are not in the sums of their run yet. The condition is also in store/runs/scans.py.
CREATE INDEX scan_sources_begun ON scan_sources (account_id, scan_id)
    WHERE status = 'running' OR (status = 'queued'
        AND (progress <> '{}' OR findings_new + findings_seen + findings_resolved > 0));
-- Whether a target has an unfinished run.
CREATE INDEX scans_unfinished ON scans (account_id, target_id) WHERE finished_at IS NULL;
