-- Where an account has us look, what each look brought, and what is needed to go on from it.

CREATE TABLE targets (
    account_id     integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    id             uuid NOT NULL,
    kind           text NOT NULL CHECK (kind IN ('owner', 'repository', 'gists', 'gist', 'commit', 'site', 'page')),
    name           text NOT NULL,  -- as it is shown and given: github:ORG, an address
    schedule       text NOT NULL CHECK (schedule IN ('off', 'hourly', 'daily', 'weekly')),
    include        text[] NOT NULL DEFAULT '{}',
    exclude        text[] NOT NULL DEFAULT '{}',
    options        jsonb NOT NULL DEFAULT '{}',
    credential_box bytea,  -- encrypted like a finding's credential, owned by the target's id
    created_at     timestamptz(0) NOT NULL,
    next_run_at    timestamptz(0),  -- null while the schedule is off
    PRIMARY KEY (account_id, id)
);
CREATE INDEX targets_due ON targets (next_run_at) WHERE next_run_at IS NOT NULL;

ALTER TABLE scans
    ADD COLUMN target_id uuid,  -- the target may be gone since
    ADD COLUMN spec jsonb NOT NULL DEFAULT '{}',  -- the target as it was when the run was made
    ADD COLUMN foreground bigint,  -- the advisory lock that a command holds while it runs this itself
    ADD COLUMN waiting text;  -- why nothing moves at the moment: a limit of the host, and until when

-- One row for each repository, gist or site of a run: the unit that a worker takes.
CREATE TABLE scan_sources (
    account_id        integer NOT NULL,
    scan_id           uuid NOT NULL,
    source            text NOT NULL,  -- what identifies it from run to run
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

-- How far a source was read, so that any worker can go on.
CREATE TABLE sources (
    account_id integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    source     text NOT NULL,
    changed    text,  -- the host's word for "may have changed since": when it is the same, nothing is fetched
    rules      text,  -- the version of the rules it was read with
    tips       bytea,  -- the commits that every object was reachable from
    scan_id    uuid,  -- the run that read it last, wholly: what that run saw is still there while nothing changes
    scanned_at timestamptz(0) NOT NULL,
    PRIMARY KEY (account_id, source)
);

-- Answers of the hosts that are still good if the host says so.
CREATE TABLE etags (
    account_id integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    key        text NOT NULL,
    etag       text NOT NULL,
    body       bytea NOT NULL,
    PRIMARY KEY (account_id, key)
);

ALTER TABLE findings
    ADD COLUMN source text,
    ADD COLUMN source_path bytea,  -- the unmasked path that identifies the place, encrypted where it holds the credential
    ADD COLUMN rule text,
    ADD COLUMN commit_id text,
    ADD COLUMN media_type text,  -- of the address that served it
    ADD COLUMN current_line integer,
    ADD COLUMN allowed_in_source boolean NOT NULL DEFAULT false,
    ADD COLUMN last_scan_id uuid;
CREATE INDEX findings_source ON findings (account_id, source) WHERE source IS NOT NULL;

-- The blobs that hold a finding's credential at its path: while a ref reaches one of them there, it is not gone.
CREATE TABLE occurrences (
    account_id integer NOT NULL,
    finding_id uuid NOT NULL,
    blob       bytea NOT NULL,
    PRIMARY KEY (account_id, finding_id, blob),
    FOREIGN KEY (account_id, finding_id) REFERENCES findings ON DELETE CASCADE
);
