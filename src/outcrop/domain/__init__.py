"""The product's data types and rules. Pure code: this package imports no other package of Outcrop."""
