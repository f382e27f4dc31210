"""Store accounts, members, passwords, API keys, sessions, one-time links and saved views."""
