-- compatible_from: 2
-- Findings, and the tables that make lists of them fast and totals exact (docs/adr/0002-lists-at-scale.md).

CREATE EXTENSION IF NOT EXISTS pg_trgm;
CREATE EXTENSION IF NOT EXISTS btree_gin;

CREATE TABLE findings (
    account_id            integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    id                    uuid NOT NULL,
    status                text NOT NULL,
    validation_status     text NOT NULL,
    validation_confidence text NOT NULL,
    validation_detail     jsonb NOT NULL CHECK (jsonb_typeof(validation_detail -> 'enabled_services') = 'array'),
    composite_score       float8 NOT NULL CHECK (composite_score BETWEEN 0 AND 100),
    source_type           text NOT NULL,
    source_visibility     text NOT NULL,
    source_url            text,
    repo_full_name        text,
    file_path             text,
    line_number           integer,
    matched_text          text NOT NULL,
    pattern_name          text NOT NULL,
    pattern_secret_type   text NOT NULL,
    first_seen_at         timestamptz(0) NOT NULL,
    last_seen_at          timestamptz(0) NOT NULL,
    seen_count            integer NOT NULL,
    resolved_at           timestamptz(0),
    resolution_note       text,
    auto_resolved         boolean,
    resolved_by           text,
    suppressed_at         timestamptz(0),
    fingerprint           bytea,  -- HMAC of the raw value: the same credential in another place has the same
    identity              bytea,  -- digest of source, path and fingerprint: the same credential in the same place
    secret_box            bytea,  -- the raw value, encrypted; it is stored nowhere else
    -- Four filters packed into one small number (store/findings/facets.py), for narrow indexes and the rollups.
    -- A value that is not in its list makes the facet NULL, which the column does not accept.
    facet                 smallint NOT NULL GENERATED ALWAYS AS ((
        (suppressed_at IS NOT NULL)::int * 125
        + (array_position('{active,resolved,false_positive,customer_restricted,stale}'::text[], status) - 1) * 25
        + (array_position('{repo,gist,commit,endpoint,js_bundle}'::text[], source_type) - 1) * 5
        + (array_position('{valid,invalid,unvalidated,error,unreachable}'::text[], validation_status) - 1)
    )::smallint) STORED,
    PRIMARY KEY (account_id, id),
    CHECK ((status = 'resolved') = (resolved_at IS NOT NULL) AND (status = 'resolved') = (auto_resolved IS NOT NULL))
) WITH (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

CREATE INDEX findings_score ON findings (account_id, composite_score, id) INCLUDE (facet, first_seen_at);
CREATE INDEX findings_first ON findings (account_id, first_seen_at, id) INCLUDE (facet, composite_score);
CREATE INDEX findings_last ON findings (account_id, last_seen_at, id) INCLUDE (facet, composite_score, first_seen_at);
CREATE INDEX findings_facet ON findings (account_id, facet) INCLUDE (id, composite_score, first_seen_at, last_seen_at);
CREATE INDEX findings_fingerprint ON findings (account_id, fingerprint) WHERE fingerprint IS NOT NULL;
CREATE UNIQUE INDEX findings_identity ON findings (account_id, identity) WHERE identity IS NOT NULL;

-- The text that `q` searches. It has a table of its own, so that a rescan, which updates every `last_seen_at`, does
-- not update the trigram index. facet, score and first seen are copied here without an index: changing them is
-- cheap, and a search needs no join.
CREATE TABLE finding_search (
    account_id      integer NOT NULL,
    id              uuid NOT NULL,
    text            text NOT NULL,  -- case-folded by Python, so that the server's locale does not matter
    facet           smallint NOT NULL,
    composite_score float8 NOT NULL,
    first_seen_at   timestamptz(0) NOT NULL,
    PRIMARY KEY (account_id, id)
) WITH (fillfactor = 90);
-- New texts wait in the index's pending list. The writer that makes the list longer than its limit has to move it
-- into the index, which takes long. That must never be a person's triage. So the limit is large, and an import
-- flushes the list itself before it gets that long.
CREATE INDEX finding_search_text ON finding_search USING gin (account_id, text gin_trgm_ops) WITH (gin_pending_list_limit = 524288);

-- One row for each service that a finding's credential gives access to.
CREATE TABLE finding_services (
    account_id      integer NOT NULL,
    id              uuid NOT NULL,
    service         text NOT NULL,
    facet           smallint NOT NULL,
    composite_score float8 NOT NULL,
    first_seen_at   timestamptz(0) NOT NULL,
    PRIMARY KEY (account_id, id, service)
);
CREATE INDEX finding_services_score ON finding_services (account_id, service, composite_score, id) INCLUDE (facet, first_seen_at);

-- Counts of findings by cell. Writers only append to the deltas, so that they never wait for each other; a job adds
-- the deltas to the rollups.
CREATE TABLE rollups (
    account_id integer NOT NULL,
    kind       smallint NOT NULL,
    service    text NOT NULL,
    bucket     integer NOT NULL,
    facet      smallint NOT NULL,
    n          bigint NOT NULL,
    PRIMARY KEY (account_id, kind, service, facet, bucket)
) WITH (fillfactor = 70);
CREATE TABLE rollup_deltas (
    account_id integer NOT NULL,
    kind       smallint NOT NULL,
    service    text NOT NULL,
    bucket     integer NOT NULL,
    facet      smallint NOT NULL,
    n          bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 5000);
CREATE INDEX rollup_deltas_cell ON rollup_deltas (account_id, kind, service, facet, bucket);
CREATE VIEW rollup_cells AS
    SELECT account_id, kind, service, bucket, facet, n FROM rollups
    UNION ALL
    SELECT account_id, kind, service, bucket, facet, n FROM rollup_deltas;

-- The cells in which a finding is counted; store/findings/rollups.py names the kinds. Days are counted in UTC from
-- 1970. Facet -1 means all facets. `outcrop doctor` recounts with these two functions; the triggers below compute
-- the same counts in one pass.
CREATE FUNCTION utc_day(timestamptz) RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT floor(extract(epoch FROM $1) / 86400)::integer $$;
CREATE FUNCTION finding_cells(facet smallint, score float8, first_seen timestamptz, last_seen timestamptz)
RETURNS TABLE (kind smallint, bucket integer, facet smallint) LANGUAGE sql IMMUTABLE AS $$
    SELECT v.kind::smallint, v.bucket, f.facet
    FROM (VALUES ($1), (-1::smallint)) f (facet),
         (VALUES (0, 0),
                 (1, floor($2)::integer),
                 (2, floor($2)::integer >> 3),
                 (3, utc_day($3)),
                 (4, utc_day($3) >> 5),
                 (5, utc_day($4)),
                 (6, utc_day($4) >> 5)) v (kind, bucket)
    UNION ALL
    VALUES (9::smallint, utc_day($3) * 128 + floor($2)::integer, -1::smallint),
           (10::smallint, (utc_day($3) >> 5) * 128 + floor($2)::integer, -1::smallint)
$$;
CREATE FUNCTION service_cells(facet smallint, score float8)
RETURNS TABLE (kind smallint, bucket integer, facet smallint) LANGUAGE sql IMMUTABLE AS $$
    VALUES (7::smallint, floor($2)::integer, -1::smallint),
           (8::smallint, 0, $1),
           (8::smallint, 0, -1::smallint)
$$;

-- The three trigger functions differ in the rows that they count and in their other statements. The counting itself
-- is written once, here.
DO $do$
DECLARE
    counted text := $sql$
        INSERT INTO rollup_deltas
        SELECT account_id,
               CASE GROUPING(score, score8, first, first32, last, last32)
                   WHEN 63 THEN 0 WHEN 31 THEN 1 WHEN 47 THEN 2 WHEN 55 THEN 3 WHEN 59 THEN 4 WHEN 61 THEN 5 WHEN 62 THEN 6
                   WHEN 23 THEN 9 WHEN 27 THEN 10 END,
               '',
               CASE GROUPING(score, score8, first, first32, last, last32)
                   WHEN 63 THEN 0 WHEN 31 THEN score WHEN 47 THEN score8 WHEN 55 THEN first WHEN 59 THEN first32 WHEN 61 THEN last
                   WHEN 62 THEN last32 WHEN 23 THEN first * 128 + score WHEN 27 THEN first32 * 128 + score END,
               coalesce(facet, -1),
               sum(n)
        FROM (SELECT account_id, facet, score, score >> 3 AS score8, first, first >> 5 AS first32, last, last >> 5 AS last32, n
              FROM (SELECT account_id, facet, n, floor(composite_score)::integer AS score,
                           floor(extract(epoch FROM first_seen_at) / 86400)::integer AS first,
                           floor(extract(epoch FROM last_seen_at) / 86400)::integer AS last
                    FROM (%s) changed) bucketed) rows
        GROUP BY account_id, GROUPING SETS (
            (facet), (), (facet, score), (score), (facet, score8), (score8), (facet, first), (first), (facet, first32), (first32),
            (facet, last), (last), (facet, last32), (last32), (first, score), (first32, score))
        HAVING sum(n) <> 0;
    $sql$;
    columns text := 'account_id, facet, composite_score, first_seen_at, last_seen_at';
    -- The columns of a finding that finding_search and finding_services copy.
    carried text := '(%1$s.facet, %1$s.composite_score, %1$s.first_seen_at)';
    labelled text := '(%1$s.facet, %1$s.composite_score, %1$s.first_seen_at, %1$s.validation_detail -> ''enabled_services'')';
BEGIN
    EXECUTE format('CREATE FUNCTION findings_inserted() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN %s
        INSERT INTO finding_services
        SELECT DISTINCT r.account_id, r.id, s.service, r.facet, r.composite_score, r.first_seen_at
        FROM new_rows r, jsonb_array_elements_text(r.validation_detail -> ''enabled_services'') AS s (service);
        RETURN NULL; END $f$',
        format(counted, format('SELECT %s, 1 AS n FROM new_rows', columns)));

    EXECUTE format('CREATE FUNCTION findings_updated() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN %s
        UPDATE finding_search s SET facet = n.facet, composite_score = n.composite_score, first_seen_at = n.first_seen_at
        FROM new_rows n JOIN old_rows o USING (account_id, id)
        WHERE %s IS DISTINCT FROM %s AND s.account_id = n.account_id AND s.id = n.id;
        DELETE FROM finding_services s USING new_rows n JOIN old_rows o USING (account_id, id)
        WHERE %s IS DISTINCT FROM %s AND s.account_id = n.account_id AND s.id = n.id;
        INSERT INTO finding_services
        SELECT DISTINCT n.account_id, n.id, s.service, n.facet, n.composite_score, n.first_seen_at
        FROM new_rows n JOIN old_rows o USING (account_id, id),
             jsonb_array_elements_text(n.validation_detail -> ''enabled_services'') AS s (service)
        WHERE %s IS DISTINCT FROM %s;
        RETURN NULL; END $f$',
        format(counted, format('SELECT %1$s, 1 AS n FROM new_rows UNION ALL SELECT %1$s, -1 FROM old_rows', columns)),
        format(carried, 'o'), format(carried, 'n'), format(labelled, 'o'), format(labelled, 'n'),
        format(labelled, 'o'), format(labelled, 'n'));

    EXECUTE format('CREATE FUNCTION findings_deleted() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN %s
        DELETE FROM finding_services s USING old_rows o WHERE s.account_id = o.account_id AND s.id = o.id;
        DELETE FROM finding_search s USING old_rows o WHERE s.account_id = o.account_id AND s.id = o.id;
        RETURN NULL; END $f$',
        format(counted, format('SELECT %s, -1 AS n FROM old_rows', columns)));
END $do$;

CREATE FUNCTION services_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO rollup_deltas
        SELECT r.account_id, c.kind, r.service, c.bucket, c.facet, count(*)
        FROM new_rows r, service_cells(r.facet, r.composite_score) c GROUP BY 1, 2, 3, 4, 5;
    ELSE
        INSERT INTO rollup_deltas
        SELECT r.account_id, c.kind, r.service, c.bucket, c.facet, -count(*)
        FROM old_rows r, service_cells(r.facet, r.composite_score) c GROUP BY 1, 2, 3, 4, 5;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER findings_insert AFTER INSERT ON findings
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION findings_inserted();
CREATE TRIGGER findings_update AFTER UPDATE ON findings
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION findings_updated();
CREATE TRIGGER findings_delete AFTER DELETE ON findings
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION findings_deleted();
CREATE TRIGGER services_insert AFTER INSERT ON finding_services
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION services_changed();
CREATE TRIGGER services_delete AFTER DELETE ON finding_services
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION services_changed();
