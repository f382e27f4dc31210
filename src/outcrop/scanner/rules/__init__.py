"""The rule model, and the formats that rules are read from and cached in."""
