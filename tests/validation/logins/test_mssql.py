"""Logins of SQL Server, against a server in Python that is written from the TDS specification."""

import contextlib
import ssl
import struct

import pytest

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.load import load_ruleset
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.validation.attempt import UncheckableError
from outcrop.validation.logins.mssql import read_mssql_login
from tests.support.checks import RULES, check_against, make_attempt
from tests.support.tls import make_certificate

PASSWORD = "S3cr3t!pw"


@pytest.fixture(scope="module")
def cert(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"), "db.example")


def packet(kind: int, body: bytes, *, last: bool = True) -> bytes:
    return struct.pack("!BBHHBB", kind, int(last), len(body) + 8, 0, 1, 0) + body


async def read_packet(reader) -> tuple[int, bytes]:
    kind, _, size = struct.unpack("!BBH4x", await reader.readexactly(8))
    return kind, await reader.readexactly(size - 8)


def token(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + struct.pack("<H", len(body)) + body


def error_token(number: int) -> bytes:
    text = "Login failed for user 'crm'.".encode("utf-16-le")
    return token(0xAA, struct.pack("<IBBH", number, 1, 14, len(text) // 2) + text + bytes(6))


WELCOME = token(0xE3, b"\1\0\0") + token(0xAB, bytes(20)) + token(0xAD, bytes(10)) + b"\xfd" + bytes(12)


def parse_login7(body: bytes) -> dict[str, str]:
    """Parse a Login7 message as the specification describes it."""
    assert struct.unpack_from("<II", body) == (len(body), 0x74000004)
    found = {}
    for at, name in enumerate(
        ("host", "user", "password", "app", "server", "extension", "library", "language", "database")
    ):
        offset, length = struct.unpack_from("<HH", body, 36 + 4 * at)
        raw = body[offset : offset + 2 * length]
        if name == "password":
            raw = bytes(((byte ^ 0xA5) << 4 & 0xF0) | (byte ^ 0xA5) >> 4 for byte in raw)
        found[name] = raw.decode("utf-16-le")
    return found


def fake_sqlserver(
    cert, *, encryption: int = 1, answer: bytes | None = None, split: bool = False, logins: list | None = None
):
    async def script(reader, writer):
        kind, body = await read_packet(reader)
        assert (kind, body[:1]) == (0x12, b"\0")
        writer.write(
            packet(4, struct.pack("!BHHBHHB", 0, 11, 6, 1, 17, 1, 0xFF) + bytes(6) + bytes([encryption]))
        )
        if encryption == 2:
            assert await reader.read(1) == b"", "nothing is sent unencrypted"
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*cert)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_side=True)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                if outgoing.pending:
                    writer.write(packet(0x12, outgoing.read()))
                kind, body = await read_packet(reader)
                assert kind == 0x12
                incoming.write(body)
        if outgoing.pending:
            writer.write(packet(0x12, outgoing.read()))
        data = b""
        while len(data) < 8 or len(data) < struct.unpack_from("!H", data, 2)[0]:
            with contextlib.suppress(ssl.SSLWantReadError):
                if not (decrypted := tls.read(65536)):
                    raise EOFError  # the client has ended TLS
                data += decrypted
                continue
            if not (encrypted := await reader.read(65536)):
                raise EOFError  # the client has gone; nothing would end this loop
            incoming.write(encrypted)
        assert data[:2] == b"\x10\1"
        login = parse_login7(data[8:])
        if logins is not None:
            logins.append(login)
        right = (login["user"], login["password"]) in {("crm", PASSWORD), ("sa", PASSWORD)}
        tokens = (
            answer if answer is not None else WELCOME if right else error_token(18456) + b"\xfd" + bytes(12)
        )
        for part in (
            [packet(4, tokens[:5], last=False), packet(4, tokens[5:])] if split else [packet(4, tokens)]
        ):
            tls.write(part)
        writer.write(outgoing.read())
        await reader.read(100)

    return script


@pytest.mark.parametrize(
    ("user", "password", "status", "confidence", "services"),
    [
        ("crm", PASSWORD, "valid", "high", ("sqlserver",)),
        ("sa", PASSWORD, "valid", "high", ("sqlserver", "sqlserver_admin")),
        ("crm", "wrong", "invalid", "medium", ()),
        ("crm", "Grüße!", "invalid", "medium", ()),
    ],
)
def test_each_login_has_its_verdict(cert, user, password, status, confidence, services):
    logins: list[dict[str, str]] = []
    verdict = check_against(
        fake_sqlserver(cert, logins=logins), "mssql", password, login=f"mssql://{user}", database="/crm"
    )
    assert (verdict.status, verdict.confidence, verdict.services) == (status, confidence, services), (
        verdict.reason
    )
    (login,) = logins
    assert (login["user"], login["password"], login["database"], login["extension"]) == (
        user,
        password,
        "crm",
        "",
    )


@pytest.mark.parametrize(
    ("codes", "status", "confidence"),
    [
        ([4060, 18456], "valid", "high"),
        ([18456, 4064], "valid", "high"),
        ([18488], "valid", "medium"),
        ([18487, 18456], "valid", "medium"),
        ([18470], "invalid", "medium"),
        ([18486], "invalid", "medium"),
        ([18452], "unvalidated", "low"),
        ([40615], "error", "low"),
        ([40613], "error", "low"),
    ],
)
def test_each_server_error_has_its_verdict(cert, codes, status, confidence):
    answer = b"".join(error_token(code) for code in codes) + b"\xfd" + bytes(12)
    verdict = check_against(fake_sqlserver(cert, answer=answer), "mssql", PASSWORD, login="mssql://crm")
    assert (verdict.status, verdict.confidence) == (status, confidence), verdict.reason
    assert PASSWORD not in verdict.reason


def test_a_response_in_two_packets_is_joined(cert):
    assert (
        check_against(fake_sqlserver(cert, split=True), "mssql", PASSWORD, login="mssql://crm").status
        == "valid"
    )


def test_a_password_is_never_sent_unencrypted(cert):
    verdict = check_against(fake_sqlserver(cert, encryption=2), "mssql", PASSWORD, login="mssql://crm")
    assert (verdict.status, "unencrypted" in verdict.reason) == ("unvalidated", True)


@pytest.mark.parametrize("answer", [b"", b"\xfd" + bytes(12), b"\xaa\xff\xff\0", token(0xAA, b"\1"), b"\xad"])
def test_a_broken_response_is_not_a_verdict(cert, answer):
    verdict = check_against(
        fake_sqlserver(cert, answer=answer), "mssql", PASSWORD, login="mssql://crm", seconds=1
    )
    assert verdict.status in {"error", "unreachable"}, verdict.reason


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return load_ruleset([RULES / "sqlserver.toml"], built_in=False)


def logins_in(rules: RuleSet, text: str) -> list[tuple[str, int, str, str, str] | str]:
    """Return the login of each password that the rules find in a text, or the reason why there is none."""
    logins: list[tuple[str, int, str, str, str] | str] = []
    for hit in find(rules, text.encode(), Confidence.LOW):
        values = {"secret": reveal(hit.secret)} | {
            f"part.{name}": reveal(part) for name, part in hit.companions.items()
        }
        try:
            login = read_mssql_login(make_attempt(values))
        except UncheckableError as reason:
            logins.append(str(reason))
        else:
            logins.append((login.host, login.port, login.user, login.password, login.database))
    return logins


ADO = (
    "Server=tcp:crm.database.windows.net,1433;Initial Catalog=crm;User ID=crm;"
    "Password=S3cr3t!pw;Encrypt=True;"
)


@pytest.mark.parametrize(
    ("text", "login"),
    [
        (f'"DefaultConnection": "{ADO}"', ("crm.database.windows.net", 1433, "crm", PASSWORD, "crm")),
        ("Data Source=10.0.0.5,99;User Id=sa;Password=S3cr3t!pw;", ("10.0.0.5", 99, "sa", PASSWORD, "")),
        (
            "connectionString='server=db;uid=crm;pwd=S3cr3t!pw;database=crm'",
            ("db", 1433, "crm", PASSWORD, "crm"),
        ),
        (
            "jdbc:sqlserver://sql.corp:1434;databaseName=crm;user=crm;password=S3cr3t!pw;encrypt=true",
            ("sql.corp", 1434, "crm", PASSWORD, "crm"),
        ),
        (
            "jdbc:jtds:sqlserver://sql.corp/crm;user=crm;password=S3cr3t!pw;",
            ("sql.corp", 1433, "crm", PASSWORD, "crm"),
        ),
        (
            "mssql+pyodbc://crm:S3cr3t!pw@sql.corp:99/crm?driver=ODBC",
            ("sql.corp", 99, "crm", PASSWORD, "crm"),
        ),
        (
            "Driver={ODBC Driver 17 for SQL Server};Server=sql.corp;UID=crm;PWD=S3cr3t!pw;",
            ("sql.corp", 1433, "crm", PASSWORD, ""),
        ),
        (
            "Password=S3cr3t!pw;User ID=crm;Initial Catalog=crm;Data Source=sql.corp",
            ("sql.corp", 1433, "crm", PASSWORD, "crm"),
        ),
        (
            "Server=sql.corp\\PROD,1500;User Id=a;Password=S3cr3t!pw;Database=x",
            ("sql.corp", 1500, "a", PASSWORD, "x"),
        ),
    ],
)
def test_only_the_login_is_read_from_a_connection_string(rules, text, login):
    assert logins_in(rules, text) == [login]


@pytest.mark.parametrize(
    "text",
    [
        "Server=sql.corp\\PROD;User Id=a;Password=S3cr3t!pw;Database=x",
        "Server=np:\\\\sql.corp\\pipe;User Id=a;Password=S3cr3t!pw;Database=x",
        (
            "Server=sql.corp;Authentication=Active Directory Password;"
            "User Id=a@corp;Password=S3cr3t!pw;Database=x"
        ),
        "Server=sql.corp;Database=x;Password=S3cr3t!pw;Encrypt=yes",
        "Server=(local);User Id=a;Password=S3cr3t!pw;Database=x",
        "Server=.;User Id=a;Password=S3cr3t!pw;Database=x",
    ],
)
def test_a_string_without_its_own_server_and_login_is_not_checked(rules, text):
    (reason,) = logins_in(rules, text)
    assert isinstance(reason, str)


def test_a_password_is_never_sent_to_the_server_of_another_string(rules):
    others = ["mssql://crm:Tr0ub4dor@url.corp/crm", "sqlcmd -S cmd.corp -U sa -P Str0ng!Enough -Q x"]
    for other in others:
        for text in (f"{ADO}\n{other}\n", f"{other}\n{ADO}\n"):
            for login in logins_in(rules, text):
                if not isinstance(login, str):
                    assert (login[0], login[3]) in {
                        ("crm.database.windows.net", PASSWORD),
                        ("url.corp", "Tr0ub4dor"),
                    }
    two = ADO + "\n" + ADO.replace("S3cr3t!pw", "0ther!pw").replace("crm.database", "two.database")
    assert [(login[0], login[3]) for login in logins_in(rules, two)] == [
        ("crm.database.windows.net", PASSWORD),
        ("two.database.windows.net", "0ther!pw"),
    ]
