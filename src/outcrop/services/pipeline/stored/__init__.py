"""The findings that are stored for a source: what their rows hide, and what a scan does to them."""
