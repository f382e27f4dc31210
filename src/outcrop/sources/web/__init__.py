"""Everything that a web site serves."""
