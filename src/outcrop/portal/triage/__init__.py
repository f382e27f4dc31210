"""Steps beside the triage on a page: the question before closing, and undo."""
