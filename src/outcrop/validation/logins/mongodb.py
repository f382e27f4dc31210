"""MongoDB: SCRAM over its own protocol, then the one question of which roles the login has."""

import asyncio
import hashlib
import secrets
import struct
import unicodedata
from collections.abc import Mapping
from typing import Any

from outcrop.domain.finding import Confidence
from outcrop.net.http import HttpClient
from outcrop.scanner.rules.check_spec import CheckSpec
from outcrop.validation.attempt import texts
from outcrop.validation.http.check import Turn
from outcrop.validation.logins import bson
from outcrop.validation.logins.connection import SECONDS, Dialog, OddError, further, log_in, login_of
from outcrop.validation.logins.scram import Scram
from outcrop.validation.logins.uri import Login
from outcrop.validation.verdict import Verdict, error, invalid, valid, with_services

_PORTS = {"mongodb": 27017}
_OP_MSG = 2013
_REFUSED = 18  # AuthenticationFailed
_ROOT = {"root", "__system", "userAdminAnyDatabase", "dbAdminAnyDatabase", "clusterAdmin", "atlasAdmin"}
_WRITES = {"readWrite", "readWriteAnyDatabase", "dbOwner", "restore"}
_READS = {"read", "readAnyDatabase", "backup"}


async def mongodb(
    http: HttpClient, _check: CheckSpec, values: Mapping[str, str], turn: Turn, *, seconds: float = SECONDS
) -> Verdict:
    """Log in as the address says, ask for the roles, and hang up."""
    return await log_in(http, turn, lambda: login_of(values, _PORTS), _talk, seconds=seconds)


async def _talk(dialog: Dialog, login: Login) -> Verdict:
    """Try the database of the address, then `admin`, where most users are kept: the option that says so is not read."""
    for database in dict.fromkeys((login.database or "admin", "admin")):
        told = await _proven(dialog, login, database)
        if told.get("ok") == 1:
            accepted = valid("the server accepts the login", services=("mongodb",), asked=True)
            roles = await further(
                dialog, accepted, _asked(dialog, {"connectionStatus": 1, "$db": database}), {}
            )
            return with_services(accepted, {"mongodb", *_labels(roles)})
        code = told.get("code")
        if code != _REFUSED:
            return error(
                f"the server cannot take a login now (code {code if isinstance(code, int) else 'unknown'})"
            )
    return invalid(
        "the server refuses the login", Confidence.MEDIUM
    )  # or keeps the user in a database that the address does not name


async def _proven(dialog: Dialog, login: Login, database: str) -> dict[str, Any]:
    """Log in, and give the server's last answer."""
    hello = await _asked(
        dialog, {"hello": 1, "saslSupportedMechs": f"{database}.{login.user}", "$db": "admin"}
    )
    old = texts(hello.get("saslSupportedMechs")) == ["SCRAM-SHA-1"]
    if old:
        digest = hashlib.md5(
            f"{login.user}:mongo:{login.password}".encode(), usedforsecurity=False
        ).hexdigest()
        scram = Scram("sha1", login.user, digest.encode(), secrets.token_urlsafe(18))
    else:
        scram = Scram(
            "sha256",
            login.user,
            unicodedata.normalize("NFKC", login.password).encode(),
            secrets.token_urlsafe(18),
        )
    start = {"saslStart": 1, "mechanism": "SCRAM-SHA-1" if old else "SCRAM-SHA-256", "payload": scram.first()}
    told = await _asked(dialog, {**start, "options": {"skipEmptyExchange": True}, "$db": database})
    if told.get("ok") != 1:
        return told
    number = told.get("conversationId")
    if not isinstance(number, int):
        raise OddError
    proof = await asyncio.to_thread(scram.answer, _payload(told))
    told = await _asked(
        dialog, {"saslContinue": 1, "conversationId": number, "payload": proof, "$db": database}
    )
    if told.get("ok") != 1:
        return told
    scram.check(_payload(told))
    if told.get("done") is not True:
        told = await _asked(
            dialog, {"saslContinue": 1, "conversationId": number, "payload": b"", "$db": database}
        )
    return told


def _payload(told: dict[str, Any]) -> bytes:
    payload = told.get("payload")
    if not isinstance(payload, bytes):
        raise OddError
    return payload


async def _asked(dialog: Dialog, command: dict[str, Any]) -> dict[str, Any]:
    body = struct.pack("<IB", 0, 0) + bson.dump(command)
    await dialog.say(struct.pack("<iiii", len(body) + 16, 1, 0, _OP_MSG) + body)
    size, _, _, kind = struct.unpack("<iiii", await dialog.hear(16))
    body = await dialog.hear(size - 16)
    if kind != _OP_MSG or body[4] != 0:
        raise OddError
    (length,) = struct.unpack_from("<i", body, 5)
    return bson.load(body[5 : 5 + length])


def _labels(status: dict[str, Any]) -> set[str]:
    info = status.get("authInfo")
    given = info.get("authenticatedUserRoles") if isinstance(info, dict) else None
    roles = (
        set(texts([role.get("role") for role in given if isinstance(role, dict)]))
        if isinstance(given, list)
        else set()
    )
    kinds = (
        ("mongodb_root", _ROOT),
        ("mongodb_read_write", _WRITES | _ROOT),
        ("mongodb_read", _READS | _WRITES | _ROOT),
    )
    return {label for label, names in kinds if roles & names}
