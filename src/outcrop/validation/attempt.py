"""Requests that a check in Python makes beside each other: in turn, bounded, and what they answer read carefully."""

import json
from typing import Any

from outcrop.net.http import HttpClient, HttpResponse
from outcrop.validation.http.check import Turn

_SECONDS = 20.0
_FURTHER_SECONDS = 8.0  # what a credential opens is worth less waiting than whether it lives
_MOST_BODY = 1 << 20


async def send(
    http: HttpClient,
    turn: Turn,
    method: str,
    url: str,
    *,
    headers: dict[str, str],
    body: bytes | None = None,
    further: bool = False,
) -> HttpResponse:
    """Send one request when it is its turn; `further` is for what comes after the verdict."""
    await turn()
    return await http.request(
        method,
        url,
        headers=headers,
        body=body,
        max_bytes=_MOST_BODY,
        seconds=_FURTHER_SECONDS if further else _SECONDS,
    )


def json_of(answer: HttpResponse) -> dict[str, Any]:
    """Read the object that an answer holds; an empty one for anything else."""
    try:
        data = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def texts(value: Any) -> list[str]:
    """Give the texts of a list that somebody else wrote."""
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []
