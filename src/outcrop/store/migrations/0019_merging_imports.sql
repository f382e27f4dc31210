-- compatible_from: 9
-- How often a worker has begun to merge an import, and the findings of imports whose event is still to be sent.

ALTER TABLE imports ADD COLUMN attempts integer NOT NULL DEFAULT 0;

-- New findings of an import with events. The event is written after the validation, in the transaction that deletes
-- the row.
CREATE TABLE import_news (
    account_id integer NOT NULL,
    finding_id uuid NOT NULL,
    import_id  uuid NOT NULL,
    PRIMARY KEY (account_id, finding_id),
    FOREIGN KEY (account_id, import_id) REFERENCES imports ON DELETE CASCADE
);
CREATE INDEX import_news_import ON import_news (account_id, import_id);
