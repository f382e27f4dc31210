"""Mentions in comments: `@` and the e-mail address of a member."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from outcrop.lazy_regex import regex
from outcrop.limits import MENTIONS

_MENTION = regex(r"(?<![\w.+-])@([\w.+%'-]{1,64}@[\w-]+(?:\.[\w-]+)*)")


def find_mentions(text: str) -> list[str]:
    """Return the addresses that a comment mentions, in lower case, each once."""
    return list(dict.fromkeys(address.lower() for address in _MENTION.findall(text)))[:MENTIONS]


@dataclass(frozen=True, slots=True)
class Mention:
    """A comment that mentions a member."""

    comment_id: UUID
    incident_id: UUID
    at: datetime
    by: str
    text: str
    seen_at: datetime | None  # when the member opened the incident
