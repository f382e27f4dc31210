"""Read objects directly from git pack files."""
