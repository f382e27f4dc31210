-- compatible_from: 9
-- A new data key, and verdicts by every part of a credential that was sent.

-- The data key that values may still be encrypted with, while `outcrop secrets rotate --data-key` goes through them.
ALTER TABLE keyring ADD COLUMN previous_data_key bytea;

-- The key of the verdict on the credential: its fingerprint, then a digest of the companions that were sent with it.
-- Null: there are none, or the finding was stored before this migration. `verdicts.fingerprint` is such a key.
ALTER TABLE findings ADD COLUMN verdict_key bytea;
