-- compatible_from: 7
-- Sessions of the portal, sign-in attempts, one-time links, second factors and saved views.

-- Only the browser has the token. Its SHA-256 is stored (256 random bits need no salt).
CREATE TABLE sessions (
    digest       bytea PRIMARY KEY,
    id           uuid NOT NULL UNIQUE,
    account_id   integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    member_id    uuid NOT NULL REFERENCES members ON DELETE CASCADE,
    created_at   timestamptz(0) NOT NULL,
    last_used_at timestamptz(0) NOT NULL,
    address      text NOT NULL,
    agent        text NOT NULL
);
CREATE INDEX sessions_member ON sessions (member_id);
CREATE INDEX sessions_account ON sessions (account_id);

-- One row for each sign-in attempt that did not succeed, for known and unknown addresses, or has not ended yet.
-- The e-mail address is a digest, because people type their password into the wrong field.
CREATE TABLE sign_in_attempts (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    email   bytea NOT NULL,
    network text,
    at      timestamptz NOT NULL,
    failed  boolean NOT NULL DEFAULT false
);
CREATE INDEX sign_in_attempts_email ON sign_in_attempts (email, at);
CREATE INDEX sign_in_attempts_network ON sign_in_attempts (network, at);

-- One-time links: an invitation, or a reset of a forgotten password.
CREATE TABLE links (
    digest     bytea PRIMARY KEY,
    id         uuid NOT NULL UNIQUE,
    account_id integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    kind       text NOT NULL CHECK (kind IN ('invite', 'reset')),
    email      text NOT NULL,
    role       text NOT NULL CHECK (role IN ('owner', 'admin', 'member')),
    member_id  uuid REFERENCES members ON DELETE CASCADE,   -- the member whose password a reset sets
    invited_by uuid REFERENCES members ON DELETE CASCADE,   -- an invitation is deleted with the member who made it
    created_by text NOT NULL,
    created_at timestamptz(0) NOT NULL,
    expires_at timestamptz(0) NOT NULL,
    CHECK ((kind = 'reset') = (member_id IS NOT NULL))
);
CREATE UNIQUE INDEX links_email ON links (account_id, kind, lower(email));
CREATE INDEX links_member ON links (member_id);
CREATE INDEX links_invited_by ON links (invited_by);

-- Second factors (TOTP). Unconfirmed ones have no effect; `last_step` makes each code work only once.
CREATE TABLE second_factors (
    member_id    uuid PRIMARY KEY REFERENCES members ON DELETE CASCADE,
    account_id   integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    box          bytea NOT NULL,
    last_step    bigint NOT NULL DEFAULT 0,
    confirmed_at timestamptz(0)
);
CREATE INDEX second_factors_account ON second_factors (account_id);

-- 80 random bits each, so SHA-256 is enough; a code is deleted when it is used.
CREATE TABLE recovery_codes (
    member_id uuid NOT NULL REFERENCES second_factors ON DELETE CASCADE,
    digest    bytea NOT NULL,
    PRIMARY KEY (member_id, digest)
);

CREATE TABLE views (
    account_id integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    id         uuid NOT NULL,
    name       text NOT NULL,
    query      text NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz(0) NOT NULL,
    PRIMARY KEY (account_id, id)
);
CREATE UNIQUE INDEX views_name ON views (account_id, lower(name));
