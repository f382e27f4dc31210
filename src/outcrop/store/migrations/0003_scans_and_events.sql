-- compatible_from: 3
-- Scan runs, and the queue of events to send.

CREATE TABLE scans (
    account_id        integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    id                uuid NOT NULL,
    type              text NOT NULL CHECK (type IN ('github', 'scrape')),
    status            text NOT NULL CHECK (status IN ('queued', 'running', 'completed', 'failed', 'interrupted')),
    trigger           text NOT NULL CHECK (trigger IN ('portal', 'schedule', 'cli')),
    target            text NOT NULL,
    created_at        timestamptz(0) NOT NULL,
    started_at        timestamptz(0),
    finished_at       timestamptz(0),
    progress          jsonb NOT NULL DEFAULT '{}',
    findings_new      integer NOT NULL DEFAULT 0,
    findings_seen     integer NOT NULL DEFAULT 0,
    findings_resolved integer NOT NULL DEFAULT 0,
    coverage_gaps     jsonb NOT NULL DEFAULT '[]',
    error             text,
    PRIMARY KEY (account_id, id)
);
CREATE INDEX scans_newest ON scans (account_id, created_at, id);

-- A row is inserted in the transaction of the change that it reports; `finding` is the finding after that change.
CREATE TABLE outbox (
    id         uuid PRIMARY KEY,
    account_id integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    event      text NOT NULL,
    finding_id uuid NOT NULL,
    finding    jsonb NOT NULL,
    created_at timestamptz(0) NOT NULL
);
CREATE INDEX outbox_account ON outbox (account_id);
