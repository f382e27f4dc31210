"""Ids as text: only the 36-character form of a UUID is one."""

import re
from uuid import UUID

ID_FORM = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")


def parse_id(text: str) -> UUID | None:
    """Read an id; Python itself would take braces, stray dashes and digits of other scripts."""
    return UUID(text) if ID_FORM.fullmatch(text) else None
