-- compatible_from: 9
-- Pull requests whose commits were marked. A commit that was replaced by a forced push is still at the host, so
-- the commits of a pull request are remembered.

CREATE TABLE pull_requests (
    account_id integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    source     text NOT NULL,  -- the repository
    number     bigint NOT NULL,
    commits    text[] NOT NULL,
    commented  integer NOT NULL DEFAULT 0,  -- credentials that the last comment named
    marked_at  timestamptz NOT NULL,
    PRIMARY KEY (account_id, source, number)
);
