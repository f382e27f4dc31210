-- compatible_from: 6
-- An account's webhook. The outbox becomes the log of deliveries: an event waits, is claimed, and gets an outcome.

CREATE TABLE webhooks (
    account_id integer PRIMARY KEY REFERENCES accounts ON DELETE CASCADE,
    id         uuid NOT NULL,  -- a new id with every save: the secret is encrypted for this id
    url        text NOT NULL,
    secret_box bytea NOT NULL,
    created_at timestamptz(0) NOT NULL
);

ALTER TABLE outbox
    ALTER COLUMN finding TYPE json USING finding::json,  -- the text that is sent; json keeps the order of its fields
    ADD COLUMN seq        bigint GENERATED ALWAYS AS IDENTITY,
    ADD COLUMN again_of   uuid,  -- the delivery that a person repeated
    ADD COLUMN claimed_at timestamptz,  -- by the database's clock, since each worker has its own
    ADD COLUMN claimer    bigint,  -- the advisory lock that the claimer holds while it lives
    ADD COLUMN webhook_id uuid,  -- the account's webhook at the time of the claim
    ADD COLUMN outcome    text CHECK (outcome IN ('ok', 'failed', 'unknown', 'dropped')),
    ADD COLUMN status     smallint,
    ADD COLUMN reason     text,
    ADD COLUMN ms         integer,
    ADD COLUMN answer     bytea,  -- the beginning of the response body
    ADD CHECK (outcome IS NULL OR claimed_at IS NOT NULL);
DROP INDEX outbox_account;
CREATE INDEX outbox_log ON outbox (account_id, seq);
-- For claiming. An event leaves this index when it is claimed, so the index is as small as the queue.
CREATE INDEX outbox_waiting ON outbox (account_id, seq) WHERE claimed_at IS NULL;
CREATE INDEX outbox_under_way ON outbox (claimer) WHERE claimed_at IS NOT NULL AND outcome IS NULL;
CREATE INDEX outbox_age ON outbox USING brin (claimed_at);
-- A queue has many dead rows: vacuum starts by their number, not by their share of the log.
ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, fillfactor = 90);
