"""What follows from a push: start its runs, and report them to its pull requests."""
