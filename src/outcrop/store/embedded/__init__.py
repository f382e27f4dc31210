"""Run a private PostgreSQL in the data folder."""
