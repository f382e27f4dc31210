"""Kinds of text that look like a credential and are none; `classify` finds the kind of a value."""
