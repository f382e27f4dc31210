-- compatible_from: 8
-- Stored credentials are validated again, oldest verdict first, and erased some time after their finding was closed.

-- The time at which a finding was closed. A trigger sets it, since imports, runs and people all close findings.
ALTER TABLE findings ADD COLUMN closed_at timestamptz(0);
UPDATE findings SET closed_at = coalesce(resolved_at, now()) WHERE status NOT IN ('active', 'stale') AND secret_box IS NOT NULL;
CREATE INDEX findings_to_erase ON findings (closed_at) WHERE secret_box IS NOT NULL AND closed_at IS NOT NULL;

CREATE FUNCTION note_closing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.closed_at := CASE WHEN NEW.status NOT IN ('active', 'stale') THEN coalesce(NEW.resolved_at, now()) END;
    RETURN NEW;
END $$;
CREATE TRIGGER findings_closing_insert BEFORE INSERT ON findings
    FOR EACH ROW WHEN (NEW.status NOT IN ('active', 'stale')) EXECUTE FUNCTION note_closing();
CREATE TRIGGER findings_closing_update BEFORE UPDATE ON findings
    FOR EACH ROW WHEN (NEW.status <> OLD.status) EXECUTE FUNCTION note_closing();

-- Verdicts are read from the oldest on. A time in 1970 means that no issuer was asked yet.
CREATE INDEX verdicts_checked ON verdicts (checked_at, account_id, fingerprint);
INSERT INTO verdicts
    SELECT DISTINCT account_id, fingerprint, 'unvalidated', 'low', 'not asked about yet', '{}'::text[], false, false, false, to_timestamp(0)
    FROM findings WHERE status = 'active' AND fingerprint IS NOT NULL AND secret_box IS NOT NULL AND rule IS NOT NULL
    ON CONFLICT DO NOTHING;
