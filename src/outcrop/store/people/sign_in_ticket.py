"""The ticket of a browser between the password and the code: the password was right, a moment ago.

It signs nobody in without a code. It is bound to the member and the password, and ends after some minutes.
"""

import base64
import hmac
import re
from datetime import datetime, timedelta

from outcrop.lazy_regex import regex
from outcrop.store.people.accounts import MemberCredentials

LIFETIME = timedelta(minutes=5)
_TICKET = regex(r"([0-9]{1,12})\.([\w=-]{1,1500})\.([0-9a-f]{64})", re.ASCII)


def write_ticket(key: bytes, credentials: MemberCredentials, now: datetime) -> str:
    """Return the ticket of a member who has just entered the right password."""
    end = str(int((now + LIFETIME).timestamp()))
    email = base64.urlsafe_b64encode(credentials.member.email.encode()).decode()
    return f"{end}.{email}.{_compute_mac(key, credentials, end)}"


def read_email(ticket: str, now: datetime) -> str | None:
    """Return the address in a ticket, which is not checked yet; None if it has ended or is damaged."""
    if (parts := _TICKET.fullmatch(ticket)) is None or int(parts[1]) <= now.timestamp():
        return None
    try:
        return base64.urlsafe_b64decode(parts[2]).decode()
    except ValueError:
        return None


def is_genuine(key: bytes, ticket: str, credentials: MemberCredentials) -> bool:
    """Whether the ticket was written for this member with the password that the member has now."""
    parts = _TICKET.fullmatch(ticket)
    return parts is not None and hmac.compare_digest(parts[3], _compute_mac(key, credentials, parts[1]))


def _compute_mac(key: bytes, credentials: MemberCredentials, end: str) -> str:
    """Return the MAC of a ticket of a member that is valid until `end`."""
    member = credentials.member
    text = "\0".join(["sign-in ticket", end, str(member.id), member.email.lower(), credentials.password_hash])
    return hmac.digest(key, text.encode("utf-8", "surrogatepass"), "sha256").hex()
