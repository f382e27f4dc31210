"""The portal: pages for people, drawn on the server; each click is one call of a service."""
