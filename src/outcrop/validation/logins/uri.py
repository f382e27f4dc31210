"""Read the server, user, password and database from a connection string.

The string comes from scanned text, which an attacker may have written. Its options can name files to read,
programs to run and hosts to follow, so they are ignored, except that TLS is required.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from outcrop.lazy_regex import regex
from outcrop.limits import LOGIN_FIELD_BYTES
from outcrop.validation.attempt import UncheckableError

_HOST_NAME = regex(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?\.?")
_SERVER = regex(r"(\[[^\]]*\]|[^\[\]:/?#,]*)(?::([^/?#,]*))?([,/?#].*)?", re.DOTALL)  # host, port, rest
_DSN_PAIR = regex(r"(?:^|\s)([a-z_]{2,20})\s?=\s?([^\s'\"\\]+)")
_TLS_REQUIRED = regex(
    r"(?:^|[?&;\s])(?:ssl[-_]?mode\s?=\s?(?:require|verify)"
    r"|(?:ssl|tls|requiressl|verifyservercertificate)\s?=\s?(?:true|1|yes|on|require|skip-verify)(?![^&;#\s]))",
    re.IGNORECASE,
)
_CERTIFICATE_REQUIRED = regex(
    r"(?:^|[?&;\s])(?:ssl[-_]?mode\s?=\s?verify|verifyservercertificate\s?=\s?true)", re.IGNORECASE
)
NO_USER = "it has no user name"
SEVERAL_HOSTS = "it names several hosts"
UNSUPPORTED_CONNECTION = "its kind of connection is not supported"
UNSENDABLE = "its user name, password or database is too long or contains a NUL"
_NO_HOST = "its host is not a valid host name or address"


@dataclass(frozen=True, slots=True)
class ServerLogin:
    """A server and the user, password and database to log in with."""

    scheme: str
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str = ""
    requires_tls: bool = False
    requires_certificate: bool = False  # that is trusted; the password itself is sent to no other server


def requires_certificate(options: str) -> bool:
    """Whether the options of a connection string require a trusted certificate."""
    return _CERTIFICATE_REQUIRED.search(options) is not None


def requires_tls(options: str) -> bool:
    """Whether the options of a connection string require TLS, as its owner's programs do."""
    return _TLS_REQUIRED.search(options) is not None


def parse_uri(
    scheme_and_user: str,
    server: str,
    password: str,
    default_ports: Mapping[str, int],
    *,
    user_required: bool = True,
) -> ServerLogin:
    """Return the login of a URI that is split into its parts.

    `scheme_and_user` is `scheme://user`, `server` is `host:port/database?options`. `default_ports` has the
    port of each supported scheme. A driver name after `+` in the scheme is ignored, but `+srv` is not
    supported. Without `user_required` the user may be empty. Raise UncheckableError if a part is not valid or
    not supported, or if the parts do not name one host and user.
    """
    scheme, separator, user = scheme_and_user.partition("://")
    scheme, _, driver = scheme.lower().partition("+")
    if driver == "srv":
        raise UncheckableError(
            "its servers are in a DNS record (+srv), which is not followed because it could name any host"
        )
    if not separator or scheme not in default_ports:
        raise UncheckableError(UNSUPPORTED_CONNECTION)
    server_parts = _SERVER.fullmatch(server)
    if server_parts is None:
        raise UncheckableError(_NO_HOST)
    host, port, rest = server_parts[1], server_parts[2], server_parts[3] or ""
    if rest.startswith(","):
        raise UncheckableError(SEVERAL_HOSTS)
    database = re.split(r"[?#]", rest, maxsplit=1)[0].removeprefix("/")
    user = decode_percent(user)
    if user_required and not user:
        raise UncheckableError(NO_USER)
    return ServerLogin(
        scheme,
        parse_host(host),
        parse_port(port, default_ports[scheme]),
        user,
        decode_percent(password),
        decode_percent(database),
        requires_tls(rest),
        requires_certificate(rest),
    )


def parse_dsn(before_password: str, password: str, default_port: int) -> ServerLogin:
    """Return the login of a libpq connection string such as `host=… port=… user=… dbname=… password=…`.

    `before_password` is the part before `password=`; quoted values in it are not read. Raise UncheckableError
    if it does not name one host and user, or if a part is not valid.
    """
    pairs = dict(_DSN_PAIR.findall(before_password))
    if "service" in pairs or not pairs.get("user"):
        raise UncheckableError(NO_USER)
    host = pairs.get("hostaddr") or pairs.get("host", "")
    if "," in host:
        raise UncheckableError(SEVERAL_HOSTS)
    return ServerLogin(
        "postgresql",
        parse_host(host),
        parse_port(pairs.get("port"), default_port),
        checked_field(pairs["user"]),
        checked_field(password),
        pairs.get("dbname", ""),
        requires_tls(before_password),
        requires_certificate(before_password),
    )


def parse_host(text: str) -> str:
    """Return a host name or IP address, without the brackets and the zone of IPv6.

    Raise UncheckableError if the text is not valid, or is a socket on a machine.
    """
    if text.startswith("[") and text.endswith("]"):
        try:
            return str(ipaddress.IPv6Address(text[1:-1].partition("%")[0]))
        except ValueError:
            raise UncheckableError(_NO_HOST) from None
    if text.startswith("/") or "%" in text:
        raise UncheckableError("its host is a socket on the machine it was written for")
    if not _HOST_NAME.fullmatch(text) or ".." in text:
        raise UncheckableError(_NO_HOST)
    return text


def parse_port(text: str | None, default: int) -> int:
    """Return the text as a port number; `default` for None and "".

    Raise UncheckableError if the text is not a number from 1 to 65535.
    """
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        raise UncheckableError("its port is not a valid port number")
    return int(text)


def decode_percent(text: str) -> str:
    """Return the text with its percent-encoding decoded.

    Raise UncheckableError if the result is not UTF-8, has a NUL or is longer than LOGIN_FIELD_BYTES.
    """
    try:
        return checked_field(unquote_to_bytes(text).decode())
    except ValueError:
        raise UncheckableError("it is not valid UTF-8") from None


def checked_field(value: str) -> str:
    """Return the value unchanged; raise UncheckableError if it has a NUL or more than LOGIN_FIELD_BYTES.

    Most protocols end a string at a NUL byte, and some have lengths of one byte.
    """
    if "\0" in value or len(value.encode()) > LOGIN_FIELD_BYTES:
        raise UncheckableError(UNSENDABLE)
    return value
