"""Check with its issuer whether a credential is valid and what it gives access to; change nothing."""
