"""The rows of an account lie together: the primary key of every table starts with `account_id`."""

import psycopg

# Tables of today that are otherwise. No table may be added here: a new one has the account first in its key.
EXCEPTIONS = {
    "accounts": "is the account",
    "api_keys": "is looked up by the digest of the key, before the account is known",
    "audit": "has lines of the operator too, which belong to no account",
    "host_limits": "is a limit of a code host, which accounts share that use the operator's token",
    "job_migrations": "is about the database, not an account",
    "keyring": "is about the database, not an account",
    "links": "is looked up by its digest, before the account is known",
    "members": "is looked up by e-mail address, before the account is known",
    "migrations": "is about the database, not an account",
    "outbox": "is claimed over all accounts, in the order of its ids",
    "rate_windows": "has one row for each key",
    "recovery_codes": "belongs to a member",
    "rollup_deltas": "is only appended to, and has no key",
    "second_factors": "belongs to a member",
    "sessions": "is looked up by its digest, before the account is known",
    "sign_in_attempts": "counts attempts before the account is known",
}


def list_first_key_columns(url: str) -> dict[str, str | None]:
    """Return the first column of each table's primary key; None without a key. Procrastinate's are left out."""
    with psycopg.connect(url) as db:
        return dict(
            db.execute(
                """SELECT c.relname, a.attname FROM pg_class c
                   LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
                   LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
                   WHERE c.relkind IN ('r', 'p') AND c.relnamespace = current_schema()::regnamespace
                     AND c.relname NOT LIKE 'procrastinate%'"""
            ).fetchall()
        )


def test_every_primary_key_starts_with_the_account(database_url: str, keys: object) -> None:
    first = list_first_key_columns(database_url)
    assert {table for table, column in first.items() if column != "account_id"} == EXCEPTIONS.keys()


def test_a_table_without_the_account_in_its_key_is_noticed(database_url: str, keys: object) -> None:
    with psycopg.connect(database_url, autocommit=True) as db:
        db.execute("CREATE TABLE newcomer (id uuid PRIMARY KEY, account_id integer)")
        try:
            first = list_first_key_columns(database_url)
        finally:
            db.execute("DROP TABLE newcomer")
    assert first["newcomer"] == "id"
    assert "newcomer" not in EXCEPTIONS
