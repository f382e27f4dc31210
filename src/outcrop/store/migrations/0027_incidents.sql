-- compatible_from: 9
-- Incidents: one credential of an account with all its places. A finding without a fingerprint is an incident of
-- its own.

-- The id looks random and follows from account and fingerprint. So a finding has it from the first moment on,
-- whichever transaction writes the incident's row, and two accounts have different ids for the same credential.
CREATE FUNCTION incident_id_of(account integer, fingerprint bytea, finding uuid) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT overlay(overlay(substr(encode(sha256(int4send($1) || coalesce('\x01'::bytea || $2, '\x00'::bytea || uuid_send($3))), 'hex'), 1, 32)
                           placing '4' from 13) placing 'a' from 17)::uuid
$$;
ALTER TABLE findings
    ADD COLUMN incident_id uuid NOT NULL GENERATED ALWAYS AS (incident_id_of(account_id, fingerprint, id)) STORED,
    ADD COLUMN assignee text;  -- as in incidents; copied, so that lists of findings can be filtered by it

-- Days within which an incident of a severity is due. No row: no due date.
CREATE TABLE due_days (
    account_id integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    severity   text NOT NULL CHECK (severity IN ('critical', 'high', 'medium', 'low')),
    days       integer NOT NULL CHECK (days BETWEEN 0 AND 3650),
    PRIMARY KEY (account_id, severity)
);

-- What follows from the findings of each incident. The verdict is a valid one if there is one, otherwise the newest.
CREATE VIEW incident_states AS
    SELECT s.account_id, s.id, s.places, s.open_places, s.composite_score,
           f.validation_status, f.validation_confidence, f.validation_detail,
           f.matched_text, f.pattern_name, f.pattern_secret_type,
           s.first_seen_at, s.last_seen_at, s.closed_at,
           CASE WHEN d.days IS NOT NULL
                THEN least(s.first_seen_at + d.days * interval '1 day', '9999-12-31 23:59:59+00'::timestamptz)::timestamptz(0)
           END AS due_at
    FROM (SELECT account_id, incident_id AS id,
                 count(*)::integer AS places,
                 (count(*) FILTER (WHERE status IN ('active', 'stale')))::integer AS open_places,
                 coalesce(max(composite_score) FILTER (WHERE status IN ('active', 'stale')), max(composite_score)) AS composite_score,
                 min(first_seen_at) AS first_seen_at,
                 max(last_seen_at) AS last_seen_at,
                 CASE WHEN bool_and(status NOT IN ('active', 'stale'))
                      THEN max(coalesce(closed_at, resolved_at, last_seen_at)) END AS closed_at,
                 (array_agg(id ORDER BY validation_status = 'valid' DESC, validation_status <> 'unvalidated' DESC,
                            validation_detail ->> 'checked_at' DESC NULLS LAST, composite_score DESC, id))[1] AS shown
          FROM findings GROUP BY account_id, incident_id) s
    JOIN findings f ON f.account_id = s.account_id AND f.id = s.shown
    LEFT JOIN due_days d ON d.account_id = s.account_id AND d.severity =
        CASE WHEN s.composite_score >= 80 THEN 'critical' WHEN s.composite_score >= 60 THEN 'high'
             WHEN s.composite_score >= 40 THEN 'medium' ELSE 'low' END;

