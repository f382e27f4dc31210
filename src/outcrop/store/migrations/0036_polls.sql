-- compatible_from: 9
-- Targets whose code host is asked for pushes, because it cannot call a push hook.

CREATE TABLE polls (
    account_id integer NOT NULL,
    target_id  uuid NOT NULL,
    due_at     timestamptz NOT NULL,
    etag       text,  -- of the host's last response
    known      text[],  -- ids of the newest events; NULL before the first response
    PRIMARY KEY (account_id, target_id),
    FOREIGN KEY (account_id, target_id) REFERENCES targets ON DELETE CASCADE
);
CREATE INDEX polls_due ON polls (due_at);
CREATE INDEX targets_polled ON targets (account_id, id) WHERE options ->> 'poll' = 'true';
