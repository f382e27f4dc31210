"""What all code hosts share: the interface, the HTTP API client, rate limits, and the registry."""
