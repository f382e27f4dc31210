-- compatible_from: 9
-- Failed sign-ins of a browser that the member has signed in with before count apart from all others.

-- The id of the known browser. Null: the browser is not known.
ALTER TABLE sign_in_attempts ADD COLUMN browser text;
