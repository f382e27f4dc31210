"""Checks with Node and other people's programs: `make test-interop`. `pytest` alone does not collect them."""
