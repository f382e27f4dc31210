"""The portal's cookies: the session, a token before there is one, a word for the next page, and whether single keys do something."""

import hashlib
import hmac
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response

_LIFETIME = 30 * 86_400
_FLASH_LENGTH = 300
_LONGEST = 400 * 86_400  # that a browser keeps a cookie
_OFF = "off"
REFUSED = "!"  # begins a word for the next page that tells of something that was not done


class Cookies:
    """`__Host-` and Secure, but on a plain address of this machine, where a browser would not keep such a cookie."""

    def __init__(self, *, secure: bool) -> None:
        self._secure = secure
        prefix = "__Host-" if secure else ""
        names = ("session", "before", "flash", "keys")
        self._session, self._before, self._flash, self._keys = (f"{prefix}outcrop_{name}" for name in names)

    def session(self, request: Request) -> str | None:
        return request.cookies.get(self._session)

    def set_session(self, response: Response, token: str) -> None:
        self._set(response, self._session, token, _LIFETIME)
        self._drop(response, self._before)

    def forget_session(self, response: Response) -> None:
        self._drop(response, self._session)

    def before(self, request: Request) -> str | None:
        """Give the token that protects forms of a person who is not signed in."""
        return request.cookies.get(self._before)

    def set_before(self, response: Response, token: str) -> None:
        self._set(response, self._before, token, 3_600)

    def flash(self, request: Request) -> str | None:
        text = unquote(request.cookies.get(self._flash, ""))
        return text[:_FLASH_LENGTH] or None

    def set_flash(self, response: Response, text: str) -> None:
        self._set(response, self._flash, quote(text[:_FLASH_LENGTH]), 60)

    def forget_flash(self, response: Response) -> None:
        self._drop(response, self._flash)

    def has_keys(self, request: Request) -> bool:
        """Tell whether single keys act on findings. Who dictates, or hits keys by chance, has them switched off on that machine."""
        return request.cookies.get(self._keys) != _OFF

    def set_keys(self, response: Response, *, on: bool) -> None:
        if on:
            self._drop(response, self._keys)
        else:
            self._set(response, self._keys, _OFF, _LONGEST)

    @staticmethod
    def same(given: str, wanted: str) -> bool:
        return hmac.compare_digest(given.encode(), wanted.encode())

    def _set(self, response: Response, name: str, value: str, seconds: int) -> None:
        response.set_cookie(
            name, value, max_age=seconds, path="/", secure=self._secure, httponly=True, samesite="lax"
        )

    def _drop(self, response: Response, name: str) -> None:
        response.delete_cookie(name, path="/", secure=self._secure, httponly=True, samesite="lax")


def csrf_of(token: str) -> str:
    """Derive what a form must send from the cookie's token, which no other site can read."""
    return hmac.new(token.encode(), b"outcrop form", hashlib.sha256).hexdigest()
