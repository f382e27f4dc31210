"""Outcrop finds leaked credentials, proves whether they are alive, and lets you triage them."""
