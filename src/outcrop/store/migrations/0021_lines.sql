-- compatible_from: 9
-- All lines of a finding; lists by context.

-- Ascending, at most 100. Empty: only line_number and current_line are known.
ALTER TABLE findings ADD COLUMN lines integer[] NOT NULL DEFAULT '{}';
ALTER TABLE findings ADD COLUMN lines_total integer NOT NULL DEFAULT 0;
ALTER TABLE findings ADD COLUMN current_lines integer[] NOT NULL DEFAULT '{}';

-- As before, with the columns of this migration and the one before.
DROP TRIGGER findings_set_updated ON findings;
CREATE TRIGGER findings_set_updated BEFORE UPDATE ON findings FOR EACH ROW WHEN (
    (NEW.status, NEW.resolved_at, NEW.resolution_note, NEW.auto_resolved, NEW.resolved_by, NEW.suppressed_at,
     NEW.validation_status, NEW.validation_confidence, NEW.validation_detail - 'checked_at', NEW.composite_score,
     NEW.source_type, NEW.source_visibility, NEW.source_url, NEW.repo_full_name, NEW.file_path, NEW.line_number,
     NEW.current_line, NEW.commit_id, NEW.author, NEW.committed_at, NEW.matched_text, NEW.pattern_name,
     NEW.pattern_secret_type, NEW.rule, NEW.allowed_in_source, NEW.first_seen_at,
     NEW.context, NEW.detection_confidence, NEW.lines, NEW.lines_total, NEW.current_lines)
    IS DISTINCT FROM
    (OLD.status, OLD.resolved_at, OLD.resolution_note, OLD.auto_resolved, OLD.resolved_by, OLD.suppressed_at,
     OLD.validation_status, OLD.validation_confidence, OLD.validation_detail - 'checked_at', OLD.composite_score,
     OLD.source_type, OLD.source_visibility, OLD.source_url, OLD.repo_full_name, OLD.file_path, OLD.line_number,
     OLD.current_line, OLD.commit_id, OLD.author, OLD.committed_at, OLD.matched_text, OLD.pattern_name,
     OLD.pattern_secret_type, OLD.rule, OLD.allowed_in_source, OLD.first_seen_at,
     OLD.context, OLD.detection_confidence, OLD.lines, OLD.lines_total, OLD.current_lines))
    EXECUTE FUNCTION findings_set_updated();

CREATE INDEX findings_context ON findings (account_id, context, composite_score, id) INCLUDE (facet, first_seen_at)
    WHERE context IS NOT NULL;
-- Counts by attribute as in 0018, and by context (kind 19).
CREATE FUNCTION attribute_cells(facet smallint, visibility text, rule text, repo text, author text, scan uuid, updated timestamptz, context text)
RETURNS TABLE (kind smallint, service text, bucket integer, facet smallint) LANGUAGE sql IMMUTABLE AS $$
    SELECT v.kind::smallint, v.value, 0, $1
    FROM (VALUES (12, $2), (13, $3), (14, left(lower($4), 512)), (15, $5), (16, $6::text), (19, $8)) v (kind, value) WHERE v.value IS NOT NULL
    UNION ALL
    SELECT v.kind::smallint, '', v.bucket, f.facet
    FROM (VALUES ($1), (-1::smallint)) f (facet),
         (VALUES (17, floor(extract(epoch FROM $7) / 60)::integer),
                 (18, floor(extract(epoch FROM $7) / 60)::integer >> 10)) v (kind, bucket)
$$;
DO $do$
DECLARE
    counted text := $sql$
        WITH changed AS MATERIALIZED (%s)
        INSERT INTO rollup_deltas
        SELECT account_id, kind, value, 0, facet, sum(n)
        FROM changed, LATERAL (VALUES (12, source_visibility), (13, rule), (14, left(lower(repo_full_name), 512)), (15, author),
                                      (16, new_scan_id::text), (19, context)) attribute (kind, value)
        WHERE value IS NOT NULL GROUP BY account_id, kind, value, facet HAVING sum(n) <> 0
        UNION ALL
        SELECT account_id, CASE GROUPING(minute, span) WHEN 1 THEN 17 ELSE 18 END, '',
               CASE GROUPING(minute, span) WHEN 1 THEN minute ELSE span END, coalesce(facet, -1), sum(n)
        FROM (SELECT account_id, facet, n, minute, minute >> 10 AS span
              FROM (SELECT account_id, facet, n, floor(extract(epoch FROM updated_at) / 60)::integer AS minute FROM changed) m) s
        GROUP BY account_id, GROUPING SETS ((facet, minute), (minute), (facet, span), (span)) HAVING sum(n) <> 0;
    $sql$;
    columns text := '%1$s.account_id, %1$s.facet, %1$s.source_visibility, %1$s.rule, %1$s.repo_full_name, %1$s.author, %1$s.new_scan_id, %1$s.updated_at, %1$s.context';
    differ text := 'FROM new_rows n JOIN old_rows o USING (account_id, id) WHERE (' || format(columns, 'n') || ') IS DISTINCT FROM (' || format(columns, 'o') || ')';
    body text := 'CREATE OR REPLACE FUNCTION %I() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN %s RETURN NULL; END $f$';
BEGIN
    EXECUTE format(body, 'attributes_inserted', format(counted, format('SELECT %s, 1 AS n FROM new_rows r', format(columns, 'r'))));
    EXECUTE format(body, 'attributes_updated', format(counted,
        format('SELECT %s, 1 AS n %s UNION ALL SELECT %s, -1 %s', format(columns, 'n'), differ, format(columns, 'o'), differ)));
    EXECUTE format(body, 'attributes_deleted', format(counted, format('SELECT %s, -1 AS n FROM old_rows r', format(columns, 'r'))));
END $do$;

INSERT INTO rollups
    SELECT account_id, 19, context, 0, facet, count(*) FROM findings WHERE context IS NOT NULL
    GROUP BY account_id, context, facet;
