"""A labelled corpus of made-up files: what must be found, and what must not."""
