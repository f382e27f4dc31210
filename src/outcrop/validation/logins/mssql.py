"""SQL Server: a login by its own protocol, under TLS or not at all. No statement is run."""

import re
import struct
from collections.abc import Iterator, Mapping

from outcrop.domain.finding import Confidence
from outcrop.net.http import HttpClient
from outcrop.scanner.rules.check_spec import CheckSpec
from outcrop.validation.http.check import Turn
from outcrop.validation.http.request import UnfitError
from outcrop.validation.logins.connection import SECONDS, Dialog, OddError, log_in, login_of
from outcrop.validation.logins.tds import LOGIN7, PRELOGIN, Line
from outcrop.validation.logins.uri import Login, host_of, plain, port_of
from outcrop.validation.verdict import Verdict, error, invalid, unvalidated, valid

_PORT = 1433
_PORTS = dict.fromkeys(("mssql", "sqlserver"), _PORT)
_SERVER = ("server", "data source", "addr", "address", "network address", "host", "servername")
_USER = ("user id", "uid", "user", "username", "user name")
_DATABASE = ("initial catalog", "database", "databasename")
_ENCRYPT_ON, _ENCRYPT_NOT_SUPPORTED = 1, 2
_AROUND = " \t'`{}"  # blanks and quotes around a value
_LONGEST = 128  # characters that a field of a login holds
_FIXED = 94  # bytes of a login before its texts
_ACCEPTED, _ERROR = 0xAD, 0xAA
_WITH_LENGTH = {
    0xAA,
    0xAB,
    0xAD,
    0xE3,
    0xED,
}  # tokens whose length follows; with others the answer to a login has ended
_REFUSED = 18456
_MEANS = {
    4060: valid(
        "the server accepts the password, but not for this database", services=("sqlserver",), asked=True
    ),
    4064: valid(
        "the server accepts the password; the login's own database is gone",
        services=("sqlserver",),
        asked=True,
    ),
    18487: valid(
        "the server accepts the password, which has expired", Confidence.MEDIUM, ("sqlserver",), asked=True
    ),
    18488: valid(
        "the server accepts the password, which must be changed",
        Confidence.MEDIUM,
        ("sqlserver",),
        asked=True,
    ),
    # The same is said where passwords are not taken at all.
    _REFUSED: invalid("the server refuses the login", Confidence.MEDIUM),
    18470: invalid("the login is disabled", Confidence.MEDIUM),
    18486: invalid("the login is locked", Confidence.MEDIUM),
    18452: unvalidated("the server takes logins of its own network only, and no passwords"),
    40615: error("the server's firewall refuses this address"),
}


async def mssql(
    http: HttpClient, _check: CheckSpec, values: Mapping[str, str], turn: Turn, *, seconds: float = SECONDS
) -> Verdict:
    """Log in as the connection string says, and hang up."""
    return await log_in(http, turn, lambda: login_in(values), _talk, seconds=seconds)


def login_in(values: Mapping[str, str]) -> Login:
    """Read the list of pairs that the password stands in, else the address. Where both are near, nobody knows which is its own."""
    if (
        values.get("part.rival", "")[:1] in {"P", "p"}
        and "part.before" in values
        and "part.login" not in values
    ):
        return read_pairs(_pairs(values["part.before"] + values.get("part.after", "")), values["secret"])
    login = login_of(values, _PORTS)
    if max(len(login.user), len(login.password), len(login.database)) > _LONGEST:
        raise UnfitError("it holds what no login can carry")
    return login


def _pairs(text: str) -> dict[str, str]:
    """Read `name=value;…`; a JDBC address has its server before the first pair."""
    jdbc = re.match(r"jdbc:(?:jtds:)?sqlserver://([^;]*)", text)
    rest = text[jdbc.end() :] if jdbc else text
    pairs = {
        name.strip().lower(): value.strip(_AROUND)
        for name, mark, value in (pair.partition("=") for pair in rest.split(";"))
        if mark
    }
    if jdbc:
        server, _, path = jdbc[1].partition("/")
        pairs |= {"server": server.replace(":", ",")} if server else {}
        pairs = ({"database": path} if path else {}) | pairs
    return pairs


