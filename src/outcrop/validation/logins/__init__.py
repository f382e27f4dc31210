"""Check logins of databases, message brokers and HTTP basic authentication, each in its own protocol."""
