"""Test `POST /api/v2/imports`: what is accepted and refused, and that a refused report leaves nothing behind."""

import gzip
import json
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from outcrop.settings import Settings
from outcrop.store.keyring import Keyring
from tests.support.backend import Backend, Tenant, running_server
from tests.support.factories import make_line
from tests.support.imports import (
    IMPORTS,
    generated_token,
    gitleaks_report,
    merge_queued,
    read_import,
    send,
)


@pytest.fixture(scope="module")
def small(settings: Settings, keys: Keyring) -> Iterator[Backend]:
    """Return a server that takes reports of 1 MB, and gives up a client after half a second."""
    with (
        running_server(settings, import_max_bytes=1_000_000, upload_late_seconds=0.5) as server,
        Backend(settings, keys, server.base_url) as backend,
    ):
        yield backend


def left(backend: Backend, tenant: Tenant) -> tuple[int, int, int]:
    """Return how many imports, staged batches and findings an account has."""
    account = tenant.account.id
    ((counts),) = backend.sql(
        """SELECT (SELECT count(*) FROM imports WHERE account_id = %s),
                  (SELECT count(*) FROM import_batches WHERE account_id = %s),
                  (SELECT count(*) FROM findings WHERE account_id = %s)""",
        *(account, account, account),
    )
    return counts[0], counts[1], counts[2]


def wait_until_nothing_is_left(backend: Backend, tenant: Tenant) -> None:
    for _ in range(600):
        if left(backend, tenant) == (0, 0, 0):
            return
        time.sleep(0.1)
    raise AssertionError(f"left: {left(backend, tenant)}")


def events(backend: Backend, tenant: Tenant) -> list[str]:
    """Return the findings of the account's `finding.new` events."""
    rows = backend.sql(
        "SELECT finding_id FROM outbox WHERE account_id = %s AND event = 'finding.new'", tenant.account.id
    )
    return sorted(str(id_) for (id_,) in rows)


# --- accepted


def test_a_report_is_staged_encrypted_and_merged_by_a_job(backend: Backend) -> None:
    tenant = backend.tenant()
    place = {"repo": "https://git.example.com/acme/shop", "commit": "c0ffee1"}
    answer = send(tenant, gitleaks_report(1, 2), **place)
    assert answer.status_code == 202
    assert answer.json()["data"] == {"id": answer.json()["data"]["id"], "status": "queued"}
    queued = read_import(tenant, answer)
    assert (queued["status"], queued["format"], queued["records"]) == ("queued", "gitleaks", 2)
    assert (queued["repo"], queued["commit"]) == ("https://git.example.com/acme/shop", "c0ffee1")
    assert left(backend, tenant) == (1, 1, 0)
    staged = backend.sql("SELECT box FROM import_batches WHERE account_id = %s", tenant.account.id)[0][0]
    assert generated_token(1).encode() not in staged

    merge_queued(backend, tenant)
    merged = read_import(tenant, answer)
    assert (merged["status"], merged["error"]) == ("completed", None)
    assert merged["finished_at"] is not None
    assert [merged[f"findings_{name}"] for name in ("new", "updated", "unchanged")] == [2, 0, 0]
    assert left(backend, tenant) == (1, 0, 2)
    found = tenant.get("/findings").json()["data"]
    assert {finding["file_path"] for finding in found} == {"config/1.env", "config/2.env"}
    assert events(backend, tenant) == sorted(finding["id"] for finding in found)
    assert generated_token(1) not in tenant.get("/findings").text

    second = send(tenant, gitleaks_report(2, 3), events="false", **place)
    merge_queued(backend, tenant)
    counts = read_import(tenant, second)
    assert [counts[f"findings_{name}"] for name in ("new", "updated", "unchanged")] == [1, 0, 1]
    assert len(events(backend, tenant)) == 2


