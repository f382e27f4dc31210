"""Tests mirror the package; `contract` follows the specification, `e2e` runs the service as a customer does."""
