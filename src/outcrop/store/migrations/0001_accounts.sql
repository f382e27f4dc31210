-- compatible_from: 1
-- Accounts, members, API keys, the audit trail, and the encryption keys.

CREATE TABLE accounts (
    id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slug       text NOT NULL UNIQUE,
    plan       text NOT NULL CHECK (plan IN ('starter', 'growth', 'enterprise')),
    email      text NOT NULL,
    created_at timestamptz(0) NOT NULL
);

-- A person belongs to one account only, so that an e-mail address alone is enough to sign in.
CREATE TABLE members (
    id            uuid PRIMARY KEY,
    account_id    integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    email         text NOT NULL,
    role          text NOT NULL CHECK (role IN ('owner', 'admin', 'member')),
    password_hash text NOT NULL,
    created_at    timestamptz(0) NOT NULL
);
CREATE UNIQUE INDEX members_email ON members (lower(email));
CREATE INDEX members_account ON members (account_id);

-- `created_by` is text, not a reference: removing a member revokes no key and loses no history.
CREATE TABLE api_keys (
    id         uuid PRIMARY KEY,
    account_id integer NOT NULL REFERENCES accounts ON DELETE CASCADE,
    name       text NOT NULL,
    hint       text NOT NULL,
    digest     bytea NOT NULL UNIQUE,
    created_at timestamptz(0) NOT NULL,
    created_by text,
    expires_at timestamptz(0),
    revoked_at timestamptz(0)
);
CREATE INDEX api_keys_account ON api_keys (account_id);

-- One row for each key, changed by one statement. Unlogged: no request waits for the disk, and a crash may lose
-- a minute's count.
CREATE UNLOGGED TABLE rate_windows (
    key_id     uuid PRIMARY KEY REFERENCES api_keys ON DELETE CASCADE,
    started_at timestamptz NOT NULL,
    used       integer NOT NULL,
    used_at    timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Random keys, wrapped by the operator's key. `check_value` distinguishes a wrong operator's key from damaged keys.
CREATE TABLE keyring (
    only_row        boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    salt            bytea NOT NULL,
    check_value     bytea NOT NULL,
    data_key        bytea NOT NULL,
    fingerprint_key bytea NOT NULL
);

-- Append-only. An account's lines can be deleted only after the account itself, in the same transaction.
CREATE TABLE audit (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account_id integer REFERENCES accounts DEFERRABLE INITIALLY DEFERRED,
    at         timestamptz(0) NOT NULL,
    actor      text NOT NULL,
    action     text NOT NULL,
    target     text,
    outcome    text NOT NULL CHECK (outcome IN ('ok', 'failed', 'unknown', 'dropped')),
    detail     jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_account ON audit (account_id, id);

CREATE FUNCTION audit_refuses() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND NOT EXISTS (SELECT FROM accounts WHERE accounts.id = OLD.account_id) AND OLD.account_id IS NOT NULL THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the audit trail is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER audit_no_change BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION audit_refuses();
CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION audit_refuses();
