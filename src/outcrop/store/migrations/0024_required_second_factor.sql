-- compatible_from: 9
-- An owner can require that every member of the account has a second factor.

ALTER TABLE accounts ADD COLUMN requires_second_factor boolean NOT NULL DEFAULT false;
