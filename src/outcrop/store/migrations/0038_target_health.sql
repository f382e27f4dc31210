-- compatible_from: 9
-- What the health of a target reads: its last runs, and the sources that its runs have scanned.

-- The newest run of a target, and the newest complete one. A run of one pushed repository is not a run of all.
CREATE INDEX scans_of_target ON scans (account_id, target_id, created_at, id)
    WHERE target_id IS NOT NULL AND pushed_repository IS NULL;
CREATE INDEX scans_completed ON scans (account_id, target_id, created_at, id)
    WHERE target_id IS NOT NULL AND pushed_repository IS NULL AND status = 'completed';

-- The sources of a target, with the names that its runs had for them. Without this table, all runs of the target
-- would be read, and their number grows every day.
CREATE TABLE target_sources (
    account_id integer NOT NULL,
    target_id  uuid NOT NULL,
    source     text NOT NULL,
    PRIMARY KEY (account_id, target_id, source),
    FOREIGN KEY (account_id, target_id) REFERENCES targets ON DELETE CASCADE
);
CREATE FUNCTION target_sources_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A target that is deleted at this moment is waited for; then it has no sources.
    PERFORM FROM targets t WHERE (t.account_id, t.id) IN (
        SELECT s.account_id, s.target_id FROM scans s
        WHERE (s.account_id, s.id) IN (SELECT account_id, scan_id FROM new_rows WHERE source <> 'plan'))
    FOR KEY SHARE;
    -- In order, so that two runs of one target never wait for each other in a circle.
    INSERT INTO target_sources
    SELECT DISTINCT s.account_id, s.target_id, n.source
    FROM new_rows n JOIN scans s ON s.account_id = n.account_id AND s.id = n.scan_id
                    JOIN targets t ON t.account_id = s.account_id AND t.id = s.target_id
    WHERE n.source <> 'plan' ORDER BY 1, 2, 3
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER target_sources_added AFTER INSERT ON scan_sources
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION target_sources_added();
INSERT INTO target_sources
    SELECT DISTINCT s.account_id, s.target_id, q.source
    FROM scan_sources q JOIN scans s ON s.account_id = q.account_id AND s.id = q.scan_id
                        JOIN targets t ON t.account_id = s.account_id AND t.id = s.target_id
    WHERE q.source <> 'plan';
