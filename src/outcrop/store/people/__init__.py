"""Accounts, members, API keys, sessions and saved views."""
