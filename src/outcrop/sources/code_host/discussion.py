"""Read issues, merge or pull requests and comments: fields that hosts share, and whether one is gone."""

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from outcrop.lazy_regex import regex
from outcrop.sources.code_host.api import HostApi, parse_json
from outcrop.sources.code_host.errors import HostError

_GONE = {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}
_TEXTS = ("title", "body", "description", "text", "content")
_NESTED_TEXTS = ("content", "summary")  # of Bitbucket Cloud, with the text in `raw`
_IDS = ("id", "pullRequestId")
_PATH = regex(r"[a-z_-]{1,20}/[0-9]{1,20}(?:/[a-z]{1,20}/[0-9]{1,20}){0,2}")


def checked_path(path: str) -> str:
    """Return the path of a text; raise HostError if it is not one that a host has listed."""
    if not _PATH.fullmatch(path):
        raise HostError("malformed", "the path of an issue or comment is not valid")
    return path


def read_time(raw: Any, name: str) -> datetime | None:
    """Return the time in a field of decoded JSON, in UTC; None if there is no valid one."""
    value = raw.get(name) if isinstance(raw, dict) else None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 43:  # milliseconds
        return datetime.fromtimestamp(value / 1000, UTC)
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) and len(value) < 50 else None
        return moment and (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


async def read_present_text(api: HostApi, item: str, listing: str) -> str | None:
    """Return the text at the API path `item`; None if the host has it no longer and serves the `listing`.

    Raise HostError in all other cases.
    """
    response = await api.response(item)
    if response.status in _GONE and await api.status(listing) == HTTPStatus.OK:
        return None
    if response.status != HTTPStatus.OK:
        raise api.error_from(response)
    value = parse_json(response)
    if not isinstance(value, dict) or not any(isinstance(value.get(name), int) for name in _IDS):
        raise HostError("malformed", f"{api.host}: the response is not an issue or comment")
    nested = [value.get(name) for name in _NESTED_TEXTS]
    texts = [
        *(value.get(name) for name in _TEXTS),
        *(text.get("raw") for text in nested if isinstance(text, dict)),
    ]
    return "\n".join(text for text in texts if isinstance(text, str))
