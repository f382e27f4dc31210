"""Validate credentials without a network connection."""
