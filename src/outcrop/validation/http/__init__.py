"""Validate a credential with HTTP requests that its rule file describes."""
