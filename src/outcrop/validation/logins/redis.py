"""Check logins of Redis, Valkey and KeyDB.

PING first shows whether the server requires a password at all; then AUTH sends it. After a login, CONFIG GET
shows whether the user is an administrator.
"""

from outcrop.domain.finding import Confidence
from outcrop.limits import LOGIN_SECONDS
from outcrop.net.tls import tls_context
from outcrop.validation.attempt import Attempt, UncheckableError
from outcrop.validation.logins.connection import (
    LoginConnection,
    ProtocolError,
    check_login,
    query_after_login,
    read_uri_login,
)
from outcrop.validation.logins.uri import UNSUPPORTED_CONNECTION, ServerLogin, requires_tls
from outcrop.validation.verdict import Verdict, error, invalid, unvalidated, valid, with_services

_PORTS = dict.fromkeys(("redis", "rediss", "valkey", "valkeys", "keydb"), 6379)
_WRONG_PASSWORD = (b"-WRONGPASS", b"-ERR invalid password", b"-ERR invalid username-password")
_NO_PASSWORD_SET = (
    b"-ERR Client sent AUTH, but no password is set",
    b"-ERR AUTH <password> called without any password",
)
_OPEN_SERVER = unvalidated("the server accepts anyone without a password")
_REPLY_TYPES = {b"+", b"-", b"*", b"$", b":", b"%"}


async def check_redis_login(attempt: Attempt, *, seconds: float = LOGIN_SECONDS) -> Verdict:
    """Log in to the Redis server of the URI and return the verdict.

    TLS is used if the scheme or an option says so. `seconds` is the time limit of the login.
    """
    use_tls = (attempt.companion("login") or "").startswith(("rediss:", "valkeys:"))
    use_tls = use_tls or requires_tls(attempt.companion("server") or "")
    tls = tls_context(attempt.http.egress) if use_tls else None
    return await check_login(attempt, lambda: _read_login(attempt), _log_in, tls=tls, seconds=seconds)


def _read_login(attempt: Attempt) -> ServerLogin:
    """Return the login of the Redis URI; the user name may be missing.

    Raise UncheckableError if the rest is incomplete, or if the scheme has a `+`, such as `redis+sentinel`.
    """
    if "+" in (attempt.companion("login") or "").partition("://")[0]:
        # redis+sentinel, redis+cluster, redis+socket: the data is on another server than the one in the URI.
        raise UncheckableError(UNSUPPORTED_CONNECTION)
    return read_uri_login(attempt, _PORTS, user_required=False)


async def _log_in(connection: LoginConnection, login: ServerLogin) -> Verdict:
    """Send PING and AUTH to Redis and return the verdict for the replies.

    The verdict is `unvalidated` if the server requires no password for the user, `error` if a reply says
    nothing about the password. After an accepted password, CONFIG GET decides on the label `redis_admin`.
    Raise ProtocolError if the server does not speak Redis's protocol.
    """
    is_open = await _send_command(connection, "PING") == b"+PONG"
    # A connection without AUTH is the user `default`. Other users may have a password even if it has none.
    if is_open and login.user in {"", "default"}:
        return _OPEN_SERVER
    reply = await _send_command(connection, "AUTH", *([login.user] if login.user else []), login.password)
    if login.user and reply.startswith(b"-ERR wrong number of arguments"):  # before version 6, without users
        reply = await _send_command(connection, "AUTH", login.password)
    if reply.startswith(_WRONG_PASSWORD):
        return invalid("the server refuses the password", Confidence.MEDIUM if is_open else Confidence.HIGH)
    if reply.startswith(_NO_PASSWORD_SET):
        return _OPEN_SERVER
    if reply == b"+OK":
        accepted = valid("the server accepts the password", ["redis"])
        config_query = _send_command(connection, "CONFIG", "GET", "databases")
        config = await query_after_login(connection, accepted, config_query, b"")
        is_admin = config[:1] == b"*"
        return with_services(accepted, ["redis", "redis_admin"]) if is_admin else accepted
    if not reply.startswith(b"-"):
        raise ProtocolError
    return error("the server's reply says nothing about the password")


async def _send_command(connection: LoginConnection, *words: str) -> bytes:
    """Send a Redis command as an array of bulk strings and return the first line of the reply.

    Raise ProtocolError if that line does not begin a Redis reply.
    """
    parts = [word.encode() for word in words]
    await connection.send(
        b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    )
    reply = await connection.receive_line()
    if reply[:1] not in _REPLY_TYPES:
        raise ProtocolError
    return reply
