"""What code hosts send to a push hook: how each authenticates itself, and what it says about a push.

`registry.PROTOCOLS` has one entry for each host, and each host has a module of its own.
"""
