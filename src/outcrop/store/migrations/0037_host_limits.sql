-- compatible_from: 9
-- Rate limits of code hosts that a worker has met: the others wait too.

CREATE TABLE host_limits (
    key           bytea PRIMARY KEY,  -- HMAC of host and token, and of the account unless the token is the operator's
    blocked_until timestamptz NOT NULL,
    reason        text NOT NULL
);