-- All columns but `assignee` are copied from the view, by one process at a time for each account
-- (store/incidents/pending.py).
CREATE TABLE incidents (
    account_id            integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    id                    uuid NOT NULL,
    places                integer NOT NULL,
    open_places           integer NOT NULL,
    composite_score       float8 NOT NULL,
    validation_status     text NOT NULL,
    validation_confidence text NOT NULL,
    validation_detail     jsonb NOT NULL,
    matched_text          text NOT NULL,
    pattern_name          text NOT NULL,
    pattern_secret_type   text NOT NULL,
    first_seen_at         timestamptz(0) NOT NULL,
    last_seen_at          timestamptz(0) NOT NULL,
    closed_at             timestamptz(0),  -- when its last place was closed; null while one is open
    due_at                timestamptz(0),
    assignee              text,  -- the address of a member
    -- Two filters in one small number, as in findings (store/incidents/conditions.py): closed, validation.
    facet                 smallint NOT NULL GENERATED ALWAYS AS ((
        (open_places = 0)::int * 5
        + (array_position('{valid,invalid,unvalidated,error,unreachable}'::text[], validation_status) - 1)
    )::smallint) STORED,
    PRIMARY KEY (account_id, id)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
INSERT INTO incidents SELECT * FROM incident_states WHERE account_id IN (SELECT id FROM accounts);

-- Incidents whose findings have changed. Writers of findings only append here, so that they never wait for each
-- other. `moved_to` is the incident to which a finding has moved, because its fingerprint became known.
CREATE TABLE incident_changes (
    account_id integer NOT NULL,
    n          bigint GENERATED ALWAYS AS IDENTITY,
    id         uuid NOT NULL,
    moved_to   uuid,
    PRIMARY KEY (account_id, n)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 5000);

CREATE TABLE incident_comments (
    account_id  integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    id          uuid NOT NULL,
    incident_id uuid NOT NULL,
    n           bigint GENERATED ALWAYS AS IDENTITY,  -- the order of the comments
    at          timestamptz(0) NOT NULL,
    by          text NOT NULL,
    text        text NOT NULL,
    PRIMARY KEY (account_id, id)
);
CREATE INDEX incident_comments_incident ON incident_comments (account_id, incident_id, n);

CREATE INDEX incidents_score ON incidents (account_id, composite_score, id) INCLUDE (facet, first_seen_at);
CREATE INDEX incidents_first ON incidents (account_id, first_seen_at, id) INCLUDE (facet, composite_score);
CREATE INDEX incidents_last ON incidents (account_id, last_seen_at, id) INCLUDE (facet, composite_score, first_seen_at);
CREATE INDEX incidents_due ON incidents (account_id, due_at, id) INCLUDE (facet, composite_score, first_seen_at);
CREATE INDEX incidents_type ON incidents (account_id, pattern_secret_type, composite_score, id) INCLUDE (facet, first_seen_at);
CREATE INDEX incidents_assignee ON incidents (account_id, lower(coalesce(assignee, '')), composite_score, id) INCLUDE (facet, first_seen_at);
CREATE INDEX incidents_services ON incidents USING gin (account_id, (validation_detail -> 'enabled_services'));
CREATE INDEX findings_incident ON findings (account_id, incident_id);
CREATE INDEX findings_assignee ON findings (account_id, lower(coalesce(assignee, '')), composite_score, id) INCLUDE (facet, first_seen_at);

CREATE FUNCTION incidents_inserted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO incident_changes (account_id, id) SELECT DISTINCT account_id, incident_id FROM new_rows;
    RETURN NULL;
END $$;
CREATE FUNCTION incidents_updated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO incident_changes (account_id, id, moved_to)
    WITH changed AS MATERIALIZED (
        SELECT n.account_id, n.incident_id AS id, o.incident_id AS old_id FROM new_rows n JOIN old_rows o USING (account_id, id)
        WHERE (n.incident_id, n.status, n.composite_score, n.validation_status, n.validation_confidence, n.validation_detail,
               n.matched_text, n.pattern_name, n.pattern_secret_type, n.first_seen_at, n.last_seen_at, n.closed_at, n.resolved_at)
              IS DISTINCT FROM
              (o.incident_id, o.status, o.composite_score, o.validation_status, o.validation_confidence, o.validation_detail,
               o.matched_text, o.pattern_name, o.pattern_secret_type, o.first_seen_at, o.last_seen_at, o.closed_at, o.resolved_at))
    SELECT DISTINCT account_id, id, NULL::uuid FROM changed
    UNION ALL
    SELECT DISTINCT account_id, old_id, id FROM changed WHERE old_id <> id;
    RETURN NULL;
END $$;
-- The findings of a deleted account leave nothing here.
CREATE FUNCTION incidents_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO incident_changes (account_id, id)
    SELECT DISTINCT account_id, incident_id FROM old_rows o WHERE EXISTS (SELECT FROM accounts a WHERE a.id = o.account_id);
    RETURN NULL;
END $$;
CREATE TRIGGER incidents_insert AFTER INSERT ON findings
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION incidents_inserted();
CREATE TRIGGER incidents_update AFTER UPDATE ON findings
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION incidents_updated();
CREATE TRIGGER incidents_delete AFTER DELETE ON findings
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION incidents_deleted();

-- Counts of incidents: kinds 21 to 27 as 0 to 6 of findings; by credential type (28) and assignee (29).
CREATE FUNCTION incident_cells(facet smallint, score float8, first_seen timestamptz, last_seen timestamptz, type text, assignee text)
RETURNS TABLE (kind smallint, service text, bucket integer, facet smallint) LANGUAGE sql IMMUTABLE AS $$
    SELECT v.kind::smallint, '', v.bucket, f.facet
    FROM (VALUES ($1), (-1::smallint)) f (facet),
         (VALUES (21, 0), (22, floor($2)::integer), (23, floor($2)::integer >> 3),
                 (24, utc_day($3)), (25, utc_day($3) >> 5), (26, utc_day($4)), (27, utc_day($4) >> 5)) v (kind, bucket)
    UNION ALL
    VALUES (28::smallint, $5, 0, $1), (29::smallint, lower(coalesce($6, '')), 0, $1)
$$;
DO $do$
DECLARE
    counted text := $sql$
        WITH changed AS MATERIALIZED (%s)
        INSERT INTO rollup_deltas
        SELECT account_id,
               CASE GROUPING(score, score8, first, first32, last, last32)
                   WHEN 63 THEN 21 WHEN 31 THEN 22 WHEN 47 THEN 23 WHEN 55 THEN 24 WHEN 59 THEN 25 WHEN 61 THEN 26 WHEN 62 THEN 27 END,
               '',
               CASE GROUPING(score, score8, first, first32, last, last32)
                   WHEN 63 THEN 0 WHEN 31 THEN score WHEN 47 THEN score8 WHEN 55 THEN first WHEN 59 THEN first32
                   WHEN 61 THEN last WHEN 62 THEN last32 END,
               coalesce(facet, -1), sum(n)
        FROM (SELECT account_id, facet, score, score >> 3 AS score8, first, first >> 5 AS first32, last, last >> 5 AS last32, n
              FROM (SELECT account_id, facet, n, floor(composite_score)::integer AS score,
                           floor(extract(epoch FROM first_seen_at) / 86400)::integer AS first,
                           floor(extract(epoch FROM last_seen_at) / 86400)::integer AS last FROM changed) days) bucketed
        GROUP BY account_id, GROUPING SETS (
            (facet), (), (facet, score), (score), (facet, score8), (score8), (facet, first), (first), (facet, first32), (first32),
            (facet, last), (last), (facet, last32), (last32))
        HAVING sum(n) <> 0
        UNION ALL
        SELECT account_id, kind, value, 0, facet, sum(n)
        FROM changed, LATERAL (VALUES (28, pattern_secret_type), (29, lower(coalesce(assignee, '')))) attribute (kind, value)
        GROUP BY account_id, kind, value, facet HAVING sum(n) <> 0;
    $sql$;
    columns text := '%1$s.account_id, %1$s.facet, %1$s.composite_score, %1$s.first_seen_at, %1$s.last_seen_at, %1$s.pattern_secret_type, %1$s.assignee';
    differ text := 'FROM new_rows n JOIN old_rows o USING (account_id, id) WHERE (' || format(columns, 'n') || ') IS DISTINCT FROM (' || format(columns, 'o') || ')';
    body text := 'CREATE FUNCTION %I() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN %s RETURN NULL; END $f$';
BEGIN
    EXECUTE format(body, 'incident_rows_inserted', format(counted, format('SELECT %s, 1 AS n FROM new_rows r', format(columns, 'r'))));
    EXECUTE format(body, 'incident_rows_updated', format(counted,
        format('SELECT %s, 1 AS n %s UNION ALL SELECT %s, -1 %s', format(columns, 'n'), differ, format(columns, 'o'), differ)));
    EXECUTE format(body, 'incident_rows_deleted', format(counted, format('SELECT %s, -1 AS n FROM old_rows r', format(columns, 'r'))));
END $do$;
CREATE TRIGGER incident_rows_insert AFTER INSERT ON incidents
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION incident_rows_inserted();
CREATE TRIGGER incident_rows_update AFTER UPDATE ON incidents
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION incident_rows_updated();
CREATE TRIGGER incident_rows_delete AFTER DELETE ON incidents
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION incident_rows_deleted();

-- Counts of findings by attribute as in 0021, and by assignee (kind 20; without one: the empty text).
CREATE FUNCTION attribute_cells(facet smallint, visibility text, rule text, repo text, author text, scan uuid, updated timestamptz, context text, assignee text)
RETURNS TABLE (kind smallint, service text, bucket integer, facet smallint) LANGUAGE sql IMMUTABLE AS $$
    SELECT * FROM attribute_cells($1, $2, $3, $4, $5, $6, $7, $8)
    UNION ALL VALUES (20::smallint, lower(coalesce($9, '')), 0, $1)
$$;
DO $do$
DECLARE
    counted text := $sql$
        WITH changed AS MATERIALIZED (%s)
        INSERT INTO rollup_deltas
        SELECT account_id, kind, value, 0, facet, sum(n)
        FROM changed, LATERAL (VALUES (12, source_visibility), (13, rule), (14, left(lower(repo_full_name), 512)), (15, author),
                                      (16, new_scan_id::text), (19, context), (20, lower(coalesce(assignee, '')))) attribute (kind, value)
        WHERE value IS NOT NULL GROUP BY account_id, kind, value, facet HAVING sum(n) <> 0
        UNION ALL
        SELECT account_id, CASE GROUPING(minute, span) WHEN 1 THEN 17 ELSE 18 END, '',
               CASE GROUPING(minute, span) WHEN 1 THEN minute ELSE span END, coalesce(facet, -1), sum(n)
        FROM (SELECT account_id, facet, n, minute, minute >> 10 AS span
              FROM (SELECT account_id, facet, n, floor(extract(epoch FROM updated_at) / 60)::integer AS minute FROM changed) m) s
        GROUP BY account_id, GROUPING SETS ((facet, minute), (minute), (facet, span), (span)) HAVING sum(n) <> 0;
    $sql$;
    columns text := '%1$s.account_id, %1$s.facet, %1$s.source_visibility, %1$s.rule, %1$s.repo_full_name, %1$s.author, %1$s.new_scan_id, %1$s.updated_at, %1$s.context, %1$s.assignee';
    differ text := 'FROM new_rows n JOIN old_rows o USING (account_id, id) WHERE (' || format(columns, 'n') || ') IS DISTINCT FROM (' || format(columns, 'o') || ')';
    body text := 'CREATE OR REPLACE FUNCTION %I() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN %s RETURN NULL; END $f$';
BEGIN
    EXECUTE format(body, 'attributes_inserted', format(counted, format('SELECT %s, 1 AS n FROM new_rows r', format(columns, 'r'))));
    EXECUTE format(body, 'attributes_updated', format(counted,
        format('SELECT %s, 1 AS n %s UNION ALL SELECT %s, -1 %s', format(columns, 'n'), differ, format(columns, 'o'), differ)));
    EXECUTE format(body, 'attributes_deleted', format(counted, format('SELECT %s, -1 AS n FROM old_rows r', format(columns, 'r'))));
END $do$;
-- No findings are written until this transaction ends: creating a trigger locks the table against writers.
INSERT INTO rollups SELECT account_id, 20, '', 0, facet, count(*) FROM findings GROUP BY account_id, facet;
INSERT INTO rollups
    SELECT i.account_id, c.kind, c.service, c.bucket, c.facet, count(*)
    FROM incidents i, incident_cells(i.facet, i.composite_score, i.first_seen_at, i.last_seen_at, i.pattern_secret_type, i.assignee) c
    GROUP BY 1, 2, 3, 4, 5;

-- As in 0021, with the assignee.
DROP TRIGGER findings_set_updated ON findings;
CREATE TRIGGER findings_set_updated BEFORE UPDATE ON findings FOR EACH ROW WHEN (
    (NEW.status, NEW.resolved_at, NEW.resolution_note, NEW.auto_resolved, NEW.resolved_by, NEW.suppressed_at,
     NEW.validation_status, NEW.validation_confidence, NEW.validation_detail - 'checked_at', NEW.composite_score,
     NEW.source_type, NEW.source_visibility, NEW.source_url, NEW.repo_full_name, NEW.file_path, NEW.line_number,
     NEW.current_line, NEW.commit_id, NEW.author, NEW.committed_at, NEW.matched_text, NEW.pattern_name,
     NEW.pattern_secret_type, NEW.rule, NEW.allowed_in_source, NEW.first_seen_at,
     NEW.context, NEW.detection_confidence, NEW.lines, NEW.lines_total, NEW.current_lines, NEW.assignee, NEW.fingerprint)
    IS DISTINCT FROM
    (OLD.status, OLD.resolved_at, OLD.resolution_note, OLD.auto_resolved, OLD.resolved_by, OLD.suppressed_at,
     OLD.validation_status, OLD.validation_confidence, OLD.validation_detail - 'checked_at', OLD.composite_score,
     OLD.source_type, OLD.source_visibility, OLD.source_url, OLD.repo_full_name, OLD.file_path, OLD.line_number,
     OLD.current_line, OLD.commit_id, OLD.author, OLD.committed_at, OLD.matched_text, OLD.pattern_name,
     OLD.pattern_secret_type, OLD.rule, OLD.allowed_in_source, OLD.first_seen_at,
     OLD.context, OLD.detection_confidence, OLD.lines, OLD.lines_total, OLD.current_lines, OLD.assignee, OLD.fingerprint))
    EXECUTE FUNCTION findings_set_updated();
