"""Store targets, scan runs, the checkpoints of their sources, and jobs."""
