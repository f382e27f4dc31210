"""MongoDB logins against a stand-in written from its documents."""

import base64
import hashlib
import hmac
import struct

import pytest

from outcrop.net.guard import Egress
from outcrop.validation.logins import bson
from tests.support.checks import check_against, load_check, run_check

PASSWORD = "S3cr3t!pw"


class Mongo:
    """A server with one user, which checks proofs from what it keeps: never the password itself."""

    def __init__(
        self, database: str = "admin", mechanism: str = "SCRAM-SHA-256", roles: tuple[str, ...] = ()
    ) -> None:
        self.database, self.mechanism, self.roles = database, mechanism, roles
        self.algorithm = "sha256" if mechanism == "SCRAM-SHA-256" else "sha1"
        plain = (
            PASSWORD
            if self.algorithm == "sha256"
            else hashlib.md5(f"app:mongo:{PASSWORD}".encode()).hexdigest()
        )
        salted = hashlib.pbkdf2_hmac(self.algorithm, plain.encode(), b"salt", 4096)
        self.stored = hashlib.new(self.algorithm, hmac.digest(salted, b"Client Key", self.algorithm)).digest()
        self.server_key = hmac.digest(salted, b"Server Key", self.algorithm)
        self.said: list[dict] = []
        self.first = self.challenge = b""

    def answer(self, asked: dict) -> dict:
        refused = {"ok": 0.0, "code": 18, "errmsg": "Authentication failed."}
        if "hello" in asked:
            known = asked["saslSupportedMechs"] == f"{self.database}.app"
            return {"ok": 1.0} | ({"saslSupportedMechs": [self.mechanism]} if known else {})
        if "saslStart" in asked:
            if (
                asked["$db"] != self.database
                or asked["mechanism"] != self.mechanism
                or not asked["payload"].startswith(b"n,,n=app,r=")
            ):
                return refused
            self.first = asked["payload"][3:]
            self.challenge = (
                b"r="
                + self.first.rpartition(b"r=")[2]
                + b"server,s="
                + base64.b64encode(b"salt")
                + b",i=4096"
            )
            return {"ok": 1.0, "conversationId": 1, "done": False, "payload": self.challenge}
        if "saslContinue" in asked:
            without, _, proof = asked["payload"].rpartition(b",p=")
            said = b",".join([self.first, self.challenge, without])
            shown = hmac.digest(self.stored, said, self.algorithm)
            key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), shown, strict=True))
            if hashlib.new(self.algorithm, key).digest() != self.stored:
                return refused
            final = b"v=" + base64.b64encode(hmac.digest(self.server_key, said, self.algorithm))
            return {"ok": 1.0, "conversationId": 1, "done": True, "payload": final}
        roles = [{"role": role, "db": "admin"} for role in self.roles]
        return {"ok": 1.0, "authInfo": {"authenticatedUserRoles": roles}}

    async def __call__(self, reader, writer) -> None:
        while True:
            size, number, _, kind = struct.unpack("<iiii", await reader.readexactly(16))
            body = await reader.readexactly(size - 16)
            assert (kind, body[:5]) == (2013, bytes(5))
            asked = bson.decode_document(body[5:])
            self.said.append(asked)
            told = document(self.answer(asked))
            writer.write(struct.pack("<iiii", len(told) + 21, 9, number, 2013) + bytes(5) + told)


def document(data: dict) -> bytes:
    """Write an answer as a server does: its numbers are doubles, and lists are documents whose names are numbers."""
    body = b""
    for name, value in data.items():
        key = name.encode() + b"\0"
        match value:
            case float():
                body += b"\x01" + key + struct.pack("<d", value)
            case bool():
                body += b"\x08" + key + bytes([value])
            case int():
                body += b"\x10" + key + struct.pack("<i", value)
            case str():
                body += b"\x02" + key + struct.pack("<i", len(value.encode()) + 1) + value.encode() + b"\0"
            case bytes():
                body += b"\x05" + key + struct.pack("<iB", len(value), 0) + value
            case list():
                body += b"\x04" + key + document({str(at): entry for at, entry in enumerate(value)})
            case _:
                body += b"\x03" + key + document(value)
    return struct.pack("<i", len(body) + 5) + body + b"\0"


@pytest.mark.parametrize(
    ("play", "database", "password", "status", "services"),
    [
        (Mongo(), "", PASSWORD, "valid", ("mongodb",)),
        (Mongo("crm"), "/crm", PASSWORD, "valid", ("mongodb",)),
        (Mongo(), "/crm?authSource=admin", PASSWORD, "valid", ("mongodb",)),
        (Mongo(mechanism="SCRAM-SHA-1"), "", PASSWORD, "valid", ("mongodb",)),
        (Mongo(mechanism="SCRAM-SHA-1"), "", "wrong-password-1", "invalid", ()),
        (
            Mongo(roles=("root",)),
            "",
            PASSWORD,
            "valid",
            ("mongodb", "mongodb_read", "mongodb_read_write", "mongodb_root"),
        ),
        (Mongo(roles=("readAnyDatabase", "x")), "", PASSWORD, "valid", ("mongodb", "mongodb_read")),
        (Mongo(), "/crm", "wrong-password-1", "invalid", ()),
        (Mongo(), "", "wrong-password-1", "invalid", ()),
    ],
)
def test_mongodb(play, database, password, status, services):
    verdict = check_against(play, "mongodb", password, login="mongodb://app", database=database)
    assert (verdict.status, verdict.services) == (status, services), verdict.reason
    assert not any(PASSWORD in str(said) for said in play.said)


def test_a_seed_list_and_several_hosts_are_not_followed():
    check = load_check("mongodb", "mongodb_uri")
    for login, server in (
        ("mongodb+srv://app", "cluster0.mongodb.example"),
        ("mongodb://app", "m1.example:27017,"),
    ):
        assert run_check(Egress(), check, PASSWORD, login=login, server=server).status == "unvalidated"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(5),
        b"\xff" * 40,
        bson.encode_document({"a": 1})[:-1],
        b"\x10\0\0\0\x02a\0\xff\xff\xff\x7fxxxx\0",
        b"\x08\0\0\0\x7e\x61\0\0",
    ],
)
def test_broken_documents_are_refused(data):
    with pytest.raises((ValueError, IndexError)):
        bson.decode_document(data)


def test_a_document_is_read_as_it_was_written():
    document = {"a": 1, "b": "ü", "c": b"\0\1", "d": {"e": True}}
    assert bson.decode_document(bson.encode_document(document)) == document
    deep: dict = {}
    for _ in range(100):
        deep = {"a": deep}
    with pytest.raises(ValueError):
        bson.decode_document(bson.encode_document(deep))
