"""Factories, servers, git hosts and browsers for the tests."""
