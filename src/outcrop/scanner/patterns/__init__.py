"""Regular expressions, prefilters, entropy and checksums."""
