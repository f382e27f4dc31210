"""All SQL, and the embedded PostgreSQL server. Nothing here commits: transactions belong to the caller."""
