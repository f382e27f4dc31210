"""All SQL, and the embedded database it runs on. Nothing here commits: transactions belong to the caller."""