def test_a_report_of_many_batches_is_merged_whole(backend: Backend) -> None:
    tenant = backend.tenant()
    lines = [
        make_line(id=None, fingerprint=str(n), matched_text=None, secret=f"a-secret-value-{n:06}")
        | {"file_path": f"{n}.env"}
        for n in range(2_500)
    ]
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    compressed = gzip.compress(body[: len(body) // 2]) + gzip.compress(body[len(body) // 2 :])
    answer = send(tenant, compressed, {"Content-Encoding": "gzip"}, format="outcrop", events="false")
    assert answer.status_code == 202
    assert left(backend, tenant) == (1, 3, 0)
    merge_queued(backend, tenant)
    assert read_import(tenant, answer)["findings_new"] == 2_500
    assert tenant.get("/findings", q="2499.env").json()["meta"]["total"] == 1


def test_an_import_over_http_never_restores(backend: Backend) -> None:
    tenant, line = backend.tenant(), make_line()
    backend.import_(tenant.account, line)
    exported = line | {"status": "resolved", "resolution_note": "theirs", "composite_score": 1.0}
    answer = send(tenant, json.dumps(exported).encode(), format="outcrop")
    assert answer.status_code == 202
    merge_queued(backend, tenant)
    assert (tenant.finding(line["id"])["status"], tenant.finding(line["id"])["composite_score"]) == (
        "active",
        72.5,
    )


def test_a_report_without_findings_is_imported(backend: Backend) -> None:
    tenant = backend.tenant()
    for body, format_ in ((b"[]", "auto"), (b"", "outcrop")):
        answer = send(tenant, body, format=format_)
        assert answer.status_code == 202
        merge_queued(backend, tenant)
        assert (read_import(tenant, answer)["status"], read_import(tenant, answer)["records"]) == (
            "completed",
            0,
        )


# --- repeated requests


def test_a_repeated_request_gets_the_first_answer(backend: Backend) -> None:
    tenant, key = backend.tenant(), {"Idempotency-Key": "build-7/attempt:1"}
    first = send(tenant, gitleaks_report(1), key)
    merge_queued(backend, tenant)
    retried = send(tenant, gzip.compress(gitleaks_report(1)), key | {"Content-Encoding": "gzip"})
    assert (retried.status_code, retried.content) == (202, first.content)
    assert left(backend, tenant) == (1, 0, 1)
    for body, query in ((gitleaks_report(2), {}), (gitleaks_report(1), {"events": "false"}), (b"{", {})):
        other = send(tenant, body, key, **query)
        assert (other.status_code, other.json()["error"]) == (409, "idempotency_conflict")
    assert send(backend.tenant(), gitleaks_report(2), key).status_code == 202
    backend.sql(
        "UPDATE imports SET created_at = created_at - interval '7 days' WHERE account_id = %s",
        tenant.account.id,
    )
    assert send(tenant, gitleaks_report(2), key).status_code == 202


def test_a_refused_report_does_not_use_up_its_key(backend: Backend) -> None:
    tenant, key = backend.tenant(), {"Idempotency-Key": "k"}
    assert send(tenant, b"[{", key).status_code == 400
    assert send(tenant, gitleaks_report(1), key).status_code == 202


@pytest.mark.parametrize("key", [b"", b"a b", b"x" * 129, "ü".encode()])
def test_a_wrong_key_is_named(backend: Backend, key: bytes) -> None:
    tenant = backend.tenant()
    answer = tenant.client.post(IMPORTS, content=b"[]", headers=[(b"Idempotency-Key", key)])
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["header", "Idempotency-Key"]


# --- refused


TRUNCATED = gitleaks_report(1, 2)[:-9]
BAD_REPORTS = {
    "empty": (b"", "auto", 1),
    "ends early": (TRUNCATED, "auto", 2),
    "no findings": (b'{"a": 1}', "gitleaks", 1),
    "no finding": (b'{"matched_text": "********"}\n{}\n', "outcrop", 2),
    "not JSON": (b'{"matched_text": "********"}\nhello\n', "outcrop", 2),
    "another encoding": (gitleaks_report(1).decode().encode("utf-16"), "gitleaks", 1),
    "another version": (b'{"version": "1.0.0", "runs": [{"results": [{"ruleId": "x"}]}]}', "sarif", 1),
    "wrong types": (gitleaks_report(1, StartLine="three"), "gitleaks", 1),
    "a page": (b"<!doctype html><title>Sign in</title>", "auto", 1),
    "binary": (bytes(range(256)) * 40, "auto", 1),
}


@pytest.mark.parametrize("case", BAD_REPORTS)
def test_what_is_no_report_is_refused_with_its_record(backend: Backend, case: str) -> None:
    body, format_, record = BAD_REPORTS[case]
    tenant = backend.tenant()
    answer = send(tenant, body, format=format_)
    assert answer.status_code == 400
    assert answer.json().keys() == {"error", "message", "record"}
    assert (answer.json()["error"], answer.json()["record"]) == ("bad_report", record)
    assert generated_token(1) not in answer.text
    assert left(backend, tenant) == (0, 0, 0)


def test_a_bad_record_after_stored_batches_leaves_nothing(backend: Backend) -> None:
    tenant = backend.tenant()
    good = b'{"matched_text": "********", "fingerprint": "x"}\n'
    answer = send(tenant, good * 2_600 + b'{"matched_text": 7}\n', format="outcrop")
    assert (answer.status_code, answer.json()["record"]) == (400, 2_601)
    assert left(backend, tenant) == (0, 0, 0)


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (gzip.compress(gitleaks_report(1))[:-4], "gzip", 400),
        (gitleaks_report(1), "gzip", 400),
        (gzip.compress(gitleaks_report(1)) + b"more", "gzip", 400),
        (gitleaks_report(1), "br", 400),
        (gzip.compress(b" " * 50_000_000, compresslevel=1), "gzip", 413),  # 220 kB
    ],
    ids=["ends early", "not compressed", "followed by more", "another encoding", "a bomb"],
)
def test_a_wrong_compression_is_refused(small: Backend, body: bytes, encoding: str, status: int) -> None:
    tenant = small.tenant()
    answer = send(tenant, body, {"Content-Encoding": encoding})
    assert answer.status_code == status
    assert answer.json()["error"] == (
        "too_large" if status == 413 else "bad_report" if encoding == "gzip" else "bad_request"
    )
    assert left(small, tenant) == (0, 0, 0)


