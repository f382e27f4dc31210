-- compatible_from: 9
-- One action on all findings that match, as a background job; rules that assign new incidents; mentions.

CREATE TABLE bulk_triages (
    account_id  integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    id          uuid NOT NULL,
    action      text NOT NULL CHECK (action IN ('resolve', 'restrict', 'false_positive', 'reopen', 'suppress', 'unsuppress')),
    note        text,
    by          text NOT NULL,
    created_at  timestamptz(0) NOT NULL,
    finding_ids uuid[] NOT NULL,  -- that matched when it began; empty when it has ended
    total       integer NOT NULL,
    done        integer NOT NULL DEFAULT 0,  -- the first so many of `finding_ids`
    changed     integer NOT NULL DEFAULT 0,
    unchanged   integer NOT NULL DEFAULT 0,
    refused     integer NOT NULL DEFAULT 0,
    missing     integer NOT NULL DEFAULT 0,
    stopped_by  text,
    finished_at timestamptz(0),
    PRIMARY KEY (account_id, id)
);
CREATE INDEX bulk_triages_running ON bulk_triages (account_id) WHERE finished_at IS NULL;

-- Who a new incident is assigned to, by any of its places. The oldest rule that matches counts.
CREATE TABLE assignment_rules (
    account_id  integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    id          uuid NOT NULL,
    repo        text,  -- as typed: `*` is any text, `?` one character
    path        text,
    author      text,
    repo_like   text,  -- the same as patterns of LIKE; those of repository and author in lower case
    path_like   text,
    author_like text,
    assignee    text NOT NULL,  -- the address of a member
    created_by  text NOT NULL,
    created_at  timestamptz(0) NOT NULL,
    n           bigint GENERATED ALWAYS AS IDENTITY,  -- the order of the rules
    PRIMARY KEY (account_id, id),
    CHECK (num_nonnulls(repo, path, author) > 0)
);

CREATE TABLE mentions (
    account_id integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    member_id  uuid NOT NULL REFERENCES members ON DELETE CASCADE,
    comment_id uuid NOT NULL,
    seen_at    timestamptz(0),  -- when the member opened the incident
    PRIMARY KEY (account_id, member_id, comment_id),
    FOREIGN KEY (account_id, comment_id) REFERENCES incident_comments ON DELETE CASCADE
);
CREATE INDEX mentions_unseen ON mentions (account_id, member_id) WHERE seen_at IS NULL;
CREATE INDEX mentions_comment ON mentions (account_id, comment_id);
