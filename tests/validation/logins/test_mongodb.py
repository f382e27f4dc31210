"""Logins of MongoDB, against a server in Python that is written from its documentation; and BSON."""

import base64
import hashlib
import hmac
import struct

import pytest

from outcrop.net.guard import Egress
from outcrop.validation.logins import bson
from tests.support.checks import check_against, load_check, run_check

PASSWORD = "S3cr3t!pw"


class FakeMongo:
    """The script of a server with one user. It stores SCRAM keys, not the password."""

    def __init__(
        self, database: str = "admin", mechanism: str = "SCRAM-SHA-256", roles: tuple[str, ...] = ()
    ) -> None:
        self.database, self.mechanism, self.roles = database, mechanism, roles
        self.algorithm = "sha256" if mechanism == "SCRAM-SHA-256" else "sha1"
        password = (
            PASSWORD
            if self.algorithm == "sha256"
            else hashlib.md5(f"app:mongo:{PASSWORD}".encode()).hexdigest()
        )
        salted = hashlib.pbkdf2_hmac(self.algorithm, password.encode(), b"salt", 4096)
        self.stored = hashlib.new(self.algorithm, hmac.digest(salted, b"Client Key", self.algorithm)).digest()
        self.server_key = hmac.digest(salted, b"Server Key", self.algorithm)
        self.commands: list[dict] = []
        self.first = self.challenge = b""

    def reply_to(self, command: dict) -> dict:
        refused = {"ok": 0.0, "code": 18, "errmsg": "Authentication failed."}
        if "hello" in command:
            known = command["saslSupportedMechs"] == f"{self.database}.app"
            return {"ok": 1.0} | ({"saslSupportedMechs": [self.mechanism]} if known else {})
        if "saslStart" in command:
            if (
                command["$db"] != self.database
                or command["mechanism"] != self.mechanism
                or not command["payload"].startswith(b"n,,n=app,r=")
            ):
                return refused
            self.first = command["payload"][3:]
            self.challenge = (
                b"r="
                + self.first.rpartition(b"r=")[2]
                + b"server,s="
                + base64.b64encode(b"salt")
                + b",i=4096"
            )
            return {"ok": 1.0, "conversationId": 1, "done": False, "payload": self.challenge}
        if "saslContinue" in command:
            without_proof, _, proof = command["payload"].rpartition(b",p=")
            auth_message = b",".join([self.first, self.challenge, without_proof])
            signature = hmac.digest(self.stored, auth_message, self.algorithm)
            key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
            if hashlib.new(self.algorithm, key).digest() != self.stored:
                return refused
            final = b"v=" + base64.b64encode(hmac.digest(self.server_key, auth_message, self.algorithm))
            return {"ok": 1.0, "conversationId": 1, "done": True, "payload": final}
        roles = [{"role": role, "db": "admin"} for role in self.roles]
        return {"ok": 1.0, "authInfo": {"authenticatedUserRoles": roles}}

    async def __call__(self, reader, writer) -> None:
        while True:
            size, number, _, kind = struct.unpack("<iiii", await reader.readexactly(16))
            body = await reader.readexactly(size - 16)
            assert (kind, body[:5]) == (2013, bytes(5))
            command = bson.decode_document(body[5:])
            self.commands.append(command)
            reply = encode_reply(self.reply_to(command))
            writer.write(struct.pack("<iiii", len(reply) + 21, 9, number, 2013) + bytes(5) + reply)


def encode_reply(data: dict) -> bytes:
    """Encode a reply as a server does: numbers are doubles, and lists are documents with indexes as names."""
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
                body += b"\x04" + key + encode_reply({str(index): entry for index, entry in enumerate(value)})
            case _:
                body += b"\x03" + key + encode_reply(value)
    return struct.pack("<i", len(body) + 5) + body + b"\0"


@pytest.mark.parametrize(
    ("script", "database", "password", "status", "services"),
    [
        (FakeMongo(), "", PASSWORD, "valid", ("mongodb",)),
        (FakeMongo("crm"), "/crm", PASSWORD, "valid", ("mongodb",)),
        (FakeMongo(), "/crm?authSource=admin", PASSWORD, "valid", ("mongodb",)),
        (FakeMongo(mechanism="SCRAM-SHA-1"), "", PASSWORD, "valid", ("mongodb",)),
        (FakeMongo(mechanism="SCRAM-SHA-1"), "", "wrong-password-1", "invalid", ()),
        (
            FakeMongo(roles=("root",)),
            "",
            PASSWORD,
            "valid",
            ("mongodb", "mongodb_read", "mongodb_read_write", "mongodb_root"),
        ),
        (FakeMongo(roles=("readAnyDatabase", "x")), "", PASSWORD, "valid", ("mongodb", "mongodb_read")),
        (FakeMongo(), "/crm", "wrong-password-1", "invalid", ()),
        (FakeMongo(), "", "wrong-password-1", "invalid", ()),
    ],
)
def test_each_login_has_its_verdict_and_roles(script, database, password, status, services):
    verdict = check_against(script, "mongodb", password, login="mongodb://app", database=database)
    assert (verdict.status, verdict.services) == (status, services), verdict.reason
    assert not any(PASSWORD in str(command) for command in script.commands)


def test_dns_seed_lists_and_several_hosts_are_not_contacted():
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
def test_broken_bson_is_refused(data):
    with pytest.raises((ValueError, IndexError)):
        bson.decode_document(data)


def test_an_encoded_document_decodes_to_itself():
    document = {"a": 1, "b": "ü", "c": b"\0\1", "d": {"e": True}}
    assert bson.decode_document(bson.encode_document(document)) == document
    deep: dict = {}
    for _ in range(100):
        deep = {"a": deep}
    with pytest.raises(ValueError):
        bson.decode_document(bson.encode_document(deep))
