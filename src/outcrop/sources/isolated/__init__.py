"""Scan repositories in child processes."""
