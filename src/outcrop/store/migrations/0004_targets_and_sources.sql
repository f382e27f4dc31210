-- compatible_from: 4
-- The targets of an account, the sources of each scan run, and the state from which the next scan continues.

CREATE TABLE targets (
    account_id     integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    id             uuid NOT NULL,
    kind           text NOT NULL CHECK (kind IN ('owner', 'repository', 'gists', 'gist', 'commit', 'site', 'page')),
    name           text NOT NULL,  -- as users write it: github:ORG, or a URL
    schedule       text NOT NULL CHECK (schedule IN ('off', 'hourly', 'daily', 'weekly')),
    include        text[] NOT NULL DEFAULT '{}',
    exclude        text[] NOT NULL DEFAULT '{}',
    options        jsonb NOT NULL DEFAULT '{}',
    credential_box bytea,  -- encrypted like a finding's credential, bound to the target's id
    created_at     timestamptz(0) NOT NULL,
    next_run_at    timestamptz(0),  -- null while the schedule is off
    PRIMARY KEY (account_id, id)
);
CREATE INDEX targets_due ON targets (next_run_at) WHERE next_run_at IS NOT NULL;

ALTER TABLE scans
    ADD COLUMN target_id uuid,  -- not a reference: the target may have been deleted
    ADD COLUMN spec jsonb NOT NULL DEFAULT '{}',  -- the target as it was when the run was created
    ADD COLUMN foreground bigint,  -- the advisory lock of a command that executes the run itself
    ADD COLUMN waiting text;  -- why the run makes no progress: a rate limit of the host, and until when

-- One row for each repository, gist or site of a run: the unit that a worker claims.
CREATE TABLE scan_sources (
    account_id        integer NOT NULL,
    scan_id           uuid NOT NULL,
    source            text NOT NULL,  -- identifies the source in every run
    spec              jsonb NOT NULL,
    status            text NOT NULL CHECK (status IN ('queued', 'running', 'done', 'failed')),
    tries             integer NOT NULL DEFAULT 0,
    progress          jsonb NOT NULL DEFAULT '{}',
    findings_new      integer NOT NULL DEFAULT 0,
    findings_seen     integer NOT NULL DEFAULT 0,
    findings_resolved integer NOT NULL DEFAULT 0,
    coverage_gaps     jsonb NOT NULL DEFAULT '[]',
    error             text,
    PRIMARY KEY (account_id, scan_id, source),
    FOREIGN KEY (account_id, scan_id) REFERENCES scans ON DELETE CASCADE
);

-- The state after the last scan of a source, from which any worker can continue.
CREATE TABLE sources (
    account_id integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    source     text NOT NULL,
    changed    text,  -- the host's change marker: while it is the same, nothing is fetched
    rules      text,  -- the version of the rules of that scan
    tips       bytea,  -- the commits from which every scanned object was reachable
    scan_id    uuid,  -- the last run that scanned the source completely
    scanned_at timestamptz(0) NOT NULL,
    PRIMARY KEY (account_id, source)
);

-- Cached responses of the hosts, used if the host answers 304 Not Modified.
CREATE TABLE etags (
    account_id integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    key        text NOT NULL,
    etag       text NOT NULL,
    body       bytea NOT NULL,
    PRIMARY KEY (account_id, key)
);

ALTER TABLE findings
    ADD COLUMN source text,
    ADD COLUMN source_path bytea,  -- the unmasked path, encrypted if it contains the credential
    ADD COLUMN rule text,
    ADD COLUMN commit_id text,
    ADD COLUMN media_type text,  -- of the response that contained it
    ADD COLUMN current_line integer,
    ADD COLUMN allowed_in_source boolean NOT NULL DEFAULT false,
    ADD COLUMN last_scan_id uuid;
CREATE INDEX findings_source ON findings (account_id, source) WHERE source IS NOT NULL;

-- The blobs that contain a finding's credential at its path. While a ref reaches one of them, it is not gone.
CREATE TABLE occurrences (
    account_id integer NOT NULL,
    finding_id uuid NOT NULL,
    blob       bytea NOT NULL,
    PRIMARY KEY (account_id, finding_id, blob),
    FOREIGN KEY (account_id, finding_id) REFERENCES findings ON DELETE CASCADE
);
