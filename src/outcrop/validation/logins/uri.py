"""A connection string as it was found, read down to what a login needs.

It comes from a stranger's text: its options can name files to read, programs to run and hosts to follow, so none of them is looked at.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from outcrop.validation.http.request import UnfitError

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?\.?")
_SERVER = re.compile(r"(\[[^\]]*\]|[^\[\]:/?#,]*)(?::([^/?#,]*))?([,/?#].*)?", re.DOTALL)
_LONGEST = 512


@dataclass(frozen=True, slots=True)
class Login:
    """Where to log in, as whom. Nothing else of a connection string is kept."""

    scheme: str
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str = ""


def read_uri(
    login: str, server: str, password: str, ports: Mapping[str, int], *, nobody: bool = False
) -> Login:
    """Read `scheme://user`, `host:port/database?options` and the password between them.

    `ports` has the usual port of each scheme; a driver's name after `+` is no part of one. `nobody` allows a login without a name.
    """
    scheme, mark, user = login.partition("://")
    scheme, _, driver = scheme.lower().partition("+")
    if driver == "srv":
        raise UnfitError(
            "its servers are named by a DNS record (+srv), which is not followed: it could lead anywhere"
        )
    if not mark or scheme not in ports:
        raise UnfitError("its kind of connection is not one that is asked")
    parts = _SERVER.fullmatch(server)
    if parts is None:
        raise UnfitError("its host is none")
    host, port, rest = parts[1], parts[2], parts[3] or ""
    if rest.startswith(","):
        raise UnfitError("it names several hosts")
    path = re.split(r"[?#]", rest, maxsplit=1)[0].removeprefix("/")
    name = text(user)
    if not (name or nobody):
        raise UnfitError("it names no user")
    return Login(scheme, host_of(host), port_of(port, ports[scheme]), name, text(password), text(path))


def read_dsn(before: str, password: str, port: int) -> Login:
    """Read libpq's `host=… port=… user=… dbname=…` as it stands before the password."""
    pairs = dict(re.findall(r"(?:^|\s)([a-z_]{2,20})\s?=\s?([^\s'\"\\]+)", before))
    if "service" in pairs or not pairs.get("user"):
        raise UnfitError("it names no user")
    host = pairs.get("hostaddr") or pairs.get("host", "")
    if "," in host:
        raise UnfitError("it names several hosts")
    return Login(
        "postgresql",
        host_of(host),
        port_of(pairs.get("port"), port),
        plain(pairs["user"]),
        plain(password),
        pairs.get("dbname", ""),
    )


def host_of(given: str) -> str:
    """Give a host that can be connected to: a name or an address, no socket's path and no placeholder."""
    if given.startswith("[") and given.endswith("]"):
        try:
            return str(ipaddress.IPv6Address(given[1:-1].partition("%")[0]))
        except ValueError:
            raise UnfitError("its host is none") from None
    if given.startswith("/") or "%" in given:
        raise UnfitError("its host is a socket on the machine it was written for")
    if not _NAME.fullmatch(given) or ".." in given:
        raise UnfitError("its host is none")
    return given


def port_of(given: str | None, usual: int) -> int:
    if not given:
        return usual
    if not re.fullmatch(r"[0-9]{1,5}", given) or not 0 < int(given) < 65536:
        raise UnfitError("its port is none")
    return int(given)


def text(given: str) -> str:
    """Undo percent-encoding."""
    try:
        return plain(unquote_to_bytes(given).decode())
    except ValueError:
        raise UnfitError("it is written in an encoding that no driver reads") from None


def plain(value: str) -> str:
    """Let through what a login can carry: strings end at a NUL in most protocols, and have lengths of one byte in some."""
    if "\0" in value or len(value.encode()) > _LONGEST:
        raise UnfitError("it holds what no login can carry")
    return value
