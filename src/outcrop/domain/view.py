"""A saved view: a list of findings that an account comes back to, by name."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True)
class View:
    id: UUID
    name: str
    query: str  # the query string of the list's address, without the question mark
    created_by: str
    created_at: datetime
