"""Targets, sources, scan runs and jobs."""
