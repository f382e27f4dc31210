-- compatible_from: 9
-- Imports over the API: a report is staged while it is received, then a job merges its records.

CREATE TABLE imports (
    account_id         integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    id                 uuid NOT NULL,
    status             text NOT NULL CHECK (status IN ('receiving', 'queued', 'running', 'completed', 'failed')),
    format             text NOT NULL,
    repo               text,
    commit_id          text,
    events             boolean NOT NULL,  -- whether new findings send `finding.new`
    created_by         text NOT NULL,
    created_at         timestamptz NOT NULL,
    finished_at        timestamptz(0),
    records            bigint NOT NULL DEFAULT 0,
    findings_new       bigint NOT NULL DEFAULT 0,
    findings_updated   bigint NOT NULL DEFAULT 0,
    findings_unchanged bigint NOT NULL DEFAULT 0,
    error_record       bigint,
    error_message      text,
    idempotency_key    text,   -- NULL after 7 days
    request_digest     bytea,  -- of the body and the parameters, to recognise the same request
    PRIMARY KEY (account_id, id)
);
CREATE UNIQUE INDEX imports_idempotency ON imports (account_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX imports_created ON imports (account_id, created_at, id) WHERE status <> 'receiving';
CREATE INDEX imports_unfinished ON imports (status, created_at) WHERE status IN ('receiving', 'queued', 'running');

-- The records of an import until it is merged, some hundred in each row, encrypted because they contain credentials.
CREATE TABLE import_batches (
    account_id integer NOT NULL,
    id         uuid NOT NULL,
    import_id  uuid NOT NULL,
    number     integer NOT NULL,  -- the order of the batches
    box        bytea NOT NULL,
    PRIMARY KEY (account_id, id),
    UNIQUE (account_id, import_id, number),
    FOREIGN KEY (account_id, import_id) REFERENCES imports ON DELETE CASCADE
);
