-- compatible_from: 9
-- Lists of findings by source, for the findings of one target; and what the statistics of an account read.

CREATE INDEX findings_source_score ON findings (account_id, source, composite_score, id)
    INCLUDE (facet, first_seen_at) WHERE source IS NOT NULL;
-- Closed findings by the time of closing.
CREATE INDEX findings_closed ON findings (account_id, closed_at) INCLUDE (first_seen_at, status, composite_score)
    WHERE closed_at IS NOT NULL;

-- Counts by source (kind 30): `service` is the source, `bucket` is 0. They have triggers of their own, as those of
-- 0007. An update that changes neither source nor facet appends nothing.
DO $do$
DECLARE
    counted text := $sql$
        INSERT INTO rollup_deltas
        SELECT account_id, 30, source, 0, facet, sum(n) FROM (%s) changed
        GROUP BY account_id, source, facet HAVING sum(n) <> 0;
    $sql$;
    differ text := 'FROM new_rows n JOIN old_rows o USING (account_id, id) WHERE (n.source, n.facet) IS DISTINCT FROM (o.source, o.facet)';
    body text := 'CREATE FUNCTION %I() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN %s RETURN NULL; END $f$';
BEGIN
    EXECUTE format(body, 'sources_inserted', format(counted,
        'SELECT account_id, source, facet, 1 AS n FROM new_rows WHERE source IS NOT NULL'));
    EXECUTE format(body, 'sources_updated', format(counted,
        format('SELECT account_id, n.source, n.facet, 1 AS n %1$s AND n.source IS NOT NULL
                UNION ALL SELECT account_id, o.source, o.facet, -1 %1$s AND o.source IS NOT NULL', differ)));
    EXECUTE format(body, 'sources_deleted', format(counted,
        'SELECT account_id, source, facet, -1 AS n FROM old_rows WHERE source IS NOT NULL'));
END $do$;
CREATE TRIGGER sources_insert AFTER INSERT ON findings
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION sources_inserted();
CREATE TRIGGER sources_update AFTER UPDATE ON findings
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION sources_updated();
CREATE TRIGGER sources_delete AFTER DELETE ON findings
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION sources_deleted();
-- No findings are written until this transaction ends: creating a trigger locks the table against writers.
INSERT INTO rollups SELECT account_id, 30, source, 0, facet, count(*) FROM findings
    WHERE source IS NOT NULL GROUP BY account_id, source, facet;
