"""The proxy that the operator names for outbound connections."""

import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

_PORTS = {"http": 80, "https": 443}
_FORM = "must be an address such as http://proxy.example.com:3128, with user:password@ if it needs them"


@dataclass(frozen=True, slots=True)
class ProxyAddress:
    """Where the proxy is, and the user name and password for it."""

    host: str
    port: int
    tls: bool = False  # the connection to the proxy itself is encrypted
    login: str | None = field(default=None, repr=False)  # `user:password`

    @classmethod
    def parse(cls, text: str) -> "ProxyAddress":
        """Parse `http://[user:password@]host[:port]`, or with https; raise ValueError for anything else.

        The message does not repeat the text, which may hold a password.
        """
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ValueError(_FORM) from None
        if parts.scheme not in _PORTS or not host or parts.path not in {"", "/"}:
            raise ValueError(_FORM)
        if parts.query or parts.fragment or port == 0 or re.search(r"[\s\x00-\x20]", text):
            raise ValueError(_FORM)
        login = None
        if parts.username is not None:
            user, password = unquote(parts.username), unquote(parts.password or "")
            if ":" in user:  # the header of basic authentication could not say where the name ends
                raise ValueError("the user name of the proxy must not contain a colon")
            login = f"{user}:{password}"
        return cls(host, port or _PORTS[parts.scheme], parts.scheme == "https", login)
