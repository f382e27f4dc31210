-- compatible_from: 5
-- Verdicts about credentials, and the parts of a score.

-- One row for each credential of an account, even if it has several findings.
CREATE TABLE verdicts (
    account_id  integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    fingerprint bytea NOT NULL,
    status      text NOT NULL,
    confidence  text NOT NULL,
    reason      text NOT NULL,
    services    text[] NOT NULL,
    asked       boolean NOT NULL,  -- the issuer was also asked which services the credential gives access to
    test_mode   boolean NOT NULL,
    canary      boolean NOT NULL,
    checked_at  timestamptz(0) NOT NULL,
    PRIMARY KEY (account_id, fingerprint)
);

ALTER TABLE findings
    ADD COLUMN score_detail jsonb;  -- the version of the score, its parts, and its other inputs
