"""Benchmarks: `make bench-*` prints a table. They measure, they do not judge, and they are not part of the tests."""
