-- compatible_from: 9
-- The URL of a webhook is encrypted: it may contain a token. Workers encrypt the URLs that are stored in clear text
-- (store/webhooks.py).

ALTER TABLE webhooks
    ADD COLUMN url_box bytea,  -- the URL, encrypted for the webhook's id; `url` is then empty
    ADD CHECK (url <> '' OR url_box IS NOT NULL);

-- A worker of an older release reads `url` only. It claims no event that it could not send: the event waits for a
-- worker that sets outcrop.reads_url_box.
CREATE FUNCTION outbox_skip_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM webhooks WHERE account_id = NEW.account_id AND id = NEW.webhook_id AND url <> '') THEN
        RETURN NEW;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER outbox_claim BEFORE UPDATE OF claimed_at ON outbox FOR EACH ROW
    WHEN (OLD.claimed_at IS NULL AND NEW.claimer IS NOT NULL AND NEW.webhook_id IS NOT NULL
          AND current_setting('outcrop.reads_url_box', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION outbox_skip_claim();
