-- compatible_from: 9
-- What the file of a finding is for, and how sure the scanner is.

-- production, test, example, documentation or vendored. Null: no scan has seen the finding since this migration.
ALTER TABLE findings ADD COLUMN context text;
-- high, medium or low; null as above.
ALTER TABLE findings ADD COLUMN detection_confidence text;
