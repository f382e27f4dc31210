"""The REST API: each route parses parameters, calls one service and builds the response."""
