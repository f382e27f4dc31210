"""Check logins of Microsoft SQL Server.

1. The prelogin message agrees on encryption; a server without it is not sent the password (`_log_in`).
2. After the TLS handshake the Login7 message carries user, password and database (`_login7_message`).
3. The tokens of the response say whether the login is accepted. No statement is run.
"""

import re
import struct
from collections.abc import Iterator, Mapping

from outcrop.domain.finding import Confidence
from outcrop.lazy_regex import regex
from outcrop.limits import LOGIN_SECONDS
from outcrop.validation.attempt import Attempt, UncheckableError
from outcrop.validation.logins.connection import (
    LoginConnection,
    ProtocolError,
    check_login,
    read_uri_login,
)
from outcrop.validation.logins.tds import LOGIN7, PRELOGIN, TdsStream
from outcrop.validation.logins.uri import (
    NO_USER,
    UNSENDABLE,
    UNSUPPORTED_CONNECTION,
    ServerLogin,
    checked_field,
    parse_host,
    parse_port,
)
from outcrop.validation.verdict import Verdict, error, invalid, unvalidated, valid

_PORT = 1433
_PORTS = dict.fromkeys(("mssql", "sqlserver"), _PORT)
_JDBC_URL = regex(r"jdbc:(?:jtds:)?sqlserver://([^;]*)")
_SERVER_NAMES = ("server", "data source", "addr", "address", "network address", "host", "servername")
_USER_NAMES = ("user id", "uid", "user", "username", "user name")
_DATABASE_NAMES = ("initial catalog", "database", "databasename")
_BLANKS_AND_QUOTES = " \t'`{}"
_MAX_FIELD_LENGTH = 128  # characters of a Login7 field
_ENCRYPTION_OPTION, _END_OF_OPTIONS = 1, 0xFF
_ENCRYPT_ON, _ENCRYPT_NOT_SUPPORTED = 1, 2
_LOGIN7_HEADER_SIZE = 94  # bytes before the texts
_LOGINACK, _ERROR = 0xAD, 0xAA
# Tokens that begin with their length: error, info, loginack, envchange, SSPI. Any other token ends the
# response to a login.
_TOKENS_WITH_LENGTH = {0xAA, 0xAB, 0xAD, 0xE3, 0xED}
_LOGIN_FAILED = 18456
_SERVICE = ["sqlserver"]
_VERDICTS_BY_ERROR = {
    4060: valid("the server accepts the password, but not for this database", _SERVICE),
    4064: valid("the server accepts the password; the user's default database is gone", _SERVICE),
    18487: valid("the server accepts the password, which has expired", _SERVICE, Confidence.MEDIUM),
    18488: valid("the server accepts the password, which must be changed", _SERVICE, Confidence.MEDIUM),
    # A server that accepts no passwords at all reports the same error.
    _LOGIN_FAILED: invalid("the server refuses the login", Confidence.MEDIUM),
    18470: invalid("the login is disabled", Confidence.MEDIUM),
    18486: invalid("the login is locked", Confidence.MEDIUM),
    18452: unvalidated("the server accepts Windows logins only, and no passwords"),
    40615: error("the server's firewall refuses this address"),
}


async def check_mssql_login(attempt: Attempt, *, seconds: float = LOGIN_SECONDS) -> Verdict:
    """Log in to the SQL Server of the connection string and return the verdict.

    `seconds` is the time limit of the login.
    """
    return await check_login(attempt, lambda: read_mssql_login(attempt), _log_in, seconds=seconds)


def read_mssql_login(attempt: Attempt) -> ServerLogin:
    """Return the login around the password: from `name=value;` pairs or from a URI.

    The pairs are read if the password is one of them and no URI is near. Raise UncheckableError if the login
    is incomplete or not supported.
    """
    before = attempt.companion("before")
    is_in_pairs = (attempt.companion("rival") or "")[:1] in {"P", "p"}
    if is_in_pairs and before is not None and attempt.companion("login") is None:
        return parse_pairs(_split_pairs(before + (attempt.companion("after") or "")), attempt.secret)
    login = read_uri_login(attempt, _PORTS)
    _check_lengths(login.user, login.password, login.database)
    return login


def _check_lengths(*fields: str) -> None:
    """Raise UncheckableError if a field has more than _MAX_FIELD_LENGTH characters, too many for Login7."""
    if max(map(len, fields)) > _MAX_FIELD_LENGTH:
        raise UncheckableError(UNSENDABLE)


def _split_pairs(text: str) -> dict[str, str]:
    """Split `name=value;…` into a dict, with the names in lower case and the values without quotes.

    The server in front of the pairs of a JDBC URL replaces the pair `server`; the database there becomes the
    pair `database` if there is none.
    """
    jdbc = _JDBC_URL.match(text)
    rest = text[jdbc.end() :] if jdbc else text
    pairs = {
        name.strip().lower(): value.strip(_BLANKS_AND_QUOTES)
        for name, separator, value in (pair.partition("=") for pair in rest.split(";"))
        if separator
    }
    if jdbc:
        server, _, database = jdbc[1].partition("/")
        pairs |= {"server": server.replace(":", ",")} if server else {}
        pairs = ({"database": database} if database else {}) | pairs
    return pairs


