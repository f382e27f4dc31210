-- compatible_from: 9
-- One source for one repository, and every address that leads to it.

-- `source` is the name that findings, checkpoints and locks have.
CREATE TABLE source_names (
    account_id  integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    source      text NOT NULL,
    id          uuid NOT NULL DEFAULT gen_random_uuid(),
    is_numbered boolean NOT NULL,  -- its host named it by an id that outlives a rename
    PRIMARY KEY (account_id, source),
    UNIQUE (account_id, id)
);
-- Normalised addresses: `https://HOST/PATH` in lower case, or `file:///PATH`.
CREATE TABLE source_aliases (
    account_id integer NOT NULL,
    alias      text NOT NULL,
    source     text NOT NULL,
    PRIMARY KEY (account_id, alias),
    FOREIGN KEY (account_id, source) REFERENCES source_names ON DELETE CASCADE
);
CREATE INDEX source_aliases_source ON source_aliases (account_id, source);

-- Findings of reports had no source. Those of a repository get that of its address, and their path.
UPDATE findings SET
    source = 'https://' || coalesce(lower(substring(source_url FROM '^[A-Za-z]+://(?:[^/@?#]*@)?([^/?#]+)')), 'github.com')
             || '/' || lower(repo_full_name),
    source_path = '\x00'::bytea || convert_to(file_path, 'UTF8')
WHERE source IS NULL AND identity IS NOT NULL AND repo_full_name IS NOT NULL AND file_path IS NOT NULL
  AND strpos(file_path, '****') = 0 AND source_type IN ('repo', 'gist', 'commit');

INSERT INTO source_names (account_id, source, is_numbered)
SELECT account_id, source, source !~ '^(https?|file):' FROM (
    SELECT account_id, source FROM findings WHERE source IS NOT NULL AND source_type IN ('repo', 'gist', 'commit')
    UNION SELECT account_id, source FROM sources
    UNION SELECT account_id, source FROM source_locks) known
WHERE account_id IN (SELECT id FROM accounts);
-- The addresses of numbered sources become aliases at their next scan, which also merges what has them now.
INSERT INTO source_aliases (account_id, alias, source)
SELECT account_id, regexp_replace(CASE WHEN source ~ '^file:' THEN source ELSE lower(source) END, '(\.git)?/?$', ''), source
FROM source_names WHERE NOT is_numbered
ORDER BY account_id, source ON CONFLICT DO NOTHING;
