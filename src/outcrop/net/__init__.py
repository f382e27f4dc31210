"""All outbound connections: where they may go is decided here."""
