"""Test the client on the real service and against servers that fail in every way, without and with a loop."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from outcrop import client as api
from outcrop.client.async_client import AsyncClient
from outcrop.client.sync_client import Client
from outcrop.domain.account import Plan
from tests.support.backend import Backend
from tests.support.factories import make_line, make_scan

KEY = "outcrop_" + "k" * 49
UNKNOWN = "00000000-0000-4000-8000-000000000000"


class WithLoop:
    """The methods of AsyncClient, each in an event loop of its own."""

    def __init__(
        self, url: str, key: str, sleep: Callable[[float], None] | None = None, **options: Any
    ) -> None:
        async def wait(seconds: float) -> None:
            assert sleep is not None
            sleep(seconds)

        self.open = lambda: AsyncClient(url, key, **options, **({} if sleep is None else {"sleep": wait}))
        self.open()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def call(*args: Any, **options: Any) -> Any:
            async with self.open() as client:
                result = getattr(client, name)(*args, **options)
                if hasattr(result, "__aiter__"):
                    return [entry async for entry in result]
                return await result

        return lambda *args, **options: asyncio.run(call(*args, **options))


kinds = pytest.mark.parametrize("kind", [Client, WithLoop], ids=["without loop", "with loop"])


# --- the real service


@kinds
def test_every_call_of_both_versions(backend: Backend, kind: Any) -> None:
    tenant = backend.tenant()
    lines = [make_line(composite_score=float(n), file_path=f"{n}.py") for n in range(5)]
    backend.import_(tenant.account, *lines)
    backend.scan(tenant.account, run := make_scan())
    client = kind(backend.base_url, tenant.key)
    page = client.list_findings(
        per_page=2, order_by="composite_score", suppressed=False, updated_since="2026-01-01"
    )
    assert ([f["id"] for f in page.data], page.total, page.pages) == ([lines[4]["id"], lines[3]["id"]], 5, 3)
    assert page.updated_until is not None
    assert [f["id"] for f in client.iterate_findings(per_page=2)] == [line["id"] for line in reversed(lines)]
    first, second, third, fourth, fifth = (line["id"] for line in lines)
    assert client.get_finding(first) == tenant.finding(first)
    assert client.get_score(first)["composite_score"] == 0
    assert client.suppress(first) == {"id": first, "status": "active"}
    assert client.resolve(first, "rotated & gone")["status"] == "resolved"
    assert client.get_finding(first)["resolution_note"] == "rotated & gone"
    assert client.restrict(second)["status"] == "customer_restricted"
    assert client.mark_false_positive(third)["status"] == "false_positive"
    changed = client.change_findings("resolve", ids=[third, fourth, UNKNOWN], note="n")
    assert [entry["outcome"] for entry in changed.data] == ["refused", "changed", "not_found"]
    assert changed.counts["matched"] == 2
    filtered = client.change_findings(
        "restrict", filters={"status": "active", "min_score": 4}, expected_total=1
    )
    assert [entry["id"] for entry in filtered.data] == [fifth]
    assert [entry["id"] for entry in client.list_scans(type="github").data] == [str(run.id)]
    assert [entry["id"] for entry in client.iterate_scans()] == [str(run.id)]
    assert client.get_scan(str(run.id))["status"] == "completed"
    sent = client.send_report(b"[]", format="gitleaks", idempotency_key="one")
    assert client.get_import(sent["id"])["format"] == "gitleaks"
    assert [entry["id"] for entry in client.list_imports().data] == [sent["id"]]
    assert [entry["id"] for entry in client.iterate_imports()] == [sent["id"]]


@kinds
def test_each_refusal_is_an_error_of_its_own(backend: Backend, kind: Any) -> None:
    tenant = backend.tenant()
    backend.import_(tenant.account, line := make_line(status="false_positive"))
    client = kind(backend.base_url, tenant.key)
    with pytest.raises(api.NotFound) as missing:
        client.get_finding(UNKNOWN)
    assert (missing.value.status, missing.value.code) == (404, "not_found")
    assert missing.value.request_id is not None
    with pytest.raises(api.InvalidTransition, match="false_positive"):
        client.resolve(line["id"])
    with pytest.raises(api.InvalidRequest, match="status: ") as invalid:
        client.list_findings(status="open")
    assert invalid.value.detail[0]["loc"] == ["query", "status"]
    with pytest.raises(api.InvalidRequest) as conflict:
        client.change_findings("resolve", filters={}, expected_total=9)
    assert (conflict.value.status, conflict.value.code) == (409, "conflict")
    with pytest.raises(api.AuthError):
        kind(backend.base_url, KEY).list_scans()
    with pytest.raises(api.PlanError) as plan:
        kind(backend.base_url, backend.tenant(Plan.STARTER).key).list_scans()
    assert plan.value.minimum == "growth"


def test_importing_the_client_imports_nothing_of_the_service() -> None:
    heavy = ("fastapi", "pydantic", "psycopg", "aiohttp", "hyperscan", "outcrop.domain", "outcrop.settings")
    code = f"import sys, outcrop.client; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- servers that fail


@contextmanager
def server(*answers: bytes, pause: float | None = None, keep: bool = False) -> Iterator[str]:
    """Serve these answers on loopback, one per connection, the last one again and again; yield the address.

    With `pause`, the answer is sent byte by byte. With `keep`, the connection stays open afterwards.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve() -> None:
        number = 0
        while not ended.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            answer = answers[min(number, len(answers) - 1)]
            number += 1
            threading.Thread(target=reply, args=(connection, answer), daemon=True).start()

    def reply(connection: socket.socket, answer: bytes) -> None:
        with connection:
            try:
                connection.recv(65_536)
                for part in [answer] if pause is None else [bytes([byte]) for byte in answer]:
                    connection.sendall(part)
                    if pause is not None and ended.wait(pause):
                        return
                if keep:
                    ended.wait(30)
            except OSError:
                pass

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        listener.close()


