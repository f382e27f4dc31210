"""The push hooks of GitHub and GitHub Enterprise Server, and of Gitea, whose payloads are the same."""

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
    check_hex_signature,
    commit_of,
    id_of,
    text_of,
)

# A change of a pull request from a fork pushes to no branch of the repository itself. One that is opened for
# a branch of the repository gets its status by this event: the push came before.
_OPENED = {"opened", "reopened"}
_CHANGED = _OPENED | {"synchronize", "synchronized"}


def _check(headers: Headers, secret: Secret, _now: float) -> BodyCheck | None:
    return check_hex_signature(headers.get("x-hub-signature-256"), secret, "sha256=")


def _delivery_id(headers: Headers, _: Payload) -> str | None:
    return headers.get("x-github-delivery")


def _read_pushes(headers: Headers, payload: Payload) -> list[ReportedPush]:
    return read_event(HookHost.GITHUB, headers.get("x-github-event"), payload)


def read_event(host: HookHost, event: str | None, payload: Payload) -> list[ReportedPush]:
    """Return the push of an event; none for an event that is no push."""
    if event == "push":
        branch = branch_name(text_of(payload, "ref"))
        return [_build(host, payload, branch, commit_of(payload, "before"), commit_of(payload, "after"))]
    if event == "pull_request" and payload.get("action") in _CHANGED:
        owner = id_of(payload, "pull_request", "head", "repo", "id")
        if owner != id_of(payload, "repository", "id") or payload["action"] in _OPENED:
            branch = text_of(payload, "pull_request", "head", "ref")
            return [_build(host, payload, branch, None, commit_of(payload, "pull_request", "head", "sha"))]
    return []


def _build(
    host: HookHost, payload: Payload, branch: str | None, before: str | None, after: str | None
) -> ReportedPush:
    """Return the push to the repository of a payload."""
    names = ("html_url", "clone_url")
    return build_push(
        host,
        repository_id=id_of(payload, "repository", "id"),
        full_name=text_of(payload, "repository", "full_name"),
        addresses=tuple(
            text_of(payload, "repository", name, limit=PUSH_ADDRESS_LENGTH + 1) for name in names
        ),
        branches=(branch,),
        author=text_of(payload, "pusher", "name")
        or text_of(payload, "pusher", "login")
        or text_of(payload, "sender", "login"),
        before=before,
        after=after,
    )


PROTOCOL = HookProtocol(_check, _delivery_id, _read_pushes)
