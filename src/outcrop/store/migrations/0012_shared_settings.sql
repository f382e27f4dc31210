-- compatible_from: 9
-- What all processes of a database must agree on.

-- `active` or `none`. Null: no process that stores credentials has started since this migration.
ALTER TABLE keyring ADD COLUMN keep_secrets text CHECK (keep_secrets IN ('active', 'none'));

-- The lowest migration number whose code still works on the schema after the migration. store/schema.py fills it.
ALTER TABLE migrations ADD COLUMN compatible_from integer;
