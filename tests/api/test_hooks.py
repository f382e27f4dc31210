"""Test the route of push hooks: who may send, what is bounded, and what a delivery stores."""

import base64
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote_plus, urlsplit
from uuid import uuid4

import pytest
import structlog

from outcrop.api.hooks import HeldBodies
from outcrop.domain.errors import BusyError
from outcrop.domain.push import HookHost
from outcrop.limits import HOOK_BODY_BYTES
from outcrop.settings import Settings
from outcrop.store.keyring import Keyring
from tests.support.backend import Backend, Tenant, running_server
from tests.support.pushes import (
    SIGNATURES,
    HookSender,
    event_headers,
    open_sender,
    payload,
    sign_standard,
    stored_pushes,
)

HOSTS = list(HookHost)
HMAC_HOSTS = [HookHost.GITHUB, HookHost.GITEA, HookHost.BITBUCKET]


@pytest.fixture
def tenant(backend: Backend) -> Tenant:
    return backend.tenant()


def jobs_of(backend: Backend, tenant: Tenant) -> int:
    rows = backend.sql(
        "SELECT count(*) FROM procrastinate_jobs WHERE queue_name = 'pushes' AND (args ->> 'account_id')::int = %s",
        tenant.account.id,
    )
    return int(rows[0][0])


# --- authentication


@pytest.mark.parametrize("host", HOSTS)
def test_an_authentic_push_is_stored_encrypted_with_a_job(
    backend: Backend, tenant: Tenant, host: HookHost
) -> None:
    sender = open_sender(backend, tenant, host)
    answer = sender.push(branch="a-certain-branch")
    assert (answer.status_code, answer.json()) == (202, {"data": {"status": "accepted"}})
    ((box, repository),) = backend.sql(
        "SELECT box, repository FROM pushes WHERE account_id = %s", tenant.account.id
    )
    assert b"a-certain-branch" not in box
    assert jobs_of(backend, tenant) == 1
    assert len(repository) == 32


@pytest.mark.parametrize("host", HOSTS)
def test_what_is_not_authentic_is_refused(backend: Backend, tenant: Tenant, host: HookHost) -> None:
    sender, other = open_sender(backend, tenant, host), open_sender(backend, backend.tenant(), host)
    body = json.dumps(payload(host)).encode()
    right = sender.headers(body)
    (name, value), *_ = SIGNATURES[host](sender.hook.secret, body).items()
    unsigned = {key: text for key, text in right.items() if key != name}
    unknown = sender.path[:-43] + "A" * 43
    answers = [
        sender.post(body, unsigned),
        sender.post(body, right | {name: ""}),
        sender.post(body, right | {name: value[:-6] + "aaaaaa"}),
        sender.post(body, right | {name: value.upper()}) if host is HookHost.AZUREDEVOPS else None,
        sender.post(body, sender.headers(body, secret=other.hook.secret)),
        other.post(body, right),  # a signature of another account's hook
        sender.client.post(unknown, content=body, headers=right),
        sender.client.post(sender.path[:-1], content=body, headers=right),
        sender.client.post(f"/hooks/{host}/x%00y", content=body, headers=right),
    ]
    if host in HMAC_HOSTS:
        answers.append(sender.post(body + b" ", right))
    refused = [answer for answer in answers if answer is not None]
    assert {answer.status_code for answer in refused} == {401}
    assert len({answer.content for answer in refused}) == 1
    assert refused[0].json()["error"] == "unauthorized"
    assert stored_pushes(backend, tenant) == 0
    assert sender.post(body, right).status_code == 202


def test_a_token_belongs_to_one_host(backend: Backend, tenant: Tenant) -> None:
    sender = open_sender(backend, tenant, HookHost.GITHUB)
    body = json.dumps(payload(HookHost.GITEA)).encode()
    headers = event_headers(HookHost.GITEA) | SIGNATURES[HookHost.GITEA](sender.hook.secret, body)
    path = sender.path.replace("/github/", "/gitea/")
    assert sender.client.post(path, content=body, headers=headers).status_code == 401