@pytest.mark.parametrize("announced", [True, False])
def test_a_report_above_the_limit_is_refused(small: Backend, *, announced: bool) -> None:
    tenant = small.tenant()
    line = b'{"matched_text": "********", "fingerprint": "x"' + b" " * 450 + b"}\n"
    body = line * 4_000  # 2 MB; batches of 1,000 records are stored before the limit is reached
    answer = send(tenant, body if announced else iter([body[:600_000], body[600_000:]]), format="outcrop")
    assert (answer.status_code, answer.json()["error"]) == (413, "too_large")
    assert left(small, tenant) == (0, 0, 0)
    assert send(tenant, line * 2_000, format="outcrop").status_code == 202


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ({"format": "xml"}, "format"),
        ({"commit": "main"}, "commit"),
        ({"events": "yes"}, "events"),
        ({"repo": ""}, "repo"),
        ({"repo": "hello"}, "repo"),
    ],
)
def test_a_wrong_parameter_is_named(backend: Backend, query: dict[str, str], name: str) -> None:
    answer = send(backend.tenant(), b"[]", **query)
    assert (answer.status_code, answer.json()["detail"][0]["loc"]) == (422, ["query", name])


# --- slow clients, and clients that go away


def begin(backend: Backend, tenant: Tenant, body: bytes, length: int) -> socket.socket:
    """Send a request with the beginning of its body; return the connection."""
    parts = urlsplit(backend.base_url)
    assert parts.hostname is not None
    connection = socket.create_connection((parts.hostname, parts.port or 80), timeout=60)
    head = (
        f"POST {IMPORTS}?format=outcrop HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tenant.key}\r\n"
        f"Content-Length: {length}\r\n\r\n"
    )
    connection.sendall(head.encode() + body)
    return connection


LINES = b'{"matched_text": "********", "fingerprint": "x"}\n' * 3_000


def test_a_client_that_stops_sending_is_answered_and_leaves_nothing(small: Backend) -> None:
    tenant = small.tenant()
    with begin(small, tenant, LINES, len(LINES) + 1) as connection:
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"] == "too_slow"
    assert left(small, tenant) == (0, 0, 0)


def test_a_client_that_sends_a_few_bytes_now_and_then_is_given_up(small: Backend) -> None:
    tenant = small.tenant()
    with begin(small, tenant, LINES, len(LINES) + 10_000) as connection:
        connection.settimeout(0.05)
        answer = b""
        for _ in range(600):
            try:
                connection.sendall(b" ")
                answer = connection.recv(65536)
                break
            except TimeoutError:
                continue
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert left(small, tenant) == (0, 0, 0)


def test_a_client_that_disconnects_leaves_nothing(backend: Backend) -> None:
    tenant = backend.tenant()
    connection = begin(backend, tenant, LINES, len(LINES) + 1)
    for _ in range(600):
        if left(backend, tenant)[1] > 0:  # a batch is staged
            break
        time.sleep(0.1)
    connection.close()
    wait_until_nothing_is_left(backend, tenant)


def test_waiting_uploads_hold_no_database_connection_and_no_share(backend: Backend) -> None:
    # The server's pool has 8 connections, and an account a share of 4 requests.
    tenant = backend.tenant()
    connections = [begin(backend, tenant, b" ", 10_000) for _ in range(20)]
    try:
        time.sleep(0.2)
        for _ in range(10):
            assert tenant.get("/findings").status_code == 200
    finally:
        for connection in connections:
            connection.close()
    wait_until_nothing_is_left(backend, tenant)


def test_the_checks_of_the_key_come_before_the_body(backend: Backend) -> None:
    tenant = backend.tenant()
    stranger = Tenant(tenant.account, "outcrop_nobody", "", backend.client())
    with begin(backend, stranger, b"", 1 << 30) as connection:
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_the_id_of_an_import_is_in_the_audit_trail(backend: Backend) -> None:
    tenant = backend.tenant()
    answer = send(tenant, gitleaks_report(uuid4()))
    merge_queued(backend, tenant)
    rows: list[Any] = backend.sql(
        "SELECT actor, target FROM audit WHERE account_id = %s AND action = 'findings.import'",
        tenant.account.id,
    )
    assert rows == [(tenant.account.email, answer.json()["data"]["id"])]
