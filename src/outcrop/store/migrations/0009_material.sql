-- compatible_from: 9
-- For the portal: counts by credential type, the history of one finding, the lines around a credential.

-- Counts by credential type (kind 11 of store/findings/rollups.py): `service` is the type, `bucket` is 0. They have
-- triggers of their own, so that those of 0002 stay unchanged. An update that changes neither type nor facet sums
-- to zero and appends nothing.
DO $do$
DECLARE
    counted text := $sql$
        INSERT INTO rollup_deltas
        SELECT account_id, 11, pattern_secret_type, 0, facet, sum(n) FROM (%s) changed
        GROUP BY account_id, pattern_secret_type, facet HAVING sum(n) <> 0;
    $sql$;
    columns text := 'account_id, pattern_secret_type, facet';
    body text := 'CREATE FUNCTION %I() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN %s RETURN NULL; END $f$';
BEGIN
    EXECUTE format(body, 'types_inserted', format(counted, format('SELECT %s, 1 AS n FROM new_rows', columns)));
    EXECUTE format(body, 'types_updated', format(counted,
        format('SELECT %1$s, 1 AS n FROM new_rows UNION ALL SELECT %1$s, -1 FROM old_rows', columns)));
    EXECUTE format(body, 'types_deleted', format(counted, format('SELECT %s, -1 AS n FROM old_rows', columns)));
END $do$;
CREATE TRIGGER types_insert AFTER INSERT ON findings
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION types_inserted();
CREATE TRIGGER types_update AFTER UPDATE ON findings
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION types_updated();
CREATE TRIGGER types_delete AFTER DELETE ON findings
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION types_deleted();
-- No findings are written until this transaction ends: creating a trigger locks the table against writers.
INSERT INTO rollups SELECT account_id, 11, pattern_secret_type, 0, facet, count(*) FROM findings GROUP BY 1, 3, 5;

-- For the history of one finding or other target.
CREATE INDEX audit_target ON audit (account_id, target, id);

-- The lines around a credential, with every detected value masked, encrypted. A trigger erases them together with
-- the credential.
ALTER TABLE findings ADD COLUMN excerpt_box bytea;
CREATE FUNCTION excerpt_goes_with_secret() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.excerpt_box := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER findings_excerpt BEFORE UPDATE OF secret_box ON findings FOR EACH ROW
    WHEN (OLD.secret_box IS NOT NULL AND NEW.secret_box IS NULL) EXECUTE FUNCTION excerpt_goes_with_secret();
