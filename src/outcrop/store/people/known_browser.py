"""The cookie by which a browser is recognised that a member has signed in with before.

It signs nobody in. It only keeps the wrong passwords of strangers from slowing down the member. Its text is
an id of the browser, then one tag for each member: a MAC of the id and the e-mail address.
"""

import base64
import hmac
import re
from collections.abc import Sequence

from outcrop.lazy_regex import regex

ID_BYTES = 16
_MAX_MEMBERS = 4  # of one browser; the one that signed in first is dropped
_TAG_BYTES = 16
_COOKIE = regex(rf"[\w-]{{22}}(?:\.[\w-]{{22}}){{1,{_MAX_MEMBERS}}}", re.ASCII)


def find_id(key: bytes, cookie: str, email: str) -> str | None:
    """Return the browser's id; None unless the member with this address has signed in with the browser."""
    id_, *tags = _parse(cookie) or [""]
    expected = _compute_tag(key, id_, email)
    return id_ if any(hmac.compare_digest(tag, expected) for tag in tags) else None


def add_member(key: bytes, cookie: str, email: str, random: bytes) -> str:
    """Return the new cookie of a browser that a member has signed in with.

    The browser keeps its id. A browser without a cookie, or with a damaged one, gets an id from `random`.
    """
    id_, *tags = _parse(cookie) or [_encode(random)]
    tag = _compute_tag(key, id_, email)
    return ".".join([id_, tag, *[other for other in tags if other != tag][: _MAX_MEMBERS - 1]])


def _parse(cookie: str) -> Sequence[str] | None:
    """Return the id and the tags of a cookie; None if it is damaged."""
    return cookie.split(".") if _COOKIE.fullmatch(cookie) else None


def _compute_tag(key: bytes, id_: str, email: str) -> str:
    """Return the tag of a browser's id and a member's address."""
    text = f"{id_}\0{email.lower()}".encode("utf-8", "surrogatepass")
    return _encode(hmac.digest(key, text, "sha256")[:_TAG_BYTES])


def _encode(data: bytes) -> str:
    """Return 16 bytes as 22 characters."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
