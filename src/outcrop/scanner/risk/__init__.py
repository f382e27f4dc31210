"""Score a finding and explain the score."""
