"""The REST API: each route parses, calls one service, and shapes the answer."""
