"""Outcrop finds leaked credentials, proves whether they are still valid, and lets you triage them."""

__version__ = "0.2.0"
