"""Formats of reports that several entry points write: SARIF, and the cells of CSV files."""
