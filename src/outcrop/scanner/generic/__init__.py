"""Find credentials of no known issuer by their name, value and context."""