def read_pairs(pairs: Mapping[str, str], password: str) -> Login:
    """Read a login from pairs. What a driver would do beside logging in (attach a file, ask a directory) is not looked at, or refused."""
    if pairs.get("authentication", "sqlpassword").replace(" ", "").lower() != "sqlpassword":
        raise UnfitError("its login is one of a directory, not of the server")
    server = _first(pairs, _SERVER).removeprefix("tcp:").strip()
    if re.match(r"[a-z]{2,8}:", server):
        raise UnfitError("its kind of connection is not one that is asked")
    host, _, port = server.partition(",")
    host, _, instance = host.partition("\\")
    if instance and not port:
        raise UnfitError(
            "it names an instance, and the port of that is told by the server's own network only"
        )
    user, database = _first(pairs, _USER), _first(pairs, _DATABASE)
    if not user:
        raise UnfitError("it names no user")
    if max(len(user), len(password), len(database)) > _LONGEST:
        raise UnfitError("it holds what no login can carry")
    return Login(
        "mssql",
        host_of(host.strip()),
        port_of(port.strip() or pairs.get("port"), _PORT),
        plain(user),
        plain(password),
        database,
    )


def _first(pairs: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((pairs[name] for name in names if name in pairs), "")


async def _talk(dialog: Dialog, login: Login) -> Verdict:
    line = Line(dialog)
    await line.say(PRELOGIN, _prelogin())
    if _encryption(await line.hear()) == _ENCRYPT_NOT_SUPPORTED:
        return unvalidated("the server wants the password unencrypted, over a network that anybody may read")
    await line.encrypt()
    await line.say(LOGIN7, _login7(login))
    errors = []
    for token, body in _tokens(await line.hear()):
        if token == _ACCEPTED:
            labels = ("sqlserver", "sqlserver_admin") if login.user.lower() == "sa" else ("sqlserver",)
            return valid("the server accepts the login", services=labels, asked=True)
        if token == _ERROR:
            errors.append(struct.unpack_from("<I", body)[0])
    if not errors:
        raise OddError
    errors.sort(key=lambda code: code == _REFUSED)  # whatever else is said says more
    known = next((code for code in errors if code in _MEANS), None)
    return _MEANS[known] if known else error(f"the server cannot take a login now (error {errors[0]})")


def _prelogin() -> bytes:
    """Offer what is needed: a version, and that everything be encrypted."""
    return struct.pack("!BHHBHHB", 0, 11, 6, 1, 17, 1, 0xFF) + bytes(6) + bytes([_ENCRYPT_ON])


def _encryption(body: bytes) -> int:
    for at in range(0, len(body), 5):
        if body[at] == 0xFF:
            break
        name, offset, length = (int(number) for number in struct.unpack_from("!BHH", body, at))
        if name == 1 and length == 1:
            return body[offset]
    raise OddError


def _login7(login: Login) -> bytes:
    """Write a login: numbers, then where each text stands, then the texts. The password's bytes are turned about, which hides nothing."""
    hidden = bytes((byte << 4 & 0xF0 | byte >> 4) ^ 0xA5 for byte in login.password.encode("utf-16-le"))
    # Host, user, password, application, server, nothing, library, language, database.
    texts: list[str | bytes] = [
        "",
        login.user,
        hidden,
        "outcrop",
        login.host,
        "",
        "outcrop",
        "",
        login.database,
    ]
    fields, data = b"", b""
    for text in texts:
        raw = text if isinstance(text, bytes) else text.encode("utf-16-le")
        fields += struct.pack("<HH", _FIXED + len(data), len(raw) // 2)
        data += raw
    end = _FIXED + len(data)
    fields += bytes(6) + struct.pack(
        "<HHHHHHI", end, 0, end, 0, end, 0, 0
    )  # no machine's number, no other proof, no file, no new password
    return (
        struct.pack("<IIIIIIBBBBII", end, 0x74000004, 4096, 0, 0, 0, 0xE0, 0x03, 0, 0, 0, 0) + fields + data
    )


def _tokens(body: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(body) and body[at] in _WITH_LENGTH:
        (size,) = struct.unpack_from("<H", body, at + 1)
        yield body[at], body[at + 3 : at + 3 + size]
        at += 3 + size