def answer(body: bytes, status: str = "200 OK", length: int | None = None, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body


HTML = b"<html><title>Login</title></html>"
LIST = b'{"data": [], "meta": {"total": 0, "page": 1, "per_page": 25, "pages": 0}}'


@kinds
@pytest.mark.parametrize(
    ("sent", "error", "message"),
    [
        (answer(HTML), api.TransportError, "not one of Outcrop"),
        (answer(HTML, "404 Not Found"), api.TransportError, "not one of Outcrop"),
        (answer(HTML, "502 Bad Gateway"), api.ServerError, "502"),
        (
            answer(b'{"error": "busy", "message": "later"}', "503 Busy", None, "Retry-After: 7"),
            api.ServerError,
            "later",
        ),
        (
            answer(b"", "308 Moved", None, "Location: https://elsewhere.example"),
            api.TransportError,
            "redirects",
        ),
        (answer(LIST, "200 OK", len(LIST) + 9), api.TransportError, "early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{", api.TransportError, "early"),
        (b"", api.TransportError, "cannot be reached"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", api.TransportError, "not HTTP"),
        (answer(b"[1]"), api.TransportError, "not one of Outcrop"),
        (answer(b'{"data": [1], "meta": {}}'), api.TransportError, "not one of Outcrop"),
        (answer(LIST.replace(b"[]", b"[{}]")), api.TransportError, "not one of Outcrop"),
        (answer(b'{"error": "%s"}' % KEY.encode(), "500 Failed"), api.ServerError, "500"),
        (
            answer(b'{"error": "no", "message": "no %s"}' % KEY.encode(), "409 Conflict"),
            api.InvalidRequest,
            r"no \[API key\]",
        ),
        (answer(b"[" * 100_000), api.TransportError, "not one of Outcrop"),
        (
            answer(b'{"error": "rate_limited"}', "429 Too Many", None, "Retry-After: 500"),
            api.RateLimited,
            "too many",
        ),
    ],
)
def test_a_server_that_fails_is_one_clear_error(
    kind: Any, sent: bytes, error: type[api.OutcropApiError], message: str
) -> None:
    with server(sent) as url, pytest.raises(error, match=message) as caught:
        kind(url, KEY).list_findings()
    assert type(caught.value) is error
    assert KEY not in str(caught.value) + repr(caught.value)
    assert "\n" not in str(caught.value)


@kinds
@pytest.mark.parametrize("pause", [None, 0.1], ids=["silent", "byte by byte"])
def test_a_slow_server_is_given_up(kind: Any, pause: float | None) -> None:
    slow = server(answer(LIST) if pause else b"", pause=pause, keep=True)
    with slow as url, pytest.raises(api.TransportError, match=r"within 0\.5 seconds"):
        kind(url, KEY, timeout=0.5).list_findings()


@kinds
def test_a_server_that_is_down_is_named(kind: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(
        api.TransportError, match=f"http://127.0.0.1:{port} cannot be reached: connection refused"
    ):
        kind(f"http://127.0.0.1:{port}", KEY).list_findings()


@kinds
def test_a_rate_limit_is_waited_for(kind: Any) -> None:
    limited = answer(b'{"error": "rate_limited"}', "429 Too Many", None, "Retry-After: 50")
    waits: list[float] = []
    with server(limited, limited, answer(LIST)) as url:
        assert kind(url, KEY, sleep=waits.append).list_findings().total == 0
    assert waits == [50, 50]
    with server(limited) as url, pytest.raises(api.RateLimited) as caught:
        kind(url, KEY, sleep=waits.append).list_findings()
    assert (len(waits), caught.value.retry_after) == (4, 50)


@kinds
@pytest.mark.parametrize(
    "url",
    [
        "",
        "outcrop",
        "ftp://127.0.0.1",
        "http://outcrop.example.com",
        "https://u:p@outcrop.example.com",
        "http://[::1",
    ],
)
def test_a_bad_address_is_refused(kind: Any, url: str) -> None:
    with pytest.raises(api.TransportError):
        kind(url, KEY)


@kinds
@pytest.mark.parametrize("key", ["", " ", "a b", "a\r\nX: y", "ключ"])
def test_a_bad_key_is_refused_and_not_shown(kind: Any, key: str) -> None:
    with pytest.raises(api.AuthError) as caught:
        kind("http://127.0.0.1", key)
    assert str(caught.value) == "the API key is empty or has characters that no key has"
