"""The service hooks of Azure DevOps Services and Azure DevOps Server."""

import base64
import binascii

from outcrop.domain.push import HookHost, ReportedPush
from outcrop.domain.secret import Secret
from outcrop.limits import PUSH_ADDRESS_LENGTH
from outcrop.sources.hooks.delivery import (
    BodyCheck,
    Headers,
    HookProtocol,
    Payload,
    branch_name,
    build_push,
    commit_of,
    id_of,
    is_secret,
    list_of,
    text_of,
)


def _check(headers: Headers, secret: Secret, _now: float) -> BodyCheck | None:
    """Compare the password of basic authentication; the user name does not matter."""
    scheme, _, encoded = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        login = base64.b64decode(encoded.strip(" "), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    return BodyCheck(None) if is_secret(login.partition(":")[2], secret) else None


def _delivery_id(_: Headers, payload: Payload) -> str | None:
    return id_of(payload, "id")


def _read_pushes(_: Headers, payload: Payload) -> list[ReportedPush]:
    if payload.get("eventType") != "git.push":
        return []
    updates = list_of(payload, "resource", "refUpdates")
    last = updates[-1] if updates else {}
    project = text_of(payload, "resource", "repository", "project", "name")
    name = text_of(payload, "resource", "repository", "name")
    address = text_of(payload, "resource", "repository", "remoteUrl", limit=PUSH_ADDRESS_LENGTH + 1)
    return [
        build_push(
            HookHost.AZUREDEVOPS,
            repository_id=id_of(payload, "resource", "repository", "id"),
            full_name=f"{project}/{name}" if project and name else None,
            addresses=(address,),
            branches=tuple(branch_name(text_of(update, "name")) for update in updates),
            author=text_of(payload, "resource", "pushedBy", "displayName")
            or text_of(payload, "resource", "pushedBy", "uniqueName"),
            before=commit_of(last, "oldObjectId"),
            after=commit_of(last, "newObjectId"),
        )
    ]


PROTOCOL = HookProtocol(_check, _delivery_id, _read_pushes)
