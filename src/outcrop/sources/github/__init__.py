"""GitHub and GitHub Enterprise Server, over their REST API."""
