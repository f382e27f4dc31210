"""Benchmarks: `make bench-*` prints tables. They only measure; they are not part of the tests."""
