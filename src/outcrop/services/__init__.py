"""The operations of the product, one function each.

Services raise the errors of `domain.errors`. They never commit: the caller owns the transaction.
"""
