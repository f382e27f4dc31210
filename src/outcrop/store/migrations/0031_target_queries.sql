-- compatible_from: 9
-- The query of a site's or page's address may be a token. So an address with a query is encrypted. `targets.name` and
-- the `spec` of its runs then have `encrypted:` and the address without its query, which an older release refuses.

ALTER TABLE targets ADD COLUMN url_box bytea;  -- the whole address, encrypted for the target's id
ALTER TABLE scans ADD COLUMN url_box bytea;  -- the same, encrypted for the run's id; null again when the run has ended
