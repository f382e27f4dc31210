"""Run a private PostgreSQL server in the data folder."""
