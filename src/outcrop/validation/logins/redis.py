"""Redis and its kin: AUTH, preceded by the question whether anybody asks for it."""

from collections.abc import Mapping

from outcrop.domain.finding import Confidence
from outcrop.net.http import HttpClient, tls_context
from outcrop.scanner.rules.check_spec import CheckSpec
from outcrop.validation.http.check import Turn
from outcrop.validation.http.request import UnfitError
from outcrop.validation.logins.connection import SECONDS, Dialog, OddError, further, log_in, login_of
from outcrop.validation.logins.uri import Login
from outcrop.validation.verdict import Verdict, error, invalid, unvalidated, valid, with_services

_PORTS = dict.fromkeys(("redis", "rediss", "valkey", "valkeys", "keydb"), 6379)
_REFUSALS = (b"-WRONGPASS", b"-ERR invalid password", b"-ERR invalid username-password")
_NONE_SET = (
    b"-ERR Client sent AUTH, but no password is set",
    b"-ERR AUTH <password> called without any password",
)
_OPEN = unvalidated("the server lets anybody in, without a password")


async def redis(
    http: HttpClient, _check: CheckSpec, values: Mapping[str, str], turn: Turn, *, seconds: float = SECONDS
) -> Verdict:
    """Say the password, ask whether the server lets its settings be read, and hang up."""
    secure = values.get("part.login", "").startswith(("rediss:", "valkeys:"))
    context = tls_context(http.egress) if secure else None
    return await log_in(http, turn, lambda: _login(values), _talk, tls=context, seconds=seconds)


def _login(values: Mapping[str, str]) -> Login:
    if (
        "+" in values.get("part.login", "").partition("://")[0]
    ):  # a sentinel, a cluster, a socket: another server than the one named
        raise UnfitError("its kind of connection is not one that is asked")
    return login_of(values, _PORTS, nobody=True)


async def _talk(dialog: Dialog, login: Login) -> Verdict:
    is_open = await _asked(dialog, "PING") == b"+PONG"
    if is_open and login.user in {
        "",
        "default",
    }:  # whoever has no name is `default`; others may have a password none the less
        return _OPEN
    told = await _asked(dialog, "AUTH", *([login.user] if login.user else []), login.password)
    if login.user and told.startswith(
        b"-ERR wrong number of arguments"
    ):  # before version 6 there are no users
        told = await _asked(dialog, "AUTH", login.password)
    if told.startswith(_REFUSALS):
        return invalid("the server refuses the password", Confidence.MEDIUM if is_open else Confidence.HIGH)
    if told.startswith(_NONE_SET):
        return _OPEN
    if told == b"+OK":
        accepted = valid("the server accepts the password", services=("redis",), asked=True)
        settings = await further(dialog, accepted, _asked(dialog, "CONFIG", "GET", "databases"), b"")
        return with_services(accepted, ("redis", "redis_admin")) if settings[:1] == b"*" else accepted
    if not told.startswith(b"-"):
        raise OddError
    return error("the server gives an answer that says nothing of the password")


async def _asked(dialog: Dialog, *words: str) -> bytes:
    """Send a command, each word with its length, and hear the first line of the answer."""
    parts = [word.encode() for word in words]
    await dialog.say(
        b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    )
    told = await dialog.line()
    if told[:1] not in {b"+", b"-", b"*", b"$", b":", b"%"}:
        raise OddError
    return told
