"""One module per code host. `code_host/registry.py` finds them; nothing else imports them."""
