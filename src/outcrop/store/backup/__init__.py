"""Back up and restore all tables."""
