"""Check logins of MongoDB.

1. `hello` returns the SCRAM mechanisms that the user has (`_authenticate`).
2. `saslStart` and `saslContinue` carry the SCRAM messages.
3. After a login, `connectionStatus` returns the user's roles (`_role_labels`).

Every command is a BSON document in an OP_MSG message.
"""

import asyncio
import hashlib
import secrets
import struct
import unicodedata
from typing import Any

from outcrop.domain.finding import Confidence
from outcrop.limits import LOGIN_SECONDS
from outcrop.validation.attempt import Attempt
from outcrop.validation.http.response import strings_of
from outcrop.validation.logins import bson
from outcrop.validation.logins.connection import (
    LoginConnection,
    ProtocolError,
    check_login,
    query_after_login,
    read_uri_login,
)
from outcrop.validation.logins.scram import ScramClient
from outcrop.validation.logins.uri import ServerLogin
from outcrop.validation.verdict import Verdict, error, invalid, valid, with_services

_PORTS = {"mongodb": 27017}
_OP_MSG = 2013
_HEADER_SIZE = 16
_BODY_SECTION = 0
_AUTHENTICATION_FAILED = 18
_ROOT_ROLES = {"root", "__system", "userAdminAnyDatabase", "dbAdminAnyDatabase", "clusterAdmin", "atlasAdmin"}
_WRITE_ROLES = {"readWrite", "readWriteAnyDatabase", "dbOwner", "restore"}
_READ_ROLES = {"read", "readAnyDatabase", "backup"}
_LABEL_ROLES = {
    "mongodb_root": _ROOT_ROLES,
    "mongodb_read_write": _WRITE_ROLES | _ROOT_ROLES,
    "mongodb_read": _READ_ROLES | _WRITE_ROLES | _ROOT_ROLES,
}


async def check_mongodb_login(attempt: Attempt, *, seconds: float = LOGIN_SECONDS) -> Verdict:
    """Log in to the MongoDB server of the URI and return the verdict, with the user's roles as services.

    `seconds` is the time limit of the login.
    """
    return await check_login(attempt, lambda: read_uri_login(attempt, _PORTS), _log_in, seconds=seconds)


async def _log_in(connection: LoginConnection, login: ServerLogin) -> Verdict:
    """Log in to MongoDB with the database of the URI, then with `admin`; return the verdict.

    The option `authSource`, which names the right one, is not read. Most users are in `admin`. The verdict is
    `valid` with labels for the user's roles, `invalid` if both refuse the password, and `error` for another
    failure. TLS is used if the URI requires it.
    """
    if login.requires_tls:
        await connection.start_tls()
    for database in dict.fromkeys((login.database or "admin", "admin")):
        reply = await _authenticate(connection, login, database)
        if reply.get("ok") == 1:
            accepted = valid("the server accepts the login", ["mongodb"])
            status_query = _run_command(connection, {"connectionStatus": 1, "$db": database})
            status = await query_after_login(connection, accepted, status_query, {})
            return with_services(accepted, {"mongodb", *_role_labels(status)})
        code = reply.get("code")
        if code != _AUTHENTICATION_FAILED:
            code_text = code if isinstance(code, int) else "unknown"
            return error(f"the server does not accept logins now (code {code_text})")
    # The user may be in a database that the URI does not name.
    return invalid("the server refuses the login", Confidence.MEDIUM)


async def _authenticate(connection: LoginConnection, login: ServerLogin, database: str) -> dict[str, Any]:
    """Run SCRAM and return MongoDB's last reply, whose `ok` is 1 if the password is right.

    `database` is the one that the user is looked up in. SHA-1 is used only if the user has no other
    mechanism. Raise ProtocolError or ScramError if the server breaks the protocol.
    """
    hello = await _run_command(
        connection, {"hello": 1, "saslSupportedMechs": f"{database}.{login.user}", "$db": "admin"}
    )
    sha1_only = strings_of(hello.get("saslSupportedMechs")) == ["SCRAM-SHA-1"]
    scram = _scram_client(login, use_sha1=sha1_only)
    reply = await _run_command(
        connection,
        {
            "saslStart": 1,
            "mechanism": "SCRAM-SHA-1" if sha1_only else "SCRAM-SHA-256",
            "payload": scram.client_first_message(),
            "options": {"skipEmptyExchange": True},
            "$db": database,
        },
    )
    if reply.get("ok") != 1:
        return reply
    conversation = reply.get("conversationId")
    if not isinstance(conversation, int):
        raise ProtocolError
    next_step = {"saslContinue": 1, "conversationId": conversation}
    client_final = await asyncio.to_thread(scram.client_final_message, _payload_of(reply))
    reply = await _run_command(connection, {**next_step, "payload": client_final, "$db": database})
    if reply.get("ok") != 1:
        return reply
    scram.verify_server_final(_payload_of(reply))
    if reply.get("done") is not True:
        reply = await _run_command(connection, {**next_step, "payload": b"", "$db": database})
    return reply


def _scram_client(login: ServerLogin, *, use_sha1: bool) -> ScramClient:
    """Return a SCRAM client for the login, with a new nonce, for SHA-256 or, if `use_sha1`, for SHA-1.

    For SHA-1, MongoDB uses an MD5 digest of user and password as the password.
    """
    nonce = secrets.token_urlsafe(18)
    if use_sha1:
        text = f"{login.user}:mongo:{login.password}"
        digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
        return ScramClient("sha1", login.user, digest.encode(), nonce)
    password = unicodedata.normalize("NFKC", login.password).encode()
    return ScramClient("sha256", login.user, password, nonce)


def _payload_of(reply: dict[str, Any]) -> bytes:
    """Return the SCRAM message in a reply of MongoDB; raise ProtocolError if there is none."""
    payload = reply.get("payload")
    if not isinstance(payload, bytes):
        raise ProtocolError
    return payload


async def _run_command(connection: LoginConnection, command: dict[str, Any]) -> dict[str, Any]:
    """Send a MongoDB command in an OP_MSG message and return the document of the reply.

    Raise ProtocolError if the reply is not an OP_MSG message; raise what `decode_document` raises if its
    document is malformed.
    """
    request = struct.pack("<IB", 0, _BODY_SECTION) + bson.encode_document(command)
    await connection.send(struct.pack("<iiii", len(request) + _HEADER_SIZE, 1, 0, _OP_MSG) + request)
    size, _, _, opcode = struct.unpack("<iiii", await connection.receive(_HEADER_SIZE))
    reply = await connection.receive(size - _HEADER_SIZE)
    if opcode != _OP_MSG or reply[4] != _BODY_SECTION:
        raise ProtocolError
    (length,) = struct.unpack_from("<i", reply, 5)
    return bson.decode_document(reply[5 : 5 + length])


def _role_labels(status: dict[str, Any]) -> set[str]:
    """Return the service labels for the user's roles in a reply to `connectionStatus`.

    The result is empty if the reply has no known role.
    """
    auth_info = status.get("authInfo")
    entries = auth_info.get("authenticatedUserRoles") if isinstance(auth_info, dict) else None
    if not isinstance(entries, list):
        return set()
    roles = set(strings_of([entry.get("role") for entry in entries if isinstance(entry, dict)]))
    return {label for label, names in _LABEL_ROLES.items() if roles & names}
