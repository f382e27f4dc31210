"""Import findings from files and export them to files."""
