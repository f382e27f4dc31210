"""The push hooks of Gitea and Forgejo. Their payloads have the form of GitHub's."""

from outcrop.domain.push import HookHost, ReportedPush
from outcrop.domain.secret import Secret
from outcrop.sources.hooks.delivery import BodyCheck, Headers, HookProtocol, Payload, check_hex_signature
from outcrop.sources.hooks.github import read_event


def _check(headers: Headers, secret: Secret, _now: float) -> BodyCheck | None:
    return check_hex_signature(headers.get("x-gitea-signature"), secret)


def _delivery_id(headers: Headers, _: Payload) -> str | None:
    return headers.get("x-gitea-delivery")


def _read_pushes(headers: Headers, payload: Payload) -> list[ReportedPush]:
    event = headers.get("x-gitea-event")
    return read_event(HookHost.GITEA, "pull_request" if event == "pull_request_sync" else event, payload)


PROTOCOL = HookProtocol(_check, _delivery_id, _read_pushes)
