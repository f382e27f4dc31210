"""Matching: rules as data, what they find, and how sure it is."""
