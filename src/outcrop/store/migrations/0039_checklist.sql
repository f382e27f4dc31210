-- compatible_from: 9
-- The first steps of a new account, on its overview until they are done or somebody dismisses them.

ALTER TABLE accounts ADD COLUMN checklist_dismissed_at timestamptz(0);
