"""Validate logins of databases, message brokers and HTTP basic authentication."""
