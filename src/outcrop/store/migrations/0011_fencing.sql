-- compatible_from: 9
-- One scan of a source at a time. A scan that was overtaken by a newer attempt may write nothing.
CREATE TABLE source_locks (
    account_id   integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    source       text NOT NULL,
    attempt      bigint NOT NULL,  -- the fencing token: the number of the newest scan of the source
    scan_id      uuid NOT NULL,  -- the run of that scan
    held         boolean NOT NULL,  -- that scan has not ended
    started_at   timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL,
    PRIMARY KEY (account_id, source)
);

-- When a scan or a report last saw the credential, by the database's clock. Decides whether it may be "gone".
ALTER TABLE findings ADD COLUMN sighted_at timestamptz;
