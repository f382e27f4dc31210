"""What code hosts send to a push hook: payloads as their documents show them, and signatures."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from outcrop.domain.clock import now
from outcrop.domain.push import HookHost
from outcrop.services.hooks.manage import NewHook, create_hook
from tests.support.backend import Backend, Tenant

BEFORE, AFTER = "1" * 40, "2" * 40
ADDRESSES = {
    HookHost.GITHUB: "https://github.com/acme/shop",
    HookHost.GITLAB: "https://gitlab.example.com/acme/team/shop",
    HookHost.GITEA: "https://gitea.example.com/acme/shop",
    HookHost.BITBUCKET: "https://bitbucket.org/acme/shop",
    HookHost.AZUREDEVOPS: "https://dev.azure.com/acme/Team/_git/shop",
}


def payload(
    host: HookHost, address: str | None = None, *, branch: str = "main", author: str = "Ada", **fields: Any
) -> dict[str, Any]:
    """Return the payload of a push to a branch; `fields` replace its own."""
    url = address or ADDRESSES[host]
    name = "/".join(url.split("/")[3:])
    ref = f"refs/heads/{branch}"
    match host:
        case HookHost.GITLAB:
            body: dict[str, Any] = {
                "object_kind": "push",
                "before": BEFORE,
                "after": AFTER,
                "ref": ref,
                "user_name": author,
                "project_id": 15,
                "project": {
                    "id": 15,
                    "path_with_namespace": name,
                    "web_url": url,
                    "git_http_url": f"{url}.git",
                },
            }
        case HookHost.BITBUCKET:
            change = {"new": {"name": branch, "target": {"hash": AFTER}}, "old": {"target": {"hash": BEFORE}}}
            body = {
                "actor": {"display_name": author},
                "repository": {"uuid": "{17}", "full_name": name, "links": {"html": {"href": url}}},
                "push": {"changes": [change]},
            }
        case HookHost.AZUREDEVOPS:
            body = {
                "id": "5b2c",
                "eventType": "git.push",
                "resource": {
                    "refUpdates": [{"name": ref, "oldObjectId": BEFORE, "newObjectId": AFTER}],
                    "repository": {
                        "id": "278d",
                        "name": "shop",
                        "project": {"name": "Team"},
                        "remoteUrl": url.replace("https://", "https://acme@"),
                    },
                    "pushedBy": {"displayName": author},
                },
            }
        case _:
            body = {
                "ref": ref,
                "before": BEFORE,
                "after": AFTER,
                "repository": {"id": 11, "full_name": name, "html_url": url, "clone_url": f"{url}.git"},
                "pusher": {"name": author},
            }
    return body | fields


def event_headers(host: HookHost, delivery: str = "d-1") -> dict[str, str]:
    """Return the headers that name the event and the delivery."""
    return {
        HookHost.GITHUB: {"X-GitHub-Event": "push", "X-GitHub-Delivery": delivery},
        HookHost.GITLAB: {"X-Gitlab-Event": "Push Hook", "X-Gitlab-Event-UUID": delivery},
        HookHost.GITEA: {"X-Gitea-Event": "push", "X-Gitea-Delivery": delivery},
        HookHost.BITBUCKET: {"X-Event-Key": "repo:push", "X-Request-UUID": delivery},
        HookHost.AZUREDEVOPS: {},
    }[host]


def _hex(secret: str, body: bytes) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def _basic(secret: str, _: bytes) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'outcrop:{secret}'.encode()).decode()}"}


def sign_standard(secret: str, body: bytes, *, id_: str = "m-1", at: float | None = None) -> dict[str, str]:
    """Return the headers of Standard Webhooks."""
    moment = str(int(time.time() if at is None else at))
    signed = f"{id_}.{moment}.".encode() + body
    digest = hmac.new(base64.b64decode(secret), signed, hashlib.sha256).digest()
    return {
        "webhook-id": id_,
        "webhook-timestamp": moment,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


SIGNATURES: dict[HookHost, Callable[[str, bytes], dict[str, str]]] = {
    HookHost.GITHUB: lambda secret, body: {"X-Hub-Signature-256": f"sha256={_hex(secret, body)}"},
    HookHost.GITLAB: lambda secret, _: {"X-Gitlab-Token": secret},
    HookHost.GITEA: lambda secret, body: {"X-Gitea-Signature": _hex(secret, body)},
    HookHost.BITBUCKET: lambda secret, body: {"X-Hub-Signature": f"sha256={_hex(secret, body)}"},
    HookHost.AZUREDEVOPS: _basic,
}


@dataclass
class HookSender:
    """A code host that sends to one hook."""

    host: HookHost
    hook: NewHook
    client: httpx.Client
    sent: int = field(default=0)

    @property
    def path(self) -> str:
        return httpx.URL(self.hook.url).path

    def headers(self, body: bytes, delivery: str = "d-1", secret: str | None = None) -> dict[str, str]:
        """Return all headers of a delivery, signed with the hook's secret or another one."""
        signed = SIGNATURES[self.host](secret or self.hook.secret, body)
        return event_headers(self.host, delivery) | {"Content-Type": "application/json"} | signed

    def post(self, body: bytes, headers: dict[str, str]) -> httpx.Response:
        return self.client.post(self.path, content=body, headers=headers)

    def push(self, address: str | None = None, delivery: str | None = None, **fields: Any) -> httpx.Response:
        """Send a push with an id of its own."""
        self.sent += 1
        id_ = delivery or f"d-{self.sent}"
        if self.host is HookHost.AZUREDEVOPS:
            fields = {"id": id_} | fields
        body = json.dumps(payload(self.host, address, **fields)).encode()
        return self.post(body, self.headers(body, id_))


def open_sender(backend: Backend, tenant: Tenant, host: HookHost = HookHost.GITHUB) -> HookSender:
    """Create a hook of an account and return its sender."""
    hook = backend.run(
        lambda db: create_hook(
            db, backend.keys, tenant.account, host, base_url=backend.base_url, by="a test", now=now()
        )
    )
    return HookSender(host, hook, backend.client())


def stored_pushes(backend: Backend, tenant: Tenant) -> int:
    """Return the number of pushes of an account that wait for a run."""
    return int(backend.sql("SELECT count(*) FROM pushes WHERE account_id = %s", tenant.account.id)[0][0])
