"""Scan git repositories and their history."""
