-- compatible_from: 9
-- Push hooks: a code host reports a push, and a run of that repository begins.

CREATE TABLE hooks (
    account_id         integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    id                 uuid NOT NULL,
    host               text NOT NULL CHECK (host IN ('github', 'gitlab', 'gitea', 'bitbucket', 'azuredevops')),
    token_digest       bytea NOT NULL,  -- SHA-256 of the token in the address, which has 256 random bits
    secret_box         bytea NOT NULL,  -- the secret by which the host authenticates itself
    created_at         timestamptz(0) NOT NULL,
    created_by         text NOT NULL,
    ignored            bigint NOT NULL DEFAULT 0,  -- pushes to repositories that no target covers
    ignored_at         timestamptz(0),
    ignored_repository text,  -- the last one
    PRIMARY KEY (account_id, id)
);
CREATE UNIQUE INDEX hooks_token ON hooks (token_digest);

-- The deliveries of one minute, counted by the database's clock. A row is updated with every delivery.
CREATE TABLE hook_windows (
    account_id integer NOT NULL,
    hook_id    uuid NOT NULL,
    started_at timestamptz NOT NULL,
    used       integer NOT NULL,
    used_at    timestamptz NOT NULL,
    compare_at timestamptz,  -- deliveries were refused: from then on the repositories are compared with the host
    PRIMARY KEY (account_id, hook_id),
    FOREIGN KEY (account_id, hook_id) REFERENCES hooks ON DELETE CASCADE
) WITH (fillfactor = 50);
CREATE INDEX hook_windows_compare ON hook_windows (compare_at) WHERE compare_at IS NOT NULL;

-- The ids of the last deliveries, hashed. A repeated delivery starts nothing.
CREATE TABLE hook_deliveries (
    account_id  integer NOT NULL,
    hook_id     uuid NOT NULL,
    delivery    bytea NOT NULL,
    received_at timestamptz NOT NULL,
    PRIMARY KEY (account_id, hook_id, delivery),
    FOREIGN KEY (account_id, hook_id) REFERENCES hooks ON DELETE CASCADE
);
CREATE INDEX hook_deliveries_age ON hook_deliveries (account_id, hook_id, received_at);

-- Pushes for which no run was created yet. Encrypted: the name of a branch may contain a credential.
CREATE TABLE pushes (
    account_id  integer NOT NULL,
    id          uuid NOT NULL,
    hook_id     uuid NOT NULL,
    repository  bytea NOT NULL,  -- a digest of its address
    box         bytea NOT NULL,
    received_at timestamptz NOT NULL,
    PRIMARY KEY (account_id, id),
    FOREIGN KEY (account_id, hook_id) REFERENCES hooks ON DELETE CASCADE
);
CREATE INDEX pushes_repository ON pushes (account_id, repository);

ALTER TABLE scans
    DROP CONSTRAINT scans_trigger_check,
    ADD CONSTRAINT scans_trigger_check CHECK (trigger IN ('portal', 'schedule', 'cli', 'push')),
    ADD COLUMN push jsonb,  -- the push that started the run, as users see it
    ADD COLUMN pushed_repository bytea;  -- as in `pushes`
CREATE INDEX scans_pushed ON scans (account_id, pushed_repository)
    WHERE finished_at IS NULL AND pushed_repository IS NOT NULL;
