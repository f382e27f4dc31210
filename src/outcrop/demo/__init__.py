"""The first minute: an example that is made up on the spot, stand-ins for everything outside, and the story that is told with them."""
