"""Triage of findings beyond one action on one finding."""
