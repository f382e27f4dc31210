"""Read the pushes in a code host's list of events, where it cannot call a push hook.

A request has the ETag of the last response, and the host says how often it may be sent.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from outcrop.domain.line import one_line
from outcrop.lazy_regex import regex
from outcrop.limits import POLL_LONGEST_SECONDS, POLL_PAGES, POLL_SECONDS, PUSH_TEXT_LENGTH
from outcrop.sources.code_host.api import HostApi, parse_json
from outcrop.sources.code_host.errors import HostError

if TYPE_CHECKING:
    from outcrop.net.http import HttpResponse

_KNOWN_IDS = 300  # of the newest events that are remembered
_NUMBER = regex(r"[0-9]{1,6}")
_COMMIT = regex(r"[0-9a-f]{7,64}")


@dataclass(frozen=True, slots=True)
class PushEvent:
    """A push in a list of events. Its texts may contain credentials."""

    repository_id: str
    full_name: str | None  # None if the list has only the id
    branch: str | None
    author: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Poll:
    """What one poll has found."""

    pushes: tuple[PushEvent, ...]  # new ones, oldest first
    known: tuple[str, ...] | None  # ids for the next poll; None if nothing has changed
    etag: str | None
    seconds: float  # until the next poll
    is_complete: bool = True  # False if there may be pushes that the list no longer has


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFeed:
    """A list of events, newest first, at the API path `path`.

    `read` returns the push of an event, None if it is none. `resolve` completes a push; it returns None if
    the push is not of the wanted owner.
    """

    api: HostApi
    path: str
    read: Callable[[Any], PushEvent | None]
    resolve: Callable[[PushEvent], Awaitable[PushEvent | None]] | None = None

    async def poll(self, known: Sequence[str] | None, etag: str | None) -> Poll:
        """Return the pushes since the poll that returned `known` and `etag`; none if these are None."""
        response = await self.api.response(self.path, etag=None if known is None else etag)
        seconds = _interval(response.headers)
        if response.status == HTTPStatus.NOT_MODIFIED:
            return Poll((), None, etag, seconds)
        ids, found = await self._read_pages(response, known)
        pushes = [] if known is None else await self._resolve(found)
        kept = tuple(dict.fromkeys([*ids, *(known or ())]))[:_KNOWN_IDS]
        return Poll(
            tuple(reversed(pushes)),
            kept,
            response.headers.get("ETag"),
            seconds,
            is_complete=not known or not set(known).isdisjoint(ids),
        )

    async def _read_pages(
        self, response: "HttpResponse", known: Sequence[str] | None
    ) -> tuple[list[str], list[PushEvent]]:
        """Return the ids of all events, and the pushes that are not known, up to a page with a known event.

        `response` is the first page; the others are read only if there are known events or were none.
        """
        old, ids, found = set(known or ()), list[str](), list[PushEvent]()
        for number in range(POLL_PAGES):
            if not response.ok:
                raise self.api.error_from(response)
            items = parse_json(response)
            if not isinstance(items, list):
                raise HostError("malformed", f"{self.api.host}: the list of events is not a list")
            for item in items:
                ids.append(str(item.get("id"))[:PUSH_TEXT_LENGTH] if isinstance(item, dict) else "")
                if ids[-1] not in old and (push := self.read(item)) is not None:
                    found.append(push)
            path = self.api.next_path(response)
            if path is None or known is None or not old.isdisjoint(ids) or number == POLL_PAGES - 1:
                break
            response = await self.api.response(path)
        return ids, found

    async def _resolve(self, pushes: Sequence[PushEvent]) -> list[PushEvent]:
        """Return the pushes with the names of their repositories, without those of other owners."""
        if self.resolve is None:
            return list(pushes)
        resolved: dict[str, PushEvent | None] = {}
        for push in pushes:
            if push.repository_id not in resolved:
                resolved[push.repository_id] = await self.resolve(push)
        return [
            replace(push, full_name=named.full_name)
            for push in pushes
            if (named := resolved[push.repository_id]) is not None
        ]


def read_push(
    repository_id: object, full_name: object, ref: object, author: object, after: object
) -> PushEvent | None:
    """Return the push with these fields of an event; None if it does not identify a repository."""
    if not isinstance(repository_id, int | str) or isinstance(repository_id, bool):
        return None
    branch = _text(ref)
    return PushEvent(
        str(repository_id)[:PUSH_TEXT_LENGTH],
        _text(full_name),
        branch and branch.removeprefix("refs/heads/").removeprefix("refs/tags/"),
        _text(author),
        after if isinstance(after, str) and _COMMIT.fullmatch(after) and after.strip("0") else None,
    )


def _text(value: object) -> str | None:
    """Return a text in one line and cut; None if it is empty or no text."""
    return (
        (one_line(value[: 2 * PUSH_TEXT_LENGTH])[:PUSH_TEXT_LENGTH] or None)
        if isinstance(value, str)
        else None
    )


def _interval(headers: Any) -> float:
    """Return the seconds until the next poll: as the host says, and within bounds."""
    text = headers.get("X-Poll-Interval", "")
    given = float(text) if _NUMBER.fullmatch(text) else POLL_SECONDS
    return min(max(given, POLL_SECONDS), POLL_LONGEST_SECONDS)
