-- compatible_from: 9
-- A run counts the findings that it resolves although their credential is still valid.

ALTER TABLE scans ADD COLUMN resolved_valid integer NOT NULL DEFAULT 0;
