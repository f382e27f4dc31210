-- compatible_from: 9
-- Counts of incidents by month, for the page Numbers: its cost depends on months and days, not on incidents.

-- Months are counted in UTC from 1970. Severities as in the table due_days: 0 is critical, 3 is low.
CREATE FUNCTION utc_month(timestamptz) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
    SELECT (extract(year FROM $1 AT TIME ZONE 'UTC')::integer - 1970) * 12 + extract(month FROM $1 AT TIME ZONE 'UTC')::integer - 1
$$;
CREATE FUNCTION severity_number(score float8) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
    SELECT (CASE WHEN $1 >= 80 THEN 0 WHEN $1 >= 60 THEN 1 WHEN $1 >= 40 THEN 2 ELSE 3 END)::smallint
$$;
-- Kind 40: by the month in which an incident was first seen; the facet is the severity.
-- Kind 41: closed ones, by month * 4096 + time to close; that is in hours below 3 days, then in days from 72 on. The
--          facet is severity * 3, plus 1 if it was closed in time and 2 if late, when it had a due date.
-- Kind 42: open ones, by the day on which they are due, the highest integer without a due date; facet: severity.
-- Kinds 43 and 44: by credential type and the month in which it was first seen, and in which it was closed.
CREATE FUNCTION number_cells(score float8, first_seen timestamptz, closed timestamptz, due timestamptz, type text)
RETURNS TABLE (kind smallint, service text, bucket integer, facet smallint) LANGUAGE sql IMMUTABLE AS $$
    SELECT 40::smallint, '', utc_month($2), severity_number($1)
    UNION ALL
    SELECT 43::smallint, $5, utc_month($2), 0::smallint
    UNION ALL
    SELECT 41::smallint, '',
           utc_month($3) * 4096 + CASE WHEN h < 72 THEN h ELSE least(h / 24 + 69, 4095) END,
           (severity_number($1) * 3 + CASE WHEN $4 IS NULL THEN 0 WHEN $3 <= $4 THEN 1 ELSE 2 END)::smallint
    FROM (SELECT greatest(floor(extract(epoch FROM $3 - $2) / 3600), 0)::integer AS h) hours WHERE $3 IS NOT NULL
    UNION ALL
    SELECT 44::smallint, $5, utc_month($3), 0::smallint WHERE $3 IS NOT NULL
    UNION ALL
    SELECT 42::smallint, '', coalesce(utc_day($4), 2147483647), severity_number($1) WHERE $3 IS NULL
$$;
DO $do$
DECLARE
    counted text := $sql$
        WITH changed AS MATERIALIZED (%s)
        INSERT INTO rollup_deltas
        SELECT c.account_id, v.kind, v.service, v.bucket, v.facet, sum(c.n)
        FROM (SELECT account_id, composite_score, first_seen_at, closed_at, due_at, pattern_secret_type, sum(n) AS n
              FROM changed GROUP BY 1, 2, 3, 4, 5, 6) c,
             LATERAL number_cells(c.composite_score, c.first_seen_at, c.closed_at, c.due_at, c.pattern_secret_type) v
        GROUP BY 1, 2, 3, 4, 5 HAVING sum(c.n) <> 0;
    $sql$;
    columns text := '%1$s.account_id, %1$s.composite_score, %1$s.first_seen_at, %1$s.closed_at, %1$s.due_at, %1$s.pattern_secret_type';
    differ text := 'FROM new_rows n JOIN old_rows o USING (account_id, id) WHERE (' || format(columns, 'n') || ') IS DISTINCT FROM (' || format(columns, 'o') || ')';
    body text := 'CREATE FUNCTION %I() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN %s RETURN NULL; END $f$';
BEGIN
    EXECUTE format(body, 'numbers_inserted', format(counted, format('SELECT %s, 1 AS n FROM new_rows r', format(columns, 'r'))));
    EXECUTE format(body, 'numbers_updated', format(counted,
        format('SELECT %s, 1 AS n %s UNION ALL SELECT %s, -1 %s', format(columns, 'n'), differ, format(columns, 'o'), differ)));
    EXECUTE format(body, 'numbers_deleted', format(counted, format('SELECT %s, -1 AS n FROM old_rows r', format(columns, 'r'))));
END $do$;
CREATE TRIGGER numbers_insert AFTER INSERT ON incidents
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION numbers_inserted();
CREATE TRIGGER numbers_update AFTER UPDATE ON incidents
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION numbers_updated();
CREATE TRIGGER numbers_delete AFTER DELETE ON incidents
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION numbers_deleted();
-- No incidents are written until this transaction ends: creating a trigger locks the table against writers.
INSERT INTO rollups
    SELECT i.account_id, c.kind, c.service, c.bucket, c.facet, count(*)
    FROM incidents i, number_cells(i.composite_score, i.first_seen_at, i.closed_at, i.due_at, i.pattern_secret_type) c
    GROUP BY 1, 2, 3, 4, 5;
