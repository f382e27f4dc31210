-- compatible_from: 9
-- The commit's author and date, the run that reported a finding as new, the time of the last change; and what
-- lists that filter by these and by other attributes need: indexes, and counts by value.

-- Stored findings count as changed now.
ALTER TABLE findings
    ADD COLUMN author text,
    ADD COLUMN committed_at timestamptz(0),
    ADD COLUMN new_scan_id uuid,  -- the run that reported the finding as new, or as open again
    ADD COLUMN updated_at timestamptz(0) NOT NULL DEFAULT date_trunc('second', now());
ALTER TABLE findings ALTER COLUMN updated_at SET DEFAULT date_trunc('second', clock_timestamp());

-- A client that polls for changes must not miss one that is committed later than others with a higher
-- `updated_at`. So a transaction holds a shared lock with the second of its first change until it ends, and
-- `store/findings/updates.py` reads the oldest such lock. The lock is taken before `updated_at` is computed. Its
-- second key counts from 2020.
CREATE FUNCTION announce_updates() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(current_setting('outcrop.updates_announced', true), '') = '' THEN
        PERFORM pg_advisory_xact_lock_shared(7264008, (floor(extract(epoch FROM clock_timestamp())) - 1577836800)::integer);
        PERFORM set_config('outcrop.updates_announced', 'yes', true);
    END IF;
END $$;
CREATE FUNCTION findings_announce() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM announce_updates();
    RETURN NULL;
END $$;
CREATE FUNCTION findings_set_updated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM announce_updates();
    NEW.updated_at := date_trunc('second', clock_timestamp());
    RETURN NEW;
END $$;
CREATE TRIGGER findings_announce BEFORE INSERT ON findings FOR EACH STATEMENT EXECUTE FUNCTION findings_announce();
-- Every column that the API shows, except `last_seen_at` and `seen_count`. The time of a verdict is no change of it.
CREATE TRIGGER findings_set_updated BEFORE UPDATE ON findings FOR EACH ROW WHEN (
    (NEW.status, NEW.resolved_at, NEW.resolution_note, NEW.auto_resolved, NEW.resolved_by, NEW.suppressed_at,
     NEW.validation_status, NEW.validation_confidence, NEW.validation_detail - 'checked_at', NEW.composite_score,
     NEW.source_type, NEW.source_visibility, NEW.source_url, NEW.repo_full_name, NEW.file_path, NEW.line_number,
     NEW.current_line, NEW.commit_id, NEW.author, NEW.committed_at, NEW.matched_text, NEW.pattern_name,
     NEW.pattern_secret_type, NEW.rule, NEW.allowed_in_source, NEW.first_seen_at)
    IS DISTINCT FROM
    (OLD.status, OLD.resolved_at, OLD.resolution_note, OLD.auto_resolved, OLD.resolved_by, OLD.suppressed_at,
     OLD.validation_status, OLD.validation_confidence, OLD.validation_detail - 'checked_at', OLD.composite_score,
     OLD.source_type, OLD.source_visibility, OLD.source_url, OLD.repo_full_name, OLD.file_path, OLD.line_number,
     OLD.current_line, OLD.commit_id, OLD.author, OLD.committed_at, OLD.matched_text, OLD.pattern_name,
     OLD.pattern_secret_type, OLD.rule, OLD.allowed_in_source, OLD.first_seen_at))
    EXECUTE FUNCTION findings_set_updated();

-- Each index has the matches of one value in the order of the score, and what most lists filter or sort them by.
CREATE INDEX findings_type ON findings (account_id, pattern_secret_type, composite_score, id) INCLUDE (facet, first_seen_at);
CREATE INDEX findings_visibility ON findings (account_id, source_visibility, composite_score, id) INCLUDE (facet, first_seen_at);
CREATE INDEX findings_rule ON findings (account_id, rule, composite_score, id) INCLUDE (facet, first_seen_at) WHERE rule IS NOT NULL;
-- The longest names are cut: an entry of an index has at most 2,704 bytes.
CREATE INDEX findings_repo ON findings (account_id, left(lower(repo_full_name), 512), composite_score, id) WHERE repo_full_name IS NOT NULL;
CREATE INDEX findings_author ON findings (account_id, author, composite_score, id) INCLUDE (facet, first_seen_at) WHERE author IS NOT NULL;
CREATE INDEX findings_new_scan ON findings (account_id, new_scan_id, composite_score, id)
    INCLUDE (facet, first_seen_at) WHERE new_scan_id IS NOT NULL;
