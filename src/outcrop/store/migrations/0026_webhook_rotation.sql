-- compatible_from: 9
-- The secret of a webhook is changed in two steps; the log of deliveries can show what was sent.

ALTER TABLE webhooks
    ADD COLUMN next_box  bytea,  -- the prepared secret, encrypted like secret_box
    ADD COLUMN switch_at timestamptz(0),  -- when it becomes the secret; null: when a person says so
    ADD COLUMN old_box   bytea,  -- the secret before the last switch
    ADD COLUMN old_until timestamptz(0),  -- until then it signs too
    ADD CHECK (switch_at IS NULL OR next_box IS NOT NULL),
    ADD CHECK ((old_box IS NULL) = (old_until IS NULL));
-- The time in the body of a delivery. Everything else in it is in the row.
ALTER TABLE outbox ADD COLUMN delivered_at timestamptz;
CREATE INDEX outbox_finding ON outbox (account_id, finding_id, seq);
