"""Findings: write, list, count, export."""