def parse_pairs(pairs: Mapping[str, str], password: str) -> ServerLogin:
    """Return the login in the pairs of a SQL Server connection string.

    Raise UncheckableError if a part is missing or not valid, if the user is in a directory, or if the server
    is a named instance without a port. Other pairs are ignored, also those that make a driver do more than
    log in, such as attach a file.
    """
    if pairs.get("authentication", "sqlpassword").replace(" ", "").lower() != "sqlpassword":
        raise UncheckableError("its user is in a directory, not in the server")
    server = _first_value(pairs, _SERVER_NAMES).removeprefix("tcp:").strip()
    if re.match(r"[a-z]{2,8}:", server):
        raise UncheckableError(UNSUPPORTED_CONNECTION)
    host_and_instance, _, port = server.partition(",")
    host, _, instance = host_and_instance.partition("\\")
    if instance and not port:
        raise UncheckableError("it names an instance, whose port only the server's own network can look up")
    user, database = _first_value(pairs, _USER_NAMES), _first_value(pairs, _DATABASE_NAMES)
    if not user:
        raise UncheckableError(NO_USER)
    _check_lengths(user, password, database)
    return ServerLogin(
        "mssql",
        parse_host(host.strip()),
        parse_port(port.strip() or pairs.get("port"), _PORT),
        checked_field(user),
        checked_field(password),
        database,
    )


def _first_value(pairs: Mapping[str, str], names: tuple[str, ...]) -> str:
    """Return the value of the first of `names` that is in the pairs; "" if none is."""
    return next((pairs[name] for name in names if name in pairs), "")


async def _log_in(connection: LoginConnection, login: ServerLogin) -> Verdict:
    """Agree on encryption, send the login inside TLS and return the verdict for SQL Server's response.

    Return `unvalidated`, without sending the password, if the server does not support encryption; `error` for
    unknown error codes. Raise ProtocolError if the response has neither an acknowledgement nor an error.
    """
    stream = TdsStream(connection)
    await stream.send(PRELOGIN, _prelogin_message())
    if _encryption_of(await stream.receive()) == _ENCRYPT_NOT_SUPPORTED:
        return unvalidated(
            "the server asks for the password unencrypted, which others on the network could read"
        )
    await stream.start_tls()
    await stream.send(LOGIN7, _login7_message(login))
    errors = []
    for token, body in _tokens_of(await stream.receive()):
        if token == _LOGINACK:
            is_admin = login.user.lower() == "sa"
            return valid(
                "the server accepts the login", [*_SERVICE, "sqlserver_admin"] if is_admin else _SERVICE
            )
        if token == _ERROR:
            errors.append(struct.unpack_from("<I", body)[0])
    if not errors:
        raise ProtocolError
    errors.sort(key=lambda code: code == _LOGIN_FAILED)  # any other error is more specific
    known = next((code for code in errors if code in _VERDICTS_BY_ERROR), None)
    if known is None:
        return error(f"the server does not accept logins now (error {errors[0]})")
    return _VERDICTS_BY_ERROR[known]


def _prelogin_message() -> bytes:
    """Return a TDS prelogin message with two options: a version of zeros, and encryption on."""
    version_option = struct.pack("!BHH", 0, 11, 6)  # its data: 6 bytes at offset 11
    encryption_option = struct.pack("!BHH", _ENCRYPTION_OPTION, 17, 1)
    return version_option + encryption_option + bytes([_END_OF_OPTIONS]) + bytes(6) + bytes([_ENCRYPT_ON])


def _encryption_of(prelogin: bytes) -> int:
    """Return the value of the encryption option in a TDS prelogin message.

    Raise ProtocolError if the option is missing.
    """
    for start in range(0, len(prelogin), 5):
        if prelogin[start] == _END_OF_OPTIONS:
            break
        option, offset, length = (int(number) for number in struct.unpack_from("!BHH", prelogin, start))
        if option == _ENCRYPTION_OPTION and length == 1:
            return prelogin[offset]
    raise ProtocolError


def _login7_message(login: ServerLogin) -> bytes:
    """Return a TDS Login7 message: numbers, then offset and length of each text, then the texts.

    The texts are user, password and database of the login, its host, and our name.
    """
    # The protocol swaps the halves of each password byte and inverts bits. That is no protection; TLS is.
    scrambled = bytes((byte << 4 & 0xF0 | byte >> 4) ^ 0xA5 for byte in login.password.encode("utf-16-le"))
    texts: list[str | bytes] = [
        "",  # client host
        login.user,
        scrambled,
        "outcrop",  # application
        login.host,
        "",  # unused
        "outcrop",  # client library
        "",  # language
        login.database,
    ]
    fields, data = b"", b""
    for text in texts:
        encoded = text if isinstance(text, bytes) else text.encode("utf-16-le")
        fields += struct.pack("<HH", _LOGIN7_HEADER_SIZE + len(data), len(encoded) // 2)
        data += encoded
    end = _LOGIN7_HEADER_SIZE + len(data)
    # Empty: MAC address, SSPI data, database file to attach, new password.
    fields += bytes(6) + struct.pack("<HHHHHHI", end, 0, end, 0, end, 0, 0)
    numbers = struct.pack("<IIIIIIBBBBII", end, 0x74000004, 4096, 0, 0, 0, 0xE0, 0x03, 0, 0, 0, 0)
    return numbers + fields + data


def _tokens_of(response: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield type and body of each token of a TDS response, up to the first token that has no length field."""
    offset = 0
    while offset < len(response) and response[offset] in _TOKENS_WITH_LENGTH:
        (size,) = struct.unpack_from("<H", response, offset + 1)
        yield response[offset], response[offset + 3 : offset + 3 + size]
        offset += 3 + size
