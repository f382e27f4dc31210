"""Trials of the running service under faults and attacks: `make prove`."""
