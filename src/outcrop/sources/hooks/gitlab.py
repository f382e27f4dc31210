"""The push hooks of GitLab: those of a project, of a group and of the whole instance."""

import base64
import binascii

from outcrop.domain.push import HookHost, ReportedPush
from outcrop.domain.secret import Secret, reveal
from outcrop.lazy_regex import regex
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

WINDOW = 300.0  # seconds that the time of a signature may differ from ours, as Standard Webhooks says
_PUSHES = {"push", "tag_push", "repository_update"}
_OPENED = {"open", "reopen"}
_MERGE_REQUEST_ACTIONS = _OPENED | {"update"}
_SECONDS = regex(r"[0-9]{1,12}")
_DIGEST_BYTES = 32


def _check(headers: Headers, secret: Secret, now: float) -> BodyCheck | None:
    """Return the check of the signature, if there is one; otherwise compare the shared token."""
    signature = headers.get("webhook-signature")
    if signature is None:
        given = headers.get("x-gitlab-token")
        return BodyCheck(None) if given is not None and is_secret(given, secret) else None
    id_, timestamp = headers.get("webhook-id"), headers.get("webhook-timestamp", "")
    if id_ is None or _SECONDS.fullmatch(timestamp) is None or abs(int(timestamp) - now) > WINDOW:
        return None
    digests = [_decode(part.removeprefix("v1,")) for part in signature.split() if part.startswith("v1,")]
    key = base64.b64decode(reveal(secret))
    known = tuple(digest for digest in digests if digest is not None)
    prefix = f"{id_}.{timestamp}.".encode("utf-8", "surrogatepass")
    return BodyCheck(key, known, prefix) if known else None


def _decode(text: str) -> bytes | None:
    """Return the digest of a signature; None if the text is no base64 of one."""
    try:
        digest = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return digest if len(digest) == _DIGEST_BYTES else None


def _delivery_id(headers: Headers, _: Payload) -> str | None:
    return headers.get("idempotency-key") or headers.get("x-gitlab-event-uuid")


def _read_pushes(_: Headers, payload: Payload) -> list[ReportedPush]:
    kind = payload.get("object_kind") or payload.get("event_name")
    if kind == "merge_request":
        return _read_merge_request(payload)
    if kind not in _PUSHES:
        return []
    changes = list_of(payload, "changes") if kind == "repository_update" else [payload]
    author = text_of(payload, "user_name") or text_of(payload, "user_username")
    branches = tuple(branch_name(text_of(change, "ref")) for change in changes)
    last = changes[-1] if changes else {}
    before, after = commit_of(last, "before"), commit_of(last, "after")
    return [_build(payload, branches, author, before, after)]


def _read_merge_request(payload: Payload) -> list[ReportedPush]:
    """Return the push to a merge request from a fork, which changes no branch of the project itself.

    Also one that is opened for a branch of the project, whose push came before.
    """
    request = "object_attributes"
    action = text_of(payload, request, "action")
    if action not in _MERGE_REQUEST_ACTIONS:
        return []
    source, target = (id_of(payload, request, f"{end}_project_id") for end in ("source", "target"))
    if source == target and action not in _OPENED:
        return []
    branch = text_of(payload, request, "source_branch")
    after = commit_of(payload, request, "last_commit", "id")
    return [_build(payload, (branch,), text_of(payload, "user", "name"), None, after)]


def _build(
    payload: Payload,
    branches: tuple[str | None, ...],
    author: str | None,
    before: str | None,
    after: str | None,
) -> ReportedPush:
    """Return the push to the project of a payload."""
    names = ("web_url", "git_http_url", "http_url")
    return build_push(
        HookHost.GITLAB,
        repository_id=id_of(payload, "project_id") or id_of(payload, "project", "id"),
        full_name=text_of(payload, "project", "path_with_namespace"),
        addresses=tuple(text_of(payload, "project", name, limit=PUSH_ADDRESS_LENGTH + 1) for name in names),
        branches=branches,
        author=author,
        before=before,
        after=after,
    )


PROTOCOL = HookProtocol(_check, _delivery_id, _read_pushes)
