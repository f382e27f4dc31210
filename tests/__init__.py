"""Outcrop's tests mirror the package; `contract` walks the specification, `e2e` runs the service as a customer would."""
