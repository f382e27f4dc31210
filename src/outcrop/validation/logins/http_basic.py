"""Check URLs with a user name and a password in them.

The URL is requested without and with the login: only the difference proves that the login matters.
"""

import base64
import re

from outcrop.lazy_regex import regex
from outcrop.net.http import HttpError, HttpResponse
from outcrop.validation.attempt import Attempt, UncheckableError
from outcrop.validation.http.response import judge
from outcrop.validation.logins.uri import ServerLogin, parse_uri
from outcrop.validation.verdict import Verdict, invalid, unreachable, unvalidated, valid

_PORTS = {"https": 443, "http": 80}
_PATH = regex(r"/[\x21\x23-\x7e]{0,300}")
_SUCCESS = range(200, 300)
_UNAUTHORIZED, _FORBIDDEN = 401, 403
_TOO_MANY_REQUESTS, _SERVER_ERROR = 429, 500


async def check_basic_auth_url(attempt: Attempt) -> Verdict:
    """Request the URL without the login and, if the response is 401, with it; return the verdict.

    If the first response is not 401, the login proves nothing and is not sent. With the login, 2xx is
    `valid`, 401 and 403 are `invalid`. The verdict is `unvalidated` if the URL is incomplete, `unreachable`
    without a response, and otherwise `error`.
    """
    try:
        login, path = _read_url(attempt)
    except UncheckableError as reason:
        return unvalidated(f"cannot be checked: {reason}")
    host = f"[{login.host}]" if ":" in login.host else login.host
    port = "" if login.port == _PORTS[login.scheme] else f":{login.port}"
    url = f"{login.scheme}://{host}{port}{path}"
    credentials = base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
    try:
        anonymous = await attempt.send("GET", url, headers={})
        if anonymous.status != _UNAUTHORIZED:
            return _judge_anonymous(anonymous)
        response = await attempt.send("GET", url, headers={"Authorization": f"Basic {credentials}"})
    except HttpError as failure:
        return unreachable(f"the server cannot be reached: {failure}")
    if response.status in _SUCCESS:
        return valid("the server accepts the login, and refuses requests without it", ["http_basic"])
    if response.status in {_UNAUTHORIZED, _FORBIDDEN}:
        return invalid("the server refuses the login")
    return judge(response, [])


def _judge_anonymous(response: HttpResponse) -> Verdict:
    """Return the verdict for a response other than 401 to the request without the login.

    The verdict is `unvalidated`, because the login would prove nothing, or `error` for status 429 and 5xx.
    """
    if response.status in _SUCCESS:
        return unvalidated("the URL is open to anyone: the login protects nothing")
    if response.status == _TOO_MANY_REQUESTS or response.status >= _SERVER_ERROR:
        return judge(response, [])
    return unvalidated(f"the server does not ask for a login at this URL (status {response.status})")


def _read_url(attempt: Attempt) -> tuple[ServerLogin, str]:
    """Return the login in the URL, and the path of the URL without its query.

    Raise UncheckableError if a part is missing or not valid, or if the user name contains a colon.
    """
    scheme_and_user, server = attempt.companion("login"), attempt.companion("server")
    if not scheme_and_user or not server:
        raise UncheckableError("its server was not found with it")
    host_and_port = re.split(r"[/?#]", server, maxsplit=1)[0]
    login = parse_uri(scheme_and_user, host_and_port, attempt.secret, _PORTS, user_required=False)
    if ":" in login.user:
        raise UncheckableError("its user name contains a colon, which basic authentication cannot send")
    path_and_query = re.sub(r"^[^/?#]*", "", server)
    path = re.split(r"[?#]", path_and_query, maxsplit=1)[0] or "/"
    if not _PATH.fullmatch(path):
        raise UncheckableError("it is not a URL")
    return login, path
