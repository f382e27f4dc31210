-- compatible_from: 9
-- What a triage has changed, for the 30 seconds in which it can be undone.

CREATE TABLE undoable_triages (
    account_id integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    id         uuid NOT NULL,
    action     text NOT NULL CHECK (action IN ('resolve', 'restrict', 'false_positive', 'suppress')),
    by         text NOT NULL,
    at         timestamptz(0) NOT NULL,
    changes    jsonb NOT NULL,  -- of each finding its id, and its state before and after (domain/triage/undo.py)
    PRIMARY KEY (account_id, id)
);