CREATE INDEX findings_updated ON findings (account_id, updated_at, id) INCLUDE (facet, composite_score, first_seen_at);

-- Counts by attribute (kinds 12 to 16: `service` is the value, `bucket` is 0) and by the minute of `updated_at`
-- (17, and 18 for spans of 1,024 minutes). The triggers of 0002 and 0009 stay unchanged.
CREATE FUNCTION attribute_cells(facet smallint, visibility text, rule text, repo text, author text, scan uuid, updated timestamptz)
RETURNS TABLE (kind smallint, service text, bucket integer, facet smallint) LANGUAGE sql IMMUTABLE AS $$
    SELECT v.kind::smallint, v.value, 0, $1
    FROM (VALUES (12, $2), (13, $3), (14, left(lower($4), 512)), (15, $5), (16, $6::text)) v (kind, value) WHERE v.value IS NOT NULL
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
                                      (16, new_scan_id::text)) attribute (kind, value)
        WHERE value IS NOT NULL GROUP BY account_id, kind, value, facet HAVING sum(n) <> 0
        UNION ALL
        SELECT account_id, CASE GROUPING(minute, span) WHEN 1 THEN 17 ELSE 18 END, '',
               CASE GROUPING(minute, span) WHEN 1 THEN minute ELSE span END, coalesce(facet, -1), sum(n)
        FROM (SELECT account_id, facet, n, minute, minute >> 10 AS span
              FROM (SELECT account_id, facet, n, floor(extract(epoch FROM updated_at) / 60)::integer AS minute FROM changed) m) s
        GROUP BY account_id, GROUPING SETS ((facet, minute), (minute), (facet, span), (span)) HAVING sum(n) <> 0;
    $sql$;
    columns text := '%1$s.account_id, %1$s.facet, %1$s.source_visibility, %1$s.rule, %1$s.repo_full_name, %1$s.author, %1$s.new_scan_id, %1$s.updated_at';
    differ text := 'FROM new_rows n JOIN old_rows o USING (account_id, id) WHERE (' || format(columns, 'n') || ') IS DISTINCT FROM (' || format(columns, 'o') || ')';
    body text := 'CREATE FUNCTION %I() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN %s RETURN NULL; END $f$';
BEGIN
    EXECUTE format(body, 'attributes_inserted', format(counted, format('SELECT %s, 1 AS n FROM new_rows r', format(columns, 'r'))));
    EXECUTE format(body, 'attributes_updated', format(counted,
        format('SELECT %s, 1 AS n %s UNION ALL SELECT %s, -1 %s', format(columns, 'n'), differ, format(columns, 'o'), differ)));
    EXECUTE format(body, 'attributes_deleted', format(counted, format('SELECT %s, -1 AS n FROM old_rows r', format(columns, 'r'))));
END $do$;
CREATE TRIGGER attributes_insert AFTER INSERT ON findings
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION attributes_inserted();
CREATE TRIGGER attributes_update AFTER UPDATE ON findings
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION attributes_updated();
CREATE TRIGGER attributes_delete AFTER DELETE ON findings
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION attributes_deleted();
-- No findings are written until this transaction ends: creating a trigger locks the table against writers.
INSERT INTO rollups
    SELECT f.account_id, c.kind, c.service, c.bucket, c.facet, count(*)
    FROM findings f, attribute_cells(f.facet, f.source_visibility, f.rule, f.repo_full_name, f.author, f.new_scan_id, f.updated_at) c
    GROUP BY 1, 2, 3, 4, 5;