def test_a_signature_of_gitlab_decides_before_the_token(backend: Backend, tenant: Tenant) -> None:
    sender = open_sender(backend, tenant, HookHost.GITLAB)
    body = json.dumps(payload(HookHost.GITLAB)).encode()
    secret = sender.hook.secret
    assert len(base64.b64decode(secret)) == 32  # as GitLab requires of a signing token
    good, token = sign_standard(secret, body), {"X-Gitlab-Token": secret}
    wrong = [
        sign_standard(base64.b64encode(b"x" * 32).decode(), body) | token,
        sign_standard(secret, body, at=time.time() - 400),
        sign_standard(secret, body, at=time.time() + 400),
        good | {"webhook-id": "another"},
        good | {"webhook-timestamp": "soon"},
        good | {"webhook-signature": "v1,"} | token,
        good | {"webhook-signature": good["webhook-signature"].replace("v1,", "v2,")},
        {"webhook-signature": good["webhook-signature"]} | token,
    ]
    assert {sender.post(body, headers).status_code for headers in wrong} == {401}
    several = good | {"webhook-signature": f"v1,{'A' * 43}= {good['webhook-signature']} v2,x"}
    for headers in (good, several, token):
        assert sender.post(body, headers | {"Idempotency-Key": str(len(headers))}).status_code == 202


def test_a_removed_hook_is_refused(backend: Backend, tenant: Tenant) -> None:
    sender = open_sender(backend, tenant)
    assert sender.push().status_code == 202
    backend.sql("DELETE FROM hooks WHERE account_id = %s", tenant.account.id)
    assert sender.push().status_code == 401
    assert stored_pushes(backend, tenant) == 0


def test_other_methods_hosts_and_paths(backend: Backend, tenant: Tenant) -> None:
    sender = open_sender(backend, tenant)
    answer = sender.client.get(sender.path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    for path in ("/hooks/sourceforge/x", "/hooks/github", "/hooks/github/a/b"):
        assert sender.client.post(path).status_code == 404
    body = json.dumps(payload(HookHost.GITHUB)).encode()
    with_slash = sender.client.post(f"{sender.path}/", content=body, headers=sender.headers(body))
    assert with_slash.status_code == 202


def test_the_log_does_not_hold_the_token(backend: Backend, tenant: Tenant) -> None:
    sender = open_sender(backend, tenant)
    with structlog.testing.capture_logs() as logs:
        sender.push()
    assert sender.path.rpartition("/")[2] not in repr(logs)
    assert "/hooks/github/********" in repr(logs)


# --- bodies


def test_a_form_of_github_is_read(backend: Backend, tenant: Tenant) -> None:
    sender = open_sender(backend, tenant)
    body = f"payload={quote_plus(json.dumps(payload(HookHost.GITHUB)))}".encode()
    headers = sender.headers(body) | {"Content-Type": "application/x-www-form-urlencoded"}
    assert sender.post(body, headers).status_code == 202
    assert stored_pushes(backend, tenant) == 1


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'"x"', b"[" * 100_000])
def test_an_authentic_body_that_is_no_object_is_a_bad_request(
    backend: Backend, tenant: Tenant, body: bytes
) -> None:
    sender = open_sender(backend, tenant)
    answer = sender.post(body, sender.headers(body))
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")


def test_a_push_without_repository_is_accepted_and_starts_nothing(backend: Backend, tenant: Tenant) -> None:
    sender = open_sender(backend, tenant)
    assert sender.push(repository={"id": 5}).status_code == 202
    assert sender.push(repository=None).status_code == 202
    assert stored_pushes(backend, tenant) == 0


def test_a_ping_is_answered(backend: Backend, tenant: Tenant) -> None:
    sender = open_sender(backend, tenant)
    body = b'{"zen": "Keep it logically awesome.", "hook_id": 1}'
    assert sender.post(body, sender.headers(body) | {"X-GitHub-Event": "ping"}).status_code == 202
    assert stored_pushes(backend, tenant) == 0


def test_a_body_of_more_than_25_mb_is_refused(backend: Backend, tenant: Tenant) -> None:
    sender = open_sender(backend, tenant)
    announced = sender.headers(b"") | {"Content-Length": str(HOOK_BODY_BYTES + 1)}
    assert send_raw(backend, sender, announced, [b"{}"]).startswith(b"HTTP/1.1 413")
    piece = b"x" * 500_000
    chunks = [b"%x\r\n%s\r\n" % (len(piece), piece)] * 51
    chunked = sender.headers(b"") | {"Transfer-Encoding": "chunked"}
    assert send_raw(backend, sender, chunked, chunks).startswith(b"HTTP/1.1 413")
    assert sender.push().status_code == 202


