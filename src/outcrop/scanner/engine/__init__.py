"""Find credentials in texts: trigger scan, confirmation, companions, position."""
