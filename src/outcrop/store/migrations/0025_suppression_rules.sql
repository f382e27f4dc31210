-- compatible_from: 9
-- Rules that hide findings by path, repository and type.

-- A rule that ended stays until its findings are shown again.
CREATE TABLE suppression_rules (
    account_id  integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    id          uuid NOT NULL,
    path        text,  -- as typed: `*` is any text, `?` one character
    repo        text,
    path_like   text,  -- the same as patterns of LIKE; that of the repository in lower case
    repo_like   text,
    secret_type text,
    reason      text NOT NULL,
    created_by  text NOT NULL,
    created_at  timestamptz(0) NOT NULL,
    expires_at  timestamptz(0),
    is_applied  boolean NOT NULL DEFAULT false,  -- to every finding that there was when it was added
    ended_at    timestamptz(0),
    PRIMARY KEY (account_id, id),
    CHECK (num_nonnulls(path, repo, secret_type) > 0)
);
CREATE INDEX suppression_rules_pending ON suppression_rules (account_id)
    WHERE NOT is_applied OR expires_at IS NOT NULL OR ended_at IS NOT NULL;

-- The rule that hides a finding; null if a person does.
ALTER TABLE findings ADD COLUMN suppressed_by uuid;
CREATE INDEX findings_suppressed_by ON findings (account_id, suppressed_by) WHERE suppressed_by IS NOT NULL;
