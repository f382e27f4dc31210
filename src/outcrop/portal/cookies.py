"""Cookies: session, known browser, form token before signing in, flash message, undo, display, keyboard."""

import hashlib
import hmac
from datetime import UTC, tzinfo
from functools import cache
from urllib.parse import quote, unquote
from uuid import UUID
from zoneinfo import ZoneInfo, available_timezones

from starlette.requests import Request
from starlette.responses import Response

from outcrop.domain.ids import parse_id

_LIFETIME = 30 * 86_400
_FLASH_LENGTH = 300
_MAX_LIFETIME = 400 * 86_400  # browsers keep no cookie longer
_OFF = "off"
THEMES = ("light", "dark")  # without this cookie the theme is that of the system
_LOCAL_ZONE = "outcrop_local_zone"  # the script of the page writes it: the browser's time zone
REFUSED = "!"  # first character of a flash message about something that was not done


class Cookies:
    """Read and write the portal's cookies.

    They have the prefix `__Host-` and the flag Secure, except over http on loopback, where browsers would
    reject them.
    """

    def __init__(self, *, secure: bool) -> None:
        self._secure = secure
        prefix = "__Host-" if secure else ""
        names = ("session", "browser", "before", "ticket", "flash", "undo", "keys", "theme", "zone")
        (
            self._session,
            self._browser,
            self._before,
            self._ticket,
            self._flash,
            self._undo,
            self._keys,
            self._theme,
            self._zone,
        ) = (f"{prefix}outcrop_{name}" for name in names)

    def session(self, request: Request) -> str | None:
        return request.cookies.get(self._session)

    def set_session(self, response: Response, token: str) -> None:
        self._set(response, self._session, token, _LIFETIME)
        self._delete(response, self._before)

    def delete_session(self, response: Response) -> None:
        self._delete(response, self._session)

    def browser(self, request: Request) -> str:
        """Return the cookie of a browser that somebody has signed in with; empty if there is none."""
        return request.cookies.get(self._browser, "")

    def set_browser(self, response: Response, text: str) -> None:
        self._set(response, self._browser, text, _MAX_LIFETIME)

    def before(self, request: Request) -> str | None:
        """Return the token that protects forms of visitors who are not signed in."""
        return request.cookies.get(self._before)

    def set_before(self, response: Response, token: str) -> None:
        self._set(response, self._before, token, 3_600)

    def ticket(self, request: Request) -> str:
        """Return the proof that the right password was entered a moment ago; empty if there is none."""
        return request.cookies.get(self._ticket, "")

    def set_ticket(self, response: Response, text: str) -> None:
        self._set(response, self._ticket, text, 300)

    def delete_ticket(self, response: Response) -> None:
        self._delete(response, self._ticket)

    def flash(self, request: Request) -> str | None:
        text = unquote(request.cookies.get(self._flash, ""))
        return text[:_FLASH_LENGTH] or None

    def set_flash(self, response: Response, text: str, undo: UUID | None = None) -> None:
        """Store the message that the next page shows, and the triage that can be undone there."""
        self._set(response, self._flash, quote(text[:_FLASH_LENGTH]), 60)
        if undo is None:
            self._delete(response, self._undo)
        else:
            self._set(response, self._undo, str(undo), 60)

    def undo(self, request: Request) -> UUID | None:
        """Return the id of the triage that the message is about; None if it cannot be undone."""
        return parse_id(request.cookies.get(self._undo, ""))

    def delete_flash(self, response: Response) -> None:
        self._delete(response, self._flash)
        self._delete(response, self._undo)

    def has_keys(self, request: Request) -> bool:
        """Whether single keys act on findings. Users of speech input can turn them off in their browser."""
        return request.cookies.get(self._keys) != _OFF

    def set_keys(self, response: Response, *, on: bool) -> None:
        if on:
            self._delete(response, self._keys)
        else:
            self._set(response, self._keys, _OFF, _MAX_LIFETIME)

    def theme(self, request: Request) -> str | None:
        """Return the theme that was chosen in this browser; None for that of the system."""
        text = request.cookies.get(self._theme)
        return text if text in THEMES else None

    def chosen_zone(self, request: Request) -> str | None:
        """Return the time zone that was chosen in this browser; None for the browser's own."""
        text = request.cookies.get(self._zone)
        return text if text in zone_names() else None

    def zone(self, request: Request) -> tzinfo:
        """Return the time zone of times and day filters: the chosen one, or the browser's, or UTC."""
        local = unquote(request.cookies.get(_LOCAL_ZONE, ""))
        return ZoneInfo(name) if (name := self.chosen_zone(request) or local) in zone_names() else UTC

    def set_display(self, response: Response, *, theme: str | None, zone: str | None) -> None:
        """Store a theme and a time zone; with None, delete the stored one."""
        for name, value in ((self._theme, theme), (self._zone, zone)):
            if value is None:
                self._delete(response, name)
            else:
                self._set(response, name, value, _MAX_LIFETIME)

    @staticmethod
    def same(token: str, expected: str) -> bool:
        """Compare two tokens in constant time."""
        return hmac.compare_digest(token.encode(), expected.encode())

    def _set(self, response: Response, name: str, value: str, seconds: int) -> None:
        response.set_cookie(
            name, value, max_age=seconds, path="/", secure=self._secure, httponly=True, samesite="lax"
        )

    def _delete(self, response: Response, name: str) -> None:
        response.delete_cookie(name, path="/", secure=self._secure, httponly=True, samesite="lax")


@cache
def zone_names() -> frozenset[str]:
    """Return the names of the time zones that this machine knows; UTC is always among them."""
    areas = ("Africa/", "America/", "Asia/", "Atlantic/", "Australia/", "Europe/", "Indian/", "Pacific/")
    return frozenset({"UTC", *(name for name in available_timezones() if name.startswith(areas))})


def csrf_of(token: str) -> str:
    """Derive the form token from the cookie's token, which other sites cannot read."""
    return hmac.new(token.encode(), b"outcrop form", hashlib.sha256).hexdigest()
