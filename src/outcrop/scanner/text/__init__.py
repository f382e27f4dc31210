"""Turn files into texts: character encodings, archives, packages."""
