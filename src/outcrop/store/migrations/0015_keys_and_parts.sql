-- compatible_from: 15
-- A new data key, and verdicts by every part of a credential that was sent.

-- The data key that values may still be encrypted with, while `outcrop secrets rotate --data-key` goes through them.
ALTER TABLE keyring ADD COLUMN previous_data_key bytea;