def test_a_large_push_is_accepted_and_one_of_too_many_values_starts_a_comparison(
    backend: Backend, tenant: Tenant
) -> None:
    sender = open_sender(backend, tenant)
    assert sender.push(commits=[{"message": "x" * 24_000_000}]).status_code == 202
    assert stored_pushes(backend, tenant) == 1
    assert sender.push(commits=[0] * 1_000_001).status_code == 202
    assert stored_pushes(backend, tenant) == 1
    marks = backend.sql(
        "SELECT compare_at <= clock_timestamp() FROM hook_windows WHERE hook_id = %s", sender.hook.id
    )
    assert marks == [(True,)]


def test_no_connection_is_held_while_a_body_arrives(backend: Backend, tenant: Tenant) -> None:
    """More senders than the pool has connections stop in the middle of a body."""
    sender = open_sender(backend, tenant)
    body = json.dumps(payload(HookHost.GITHUB)).encode()
    address = urlsplit(backend.base_url)
    open_sockets = []
    for _ in range(12):
        connection = socket.create_connection((address.hostname or "", address.port or 0), timeout=60)
        connection.sendall(head(sender, sender.headers(body) | {"Content-Length": str(len(body))}) + body[:9])
        open_sockets.append(connection)
    try:
        assert tenant.get("/findings").status_code == 200
        assert sender.push(delivery="another").status_code == 202
        open_sockets[0].sendall(body[9:])
        assert open_sockets[0].recv(4_000).startswith(b"HTTP/1.1 202")
    finally:
        for connection in open_sockets:
            connection.close()


def head(sender: HookSender, headers: dict[str, str]) -> bytes:
    lines = [f"POST {sender.path} HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def send_raw(backend: Backend, sender: HookSender, headers: dict[str, str], pieces: list[bytes]) -> bytes:
    """Send a request piece by piece until the server answers; return the beginning of the answer."""
    address = urlsplit(backend.base_url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=60) as connection:
        try:
            connection.sendall(head(sender, headers))
            for piece in pieces:
                connection.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass  # answered before the end
        return connection.recv(4_000)


# --- repeated deliveries


@pytest.mark.parametrize("host", HOSTS)
def test_a_repeated_id_is_accepted_and_starts_nothing(
    backend: Backend, tenant: Tenant, host: HookHost
) -> None:
    sender, other = open_sender(backend, tenant, host), open_sender(backend, tenant, host)
    for _ in range(3):
        assert sender.push(delivery="the same").status_code == 202
    assert stored_pushes(backend, tenant) == 1
    assert sender.push(delivery="next").status_code == 202
    assert other.push(delivery="the same").status_code == 202  # ids belong to one hook
    assert stored_pushes(backend, tenant) == 3
    assert jobs_of(backend, tenant) == 1


def test_twenty_clients_with_one_delivery_store_one_push(backend: Backend, tenant: Tenant) -> None:
    sender = open_sender(backend, tenant)
    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(lambda _: sender.push(delivery="the same").status_code, range(20)))
    assert answers == [202] * 20
    assert (stored_pushes(backend, tenant), jobs_of(backend, tenant)) == (1, 1)


def test_a_sender_that_stops_in_a_body_is_answered(settings: Settings, keys: Keyring) -> None:
    with (
        running_server(settings, upload_late_seconds=0.5) as server,
        Backend(settings, keys, server.base_url) as small,
    ):
        sender = open_sender(small, small.tenant())
        headers = sender.headers(b"") | {"Content-Length": "100"}
        assert send_raw(small, sender, headers, [b"{"]).startswith(b"HTTP/1.1 408")


def test_bodies_of_one_hook_have_a_share_of_the_memory() -> None:
    bodies, first, second = HeldBodies(per_hook=10, total=15), uuid4(), uuid4()
    with bodies.hold(first) as body, bodies.hold(second):
        bodies.add(first, 8)
        body.data += b"x" * 8
        with pytest.raises(BusyError):
            bodies.add(first, 3)
        bodies.add(second, 7)
        with pytest.raises(BusyError):
            bodies.add(second, 1)
    bodies.add(first, 8)  # given back
