"""Addresses with a name and a password in them: asked with and without the login, since only the difference tells."""

import base64
import re
from collections.abc import Mapping

from outcrop.net.http import HttpClient, HttpError, HttpResponse
from outcrop.scanner.rules.check_spec import CheckSpec
from outcrop.validation.attempt import send
from outcrop.validation.http.check import Turn
from outcrop.validation.http.request import UnfitError
from outcrop.validation.http.response import judge
from outcrop.validation.logins.uri import Login, read_uri
from outcrop.validation.verdict import Verdict, invalid, unreachable, unvalidated, valid

_PORTS = {"https": 443, "http": 80}
_PATH = re.compile(r"/[\x21\x23-\x7e]{0,300}")
_OK = range(200, 300)
_UNAUTHORIZED, _FORBIDDEN = 401, 403
_LIMITED, _FAULT = 429, 500


async def basic_auth_url(
    http: HttpClient, _check: CheckSpec, values: Mapping[str, str], turn: Turn
) -> Verdict:
    """Get the address as nobody, then as the one it names."""
    try:
        login, path = _address(values)
    except UnfitError as reason:
        return unvalidated(f"cannot be asked about: {reason}")
    host = f"[{login.host}]" if ":" in login.host else login.host
    url = f"{login.scheme}://{host}{'' if login.port == _PORTS[login.scheme] else f':{login.port}'}{path}"
    proof = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
    try:
        nobody = await send(http, turn, "GET", url, headers={})
        if nobody.status != _UNAUTHORIZED:
            return _open(nobody)
        known = await send(http, turn, "GET", url, headers={"Authorization": f"Basic {proof}"})
    except HttpError as failure:
        return unreachable(f"the server cannot be reached: {failure}")
    if known.status in _OK:
        return valid(
            "the server accepts the login, and refuses whoever has none", services=("http_basic",), asked=True
        )
    if known.status in {_UNAUTHORIZED, _FORBIDDEN}:
        return invalid("the server refuses the login")
    return judge(known, [])


def _open(answer: HttpResponse) -> Verdict:
    """Say why the login proves nothing."""
    if answer.status in _OK:
        return unvalidated("the address is open to anybody: nothing is protected by the login")
    if answer.status == _LIMITED or answer.status >= _FAULT:
        return judge(answer, [])
    return unvalidated(f"the server does not ask for a login there (status {answer.status})")


def _address(values: Mapping[str, str]) -> tuple[Login, str]:
    login, server = values.get("part.login", ""), values.get("part.server", "")
    if not login or not server:
        raise UnfitError("its server was not found with it")
    found = read_uri(login, re.split(r"[/?#]", server, maxsplit=1)[0], values["secret"], _PORTS, nobody=True)
    if ":" in found.user:
        raise UnfitError("its name holds a colon, which the scheme cannot send")
    path = re.sub(r"^[^/?#]*", "", server)
    path = re.split(r"[?#]", path, maxsplit=1)[0] or "/"
    if not _PATH.fullmatch(path):
        raise UnfitError("it is no address")
    return found, path
