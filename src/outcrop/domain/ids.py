"""Parse UUIDs strictly: only the 36-character form is accepted."""

from uuid import UUID

from outcrop.lazy_regex import regex

ID_FORM = regex(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")


def parse_id(text: str) -> UUID | None:
    """Return the UUID, or None if the text is not in the 36-character form.

    `uuid.UUID` alone would also accept braces, misplaced dashes and digits of other scripts.
    """
    return UUID(text) if ID_FORM.fullmatch(text) else None
