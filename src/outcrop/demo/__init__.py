"""The demo: an example account, stand-ins for all outside services, and a story that is played with them."""
