"""Read and write findings, their counts and the verdicts about their credentials."""
