"""Make all outbound connections, to addresses that the operator's settings allow."""
