"""Formats of `outcrop scan` for people and for CI systems; SARIF is in `domain.reports`."""
