"""Judge credentials by their own content, without a network connection."""
