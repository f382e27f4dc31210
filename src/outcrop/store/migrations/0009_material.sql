-- What the portal shows beside the lists: counts by type, the history of one finding, the lines around a credential.

-- Counts by type of credential (kind 11 of store/rollups.py): `service` holds the type, `bucket` is 0. Triggers of their own, so that those
-- of 0002 stay as they are; a change of neither type nor facet sums to nothing and appends nothing.
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
-- Nobody writes findings until this transaction ends: a trigger's creation keeps writers out.
INSERT INTO rollups SELECT account_id, 11, pattern_secret_type, 0, facet, count(*) FROM findings GROUP BY 1, 3, 5;

-- The history of one thing of an account.
CREATE INDEX audit_target ON audit (account_id, target, id);

-- The lines around a credential, every detected value in them masked, encrypted. They are erased with the credential, whoever erases it.
ALTER TABLE findings ADD COLUMN excerpt_box bytea;
CREATE FUNCTION excerpt_goes_with_secret() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.excerpt_box := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER findings_excerpt BEFORE UPDATE OF secret_box ON findings FOR EACH ROW
    WHEN (OLD.secret_box IS NOT NULL AND NEW.secret_box IS NULL) EXECUTE FUNCTION excerpt_goes_with_secret();
