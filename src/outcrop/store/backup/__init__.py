"""Copy the whole database to an archive file, and back."""
