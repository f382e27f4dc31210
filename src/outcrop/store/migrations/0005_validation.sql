-- What issuers have said of credentials, and what a score is made of.

-- One row for each credential of an account, however many places it stands in.
CREATE TABLE verdicts (
    account_id  integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    fingerprint bytea NOT NULL,
    status      text NOT NULL,
    confidence  text NOT NULL,
    reason      text NOT NULL,
    services    text[] NOT NULL,
    asked       boolean NOT NULL,  -- it was also asked what the credential opens
    test_mode   boolean NOT NULL,
    canary      boolean NOT NULL,
    checked_at  timestamptz(0) NOT NULL,
    PRIMARY KEY (account_id, fingerprint)
);

ALTER TABLE findings
    ADD COLUMN score_detail jsonb;  -- the version, the parts, and what else went into the score
