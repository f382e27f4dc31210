"""`make bench-accuracy`: part 1 scans generated files, part 2 public repositories with labels of readers.

docs/accuracy.md describes both parts and has the figures.
"""
