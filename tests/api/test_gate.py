"""The middleware: request id, log, internal errors without detail, and a database that stops and returns."""

import json
import os
import re
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pytest
from structlog.testing import capture_logs

from outcrop.cli.api_server import ApiProtocol
from outcrop.settings import SecretText, Settings
from outcrop.store.embedded.server import embedded_postgres
from outcrop.store.keyring import Keyring
from tests.support.backend import IN_TIME, Backend, Tenant, running_server
from tests.support.factories import make_line
from tests.support.tls import make_certificate

UNKNOWN = "00000000-0000-4000-8000-000000000000"
DEADLINE = 60.0  # a busy machine is slow; the service itself answers after 4.5 seconds
RECOVERY = 60.0  # seconds after the database's return in which the service serves again, on a busy machine


# --- clients that do not read, and heads that do not end


def _head(tenant: Tenant, path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {tenant.key}\r\n\r\n".encode()


def test_who_does_not_read_an_answer_keeps_no_connection_from_the_others(
    settings: Settings, keys: Keyring
) -> None:
    with (
        running_server(settings, rate_limit=0, **IN_TIME) as server,
        Backend(settings, keys, server.base_url) as backend,
    ):
        idle, other = backend.tenant(), backend.tenant()
        backend.import_(
            idle.account,
            *(
                make_line(file_path="x" * 900, source_url=f"https://a.example/{'y' * 900}")
                for _ in range(200)
            ),
        )
        port = int(server.base_url.rpartition(":")[2])
        held = []
        for _ in range(10):  # more than the pool has connections
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            sock.connect(("127.0.0.1", port))
            sock.sendall(_head(idle, "/api/v1/findings?per_page=200") * 40)
            held.append(sock)
        time.sleep(2)
        for _ in range(3):
            assert other.get("/findings").status_code == 200
            assert backend.client().get("/readyz").status_code == 200
        for sock in held:
            sock.close()


def _answer(sock: socket.socket) -> bytes:
    """Read until the other side closes."""
    sock.settimeout(20)
    said = b""
    with suppress(ConnectionError):
        while more := sock.recv(65_536):
            said += more
    return said


@pytest.mark.parametrize(
    "header",
    [b"X: " + b"a" * 2_000_000, b"".join(b"X%d: y\r\n" % n for n in range(60_000))],
    ids=["long", "many"],
)
def test_a_head_that_is_too_long_is_refused(backend: Backend, header: bytes) -> None:
    with socket.create_connection(("127.0.0.1", int(backend.base_url.rpartition(":")[2]))) as sock:
        with suppress(ConnectionError):
            sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + header + b"\r\n\r\n")
        said = _answer(sock)
    assert said == b"" or (said.startswith(b"HTTP/1.1 400 ") and b'"error":"bad_request"' in said)


@pytest.mark.parametrize(
    ("sent", "answered"),
    [(b"", False), (b"GET /healthz HTTP/1.1\r\nHost: a\r\n", True)],
    ids=["nothing", "half"],
)
def test_a_head_that_does_not_end_is_not_waited_for(backend: Backend, sent: bytes, answered: bool) -> None:
    """A browser that opened a connection early would take an answer to nothing for that to its next request."""

    class ImpatientProtocol(ApiProtocol):
        max_head_seconds = 0.3

    with (
        running_server(backend.settings, protocol=ImpatientProtocol) as server,
        socket.create_connection(("127.0.0.1", int(server.base_url.rpartition(":")[2]))) as sock,
    ):
        sock.sendall(sent)
        answer = _answer(sock)
    assert (b'"error":"bad_request"' in answer) is answered
    assert answered or answer == b""


def test_heads_of_ordinary_length_and_long_bodies_are_taken(backend: Backend) -> None:
    tenant = backend.tenant()
    assert tenant.client.get("/api/v1/findings", headers={"X-Long": "a" * 40_000}).status_code == 200
    assert tenant.client.post(f"/api/v1/findings/{UNKNOWN}/resolve", content=b"z" * 500_000).status_code in {
        404,
        413,
        415,
        422,
    }
    with socket.create_connection(("127.0.0.1", int(backend.base_url.rpartition(":")[2]))) as sock:
        sock.sendall(
            _head(tenant, "/api/v1/findings") * 700
        )  # one after the other, longer together than one may be
        sock.settimeout(20)
        assert sock.recv(12) == b"HTTP/1.1 200"


# --- request ids


def test_every_answer_has_a_request_id_of_its_own(backend: Backend) -> None:
    tenant, anyone = backend.tenant(), backend.client()
    answers = [
        tenant.get("/findings"),
        tenant.get("/findings"),
        tenant.get("/findings", page=0),
        tenant.get(f"/findings/{UNKNOWN}"),
        tenant.client.put("/api/v1/findings"),
        tenant.client.head("/api/v1/findings"),
        tenant.get("/nowhere"),
        anyone.get("/api/v1/findings"),
        anyone.get("/nowhere"),
        anyone.get("/openapi.json"),
        anyone.get("/healthz"),
        anyone.get("/readyz"),
    ]
    ids = [answer.headers["X-Request-Id"] for answer in answers]
    assert all(str(UUID(id_)) == id_ for id_ in ids)
    assert len(set(ids)) == len(ids)


def test_a_clients_own_request_id_is_not_taken_over(backend: Backend) -> None:
    answer = backend.tenant().client.get("/api/v1/findings", headers={"X-Request-Id": "my own"})
    assert answer.headers.get_list("X-Request-Id") != ["my own"]
    assert UUID(answer.headers["X-Request-Id"])


# --- faults


def fails_with_500(answer: httpx.Response) -> str:
    """Return the request id of a 500 response that contains no other detail."""
    assert answer.status_code == 500
    assert answer.headers["Content-Type"] == "application/json"
    body = answer.json()
    assert body.keys() == {"error", "message", "request_id"}
    assert body["error"] == "internal_error"
    assert body["request_id"] == answer.headers["X-Request-Id"]
    return str(body["request_id"])


def is_busy(answer: httpx.Response) -> None:
    """Assert that a response says that the database is away, and when to try again."""
    assert (answer.status_code, answer.json()["error"]) == (503, "busy")
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.json().keys() == {"error", "message"}


def test_a_fault_is_reported_by_its_request_id_alone_and_logged_under_it(backend: Backend) -> None:
    # "500: server-side fault"
    tenant = backend.tenant()
    with capture_logs() as logs, backend.without_tables("findings"):
        answers = [tenant.get(f"/findings/{UNKNOWN}"), tenant.post(f"/findings/{UNKNOWN}/resolve")]
    for answer in answers:
        request_id = fails_with_500(answer)
        assert "relation" not in answer.text
        assert "UndefinedTable" not in answer.text
        (failed,) = [
            line for line in logs if line["event"] == "request_failed" and line["request_id"] == request_id
        ]
        assert (failed["log_level"], failed["error"]) == ("error", "UndefinedTable")
        (reported,) = [
            line for line in logs if line["event"] == "request" and line["request_id"] == request_id
        ]
        assert reported["status"] == 500
    assert tenant.get(f"/findings/{UNKNOWN}").status_code == 404


def test_a_request_that_takes_too_long_is_answered_when_to_try_again(
    settings: Settings, keys: Keyring
) -> None:
    with (
        running_server(settings, rate_limit=0, deadline=0.0) as server,
        Backend(settings, keys, server.base_url) as backend,
        capture_logs() as logs,
    ):
        answer = backend.tenant().get("/findings")
        page = backend.client().get("/sign-in", headers={"Accept": "text/html"})
    is_busy(answer)
    assert (page.status_code, "took too long" in page.text, page.headers["Retry-After"]) == (503, True, "2")
    late = {line["request_id"] for line in logs if line["event"] == "request_timed_out"}
    assert late >= {answer.headers["X-Request-Id"], page.headers["X-Request-Id"]}


def test_a_fault_leaves_no_transaction_behind(backend: Backend) -> None:
    tenant = backend.tenant()
    backend.import_(tenant.account, line := make_line())
    backend.sql(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'on purpose'; END $$"
    )
    backend.sql(
        "CREATE TRIGGER fail AFTER INSERT ON audit FOR EACH ROW "
        "WHEN (NEW.action = 'finding.resolve') EXECUTE FUNCTION fail()"
    )
    try:
        with capture_logs() as logs:
            for _ in range(10):
                fails_with_500(tenant.post(f"/findings/{line['id']}/resolve"))
    finally:
        backend.sql("DROP FUNCTION fail() CASCADE")
    errors = [line["error"] for line in logs if line["event"] == "request_failed"]
    assert errors == ["RaiseException"] * 10
    assert tenant.finding(line["id"])["status"] == "active"
    assert backend.sql("SELECT count(*) FROM outbox WHERE finding_id = %s", line["id"]) == [(0,)]
    assert tenant.post(f"/findings/{line['id']}/resolve").status_code == 200


@contextmanager
def server_of_its_own(settings: Settings, keys: Keyring) -> Iterator[Backend]:
    with (
        running_server(settings, rate_limit=0, **IN_TIME) as server,
        Backend(settings, keys, server.base_url) as backend,
    ):
        yield backend


def at_once(
    client: httpx.Client, count: int, path: str = "/api/v1/findings", method: str = "GET"
) -> list[tuple[httpx.Response, float]]:
    """Ask many times at once; give every answer with the seconds it took."""

    def ask(_: int) -> tuple[httpx.Response, float]:
        began = time.monotonic()
        answer = client.request(method, path)
        return answer, time.monotonic() - began

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(ask, range(count)))


def test_broken_connections_are_replaced(backend: Backend, keys: Keyring) -> None:
    connected = (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    others = backend.sql(connected)
    with server_of_its_own(backend.settings, keys) as own, capture_logs():
        tenant = own.tenant()
        at_once(tenant.client, 12)
        pids = [pid for (pid,) in set(own.sql(connected)) - set(others)]
        assert len(pids) > 1
        own.sql("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS pid", pids)
        for answer in [tenant.get("/findings") for _ in range(20)]:
            if answer.status_code != 200:
                is_busy(answer)
        assert [tenant.get("/findings").status_code for _ in range(20)] == [200] * 20


def test_who_waits_for_a_locked_row_is_answered_in_time_and_changes_nothing_later(
    settings: Settings, keys: Keyring
) -> None:
    assert settings.database_url is not None
    with server_of_its_own(settings, keys) as backend, capture_logs() as logs:
        tenant = backend.tenant()
        backend.import_(tenant.account, line := make_line())
        with psycopg.connect(settings.database_url) as db:
            db.execute("SELECT FROM findings WHERE id = %s FOR UPDATE", [line["id"]])
            # more than the server has connections for
            answers = at_once(tenant.client, 20, f"/api/v1/findings/{line['id']}/resolve", "POST")
        for answer, seconds in answers:
            assert seconds < DEADLINE
            assert (answer.status_code, answer.headers["Retry-After"], answer.json()["error"]) == (
                503,
                "1",
                "busy",
            )
        assert len({answer.headers["X-Request-Id"] for answer, _ in answers}) == 20
        time.sleep(0.5)  # the log is written after the answer
        # every request is logged once, with its status
        assert (
            sorted(
                entry["status"] for entry in logs if entry["event"] == "request" and entry["method"] == "POST"
            )
            == [503] * 20
        )
        assert tenant.finding(line["id"])["status"] == "active"
        assert [answer.status_code for answer, _ in at_once(tenant.client, 20)] == [200] * 20
        assert tenant.post(f"/findings/{line['id']}/resolve").status_code == 200


# --- the log


@dataclass(frozen=True)
class Running:
    base_url: str
    log: Path


@contextmanager
def served(
    settings: Settings, log: Path, *options: str, port: int = 0, **environment: str
) -> Iterator[Running]:
    """Run the real `outcrop serve`; its standard error goes to a file."""
    assert settings.database_url is not None
    assert settings.secret_key is not None
    own = {
        "OUTCROP_DATABASE_URL": settings.database_url,
        "OUTCROP_SECRET_KEY": settings.secret_key.get_secret_value(),
        "OUTCROP_DATA_DIR": str(settings.data_dir),
    }
    command = [sys.executable, "-m", "outcrop", "serve", "--port", str(port), "--no-worker", *options]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=file,
            env=os.environ | own | environment,
            cwd=log.parent,
        )
    try:
        until(60, lambda: "serving" in log.read_text() or process.poll() is not None)
        found = re.search(r"(https?)://127\.0\.0\.1:(\d+)", log.read_text())
        scheme, port = ("http", port) if found is None else (found[1], int(found[2]))
        assert port, log.read_text()
        until(60, lambda: listens(port))
        yield Running(f"{scheme}://127.0.0.1:{port}", log)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        process.kill()
        process.wait()


def until(seconds: float, condition: Callable[[], bool], every: float = 0.05) -> float:
    """Wait until something is so, and give how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "waited too long"
        time.sleep(every)
    return time.monotonic() - began


def listens(port: int) -> bool:
    """Whether a server answers there, even if only with a TLS request."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        readable, _, _ = select.select([sock], [], [], 1)
        return bool(readable)
    return False


@pytest.mark.parametrize("form", ["json", "text"])
def test_the_log_holds_neither_query_strings_nor_keys(backend: Backend, tmp_path: Path, form: str) -> None:
    tenant = backend.tenant()
    backend.import_(
        tenant.account, line := make_line(secret="the-raw-credential-0123456789", file_path=f"log-{form}")
    )
    marker = "hunter2-marker"
    wrong_key = tenant.key[:-8] + "Zz" + tenant.key[-6:]
    environment = {
        "OUTCROP_LOG_LEVEL": "debug",
        "OUTCROP_LOG_FORMAT": form,
        "OUTCROP_RATE_LIMIT_PER_MINUTE": "9",
    }
    with (
        served(backend.settings, tmp_path / "log", **environment) as running,
        httpx.Client(base_url=running.base_url, trust_env=False) as client,
    ):
        with_key = {"Authorization": f"Bearer {tenant.key}"}
        asked = [
            ("GET", f"/api/v1/findings?q={marker}", with_key),
            ("GET", f"/api/v1/findings?status={marker}", with_key),
            ("GET", f"/api/v1/findings?{marker}=1", with_key),
            ("GET", f"/api/v1/findings/{UNKNOWN}?{marker}", with_key),
            (
                "POST",
                f"/api/v1/findings/{line['id']}/resolve?note={marker}+the-raw-credential-0123456789",
                with_key,
            ),
            ("PUT", f"/api/v1/findings?{marker}", with_key),
            ("GET", f"/api/v1/nowhere?{marker}", with_key),
            ("GET", f"/api/v1/findings?{marker}", {"Authorization": f"Bearer {wrong_key}"}),
            ("GET", f"/api/v1/findings?{marker}", {"Authorization": f"Basic {marker}"}),
            (
                "GET",
                f"/api/v1/findings?{marker}",
                {"X-Request-Id": marker, "User-Agent": marker, "Referer": marker, "Cookie": marker},
            ),
            ("GET", f"/openapi.json?{marker}", {}),
            ("GET", f"/healthz?{marker}", {}),
        ]
        answers = [client.request(method, path, headers=headers) for method, path, headers in asked]
        answers += [client.get(f"/api/v1/findings?q={marker}", headers=with_key) for _ in range(3)]
        with socket.create_connection(("127.0.0.1", httpx.URL(running.base_url).port), timeout=60) as sock:
            sock.sendall(f"{marker} /?{marker}\r\n\r\n".encode())
            assert b"400 Bad Request" in sock.recv(4096)
    assert [answer.status_code for answer in answers] == [
        200,
        422,
        200,
        404,
        200,
        405,
        404,
        401,
        401,
        401,
        200,
        200,
        200,
        200,
        429,
    ]
    log = running.log.read_text()
    for secret in (
        marker,
        tenant.key,
        wrong_key,
        tenant.key[12:],
        "the-raw-credential",
        "a key for the tests only",
    ):
        assert secret not in log
    for answer in answers:
        assert log.count(answer.headers["X-Request-Id"]) == 1
    assert f"/api/v1/findings/{line['id']}/resolve" in log
    assert tenant.key_id in log
    assert "Traceback" not in log
    if form == "json":
        entries = {
            entry["request_id"]: entry
            for line in log.splitlines()
            if line.startswith("{") and "request_id" in (entry := json.loads(line))
        }
        reported = [entries[answer.headers["X-Request-Id"]] for answer in answers]
        assert [entry["status"] for entry in reported] == [answer.status_code for answer in answers]
        assert [entry["method"] for entry in reported[:12]] == [method for method, _, _ in asked]
        assert [entry["path"] for entry in reported[:12]] == [path.partition("?")[0] for _, path, _ in asked]


def test_a_path_cannot_forge_a_line_of_the_log(backend: Backend, tmp_path: Path) -> None:
    forged = "forged-line"
    with (
        served(backend.settings, tmp_path / "log", OUTCROP_LOG_FORMAT="text") as running,
        httpx.Client(trust_env=False) as client,
    ):
        for sign in ("%0A", "%0D", "%1B%5B2J", "%C2%85", "%E2%80%A8", "%00", "%08"):
            url = httpx.URL(running.base_url).copy_with(raw_path=f"/x{sign}{forged}".encode())
            assert client.get(url).status_code == 404
    log = running.log.read_bytes().decode()
    assert log.count(forged) == 7
    assert not any(line.startswith(forged) for line in re.split(r"[\n\r]", log))
    assert (
        sorted({char for char in log if not char.isprintable() and char != "\n"}) == []
    )  # nor speak to a terminal


# --- https by itself


def test_a_server_with_a_certificate_serves_https(backend: Backend, tmp_path: Path) -> None:
    tenant = backend.tenant()
    cert, key = make_certificate(tmp_path)
    with served(
        backend.settings, tmp_path / "log", "--tls-cert", str(cert), "--tls-key", str(key)
    ) as running:
        assert running.base_url.startswith("https://")
        context = ssl.create_default_context(cafile=str(cert))
        with httpx.Client(base_url=running.base_url, verify=context, trust_env=False) as client:
            answer = client.get("/api/v1/findings", headers={"Authorization": f"Bearer {tenant.key}"})
            refused = client.get("/api/v1/findings")
    assert (answer.status_code, refused.status_code) == (200, 401)
    assert "max-age=" in answer.headers["Strict-Transport-Security"]
    assert "max-age=" in refused.headers["Strict-Transport-Security"]


def test_only_a_trusted_proxy_may_say_that_a_request_came_over_https(
    backend: Backend, tmp_path: Path
) -> None:
    tenant = backend.tenant()
    codes = []
    for proxies in ("192.0.2.1", "127.0.0.1"):
        with socket.create_server(("127.0.0.1", 0)) as sock:
            port = sock.getsockname()[1]
        environment = {"OUTCROP_BASE_URL": "https://outcrop.example.com", "OUTCROP_TRUSTED_PROXIES": proxies}
        with (
            served(backend.settings, tmp_path / proxies, port=port, **environment) as running,
            httpx.Client(base_url=running.base_url, trust_env=False) as client,
        ):
            for scheme in ("https", "HTTPS", "Https", "http", "HTTP"):
                headers = {"Authorization": f"Bearer {tenant.key}", "X-Forwarded-Proto": scheme}
                codes.append(client.get("/api/v1/findings", headers=headers).status_code)
            codes.append(client.get("/healthz").status_code)
    assert codes == [308, 308, 308, 308, 308, 200, 200, 200, 200, 308, 308, 200]


# --- a database that goes away


def processes_in(folder: Path) -> list[int]:
    """PostgreSQL's processes all work in their data folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and (entry / "cwd").readlink().is_relative_to(folder):
                found.append(int(entry.name))
    return found


@dataclass(frozen=True)
class Away:
    """A service on a database of its own, which the tests may stop."""

    folder: Path
    backend: Backend
    tenant: Tenant

    @property
    def postmaster(self) -> int:
        return int((self.folder / "postgres/data/postmaster.pid").read_text().split()[0])

    def gone(self, pid: int) -> bool:
        return pid not in processes_in(self.folder)

    def restart(self) -> None:
        """Start the server again; processes that use it keep it running."""
        with embedded_postgres(self.folder):
            pass


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Away]:
    folder = tmp_path_factory.mktemp("away")
    with embedded_postgres(folder) as url:
        settings = Settings(
            database_url=url,
            data_dir=folder,
            secret_key=SecretText("a key for the tests only, no secret"),
        )
        with (
            running_server(settings, rate_limit=0, **IN_TIME) as server,
            Backend(settings, None, server.base_url) as backend,
        ):
            yield Away(folder, backend, backend.tenant())


@pytest.fixture
def there(away: Away) -> Iterator[Away]:
    """Yield a server whose database is running and whose connection pool is full."""
    until(RECOVERY, lambda: away.tenant.get("/findings").status_code == 200)
    until(RECOVERY, lambda: all(answer.status_code == 200 for answer, _ in at_once(away.tenant.client, 12)))
    with capture_logs():
        yield away
    for pid in processes_in(away.folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    away.restart()


def all_fail_in_time(away: Away) -> None:
    """Send more requests at once than there are connections, and assert that all fail in time.

    Some requests get a connection that was opened before. The others wait for one until they time out.
    """
    answers = at_once(away.tenant.client, 12)
    for answer, _ in answers:
        is_busy(answer)
    assert max(seconds for _, seconds in answers) < DEADLINE


def serves_again(away: Away) -> None:
    until(RECOVERY, lambda: away.tenant.get("/findings").status_code == 200)
    until(RECOVERY, lambda: all(answer.status_code == 200 for answer, _ in at_once(away.tenant.client, 12)))


def test_while_the_database_is_stopped_requests_fail_in_time_and_afterwards_not(there: Away) -> None:
    pid = there.postmaster
    os.kill(pid, signal.SIGINT)  # a fast stop, as an operator's restart does it
    until(60, lambda: there.gone(pid))
    all_fail_in_time(there)
    probes = [there.backend.client().get(path).status_code for path in ("/healthz", "/readyz")]
    assert probes == [200, 503]
    there.restart()
    serves_again(there)
    assert there.backend.client().get("/readyz").status_code == 200


def test_while_the_database_hangs_requests_fail_in_time_and_afterwards_not(there: Away) -> None:
    stopped = processes_in(there.folder)
    assert there.postmaster in stopped
    assert len(stopped) > 2
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        all_fail_in_time(there)
        began = time.monotonic()
        assert there.backend.client().get("/readyz").status_code == 503
        assert time.monotonic() - began < DEADLINE
        assert there.backend.client().get("/healthz").status_code == 200
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    serves_again(there)


def test_after_a_crash_of_the_database_requests_fail_in_time_and_afterwards_not(there: Away) -> None:
    pid = there.postmaster
    os.kill(pid, signal.SIGKILL)
    until(60, lambda: there.gone(pid))
    all_fail_in_time(there)
    there.restart()
    serves_again(there)


def test_a_restart_that_nobody_noticed_fails_nobody(there: Away) -> None:
    """Connections that died while nobody used them are found out before a request gets one."""
    pid = there.postmaster
    os.kill(pid, signal.SIGINT)
    until(60, lambda: there.gone(pid))
    there.restart()
    time.sleep(2)
    assert [there.tenant.get("/findings").status_code for _ in range(12)] == [200] * 12


def test_no_change_is_half_done_when_the_database_crashes_under_it(there: Away) -> None:
    lines = [make_line() for _ in range(40)]
    there.backend.run(lambda db: insert(db, there.tenant.account.id, [line["id"] for line in lines]))
    answers: list[tuple[str, int]] = []

    def resolve() -> None:
        for line in lines:
            answers.append((line["id"], there.tenant.post(f"/findings/{line['id']}/resolve").status_code))

    thread = threading.Thread(target=resolve)
    thread.start()
    until(60, lambda: len(answers) >= 5, every=0.001)
    for pid in processes_in(there.folder):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    there.restart()
    thread.join(60)
    assert not thread.is_alive()
    serves_again(there)
    for id_, code in answers:
        rows = there.backend.sql(
            """SELECT (SELECT status FROM findings WHERE id = %s), \
(SELECT count(*) FROM outbox WHERE finding_id = %s),
                      (SELECT count(*) FROM audit WHERE target = %s)""",
            *(id_, id_, id_),
        )
        assert rows in ([("resolved", 1, 1)], [("active", 0, 0)])
        if code == 200:
            assert rows == [("resolved", 1, 1)]


async def insert(db: Any, account_id: int, ids: list[str]) -> None:
    """Write findings without credentials: the keys of this database are unknown here."""
    for id_ in ids:
        await db.execute(
            """INSERT INTO findings (account_id, id, status, validation_status, validation_confidence, \
validation_detail, composite_score,
                                     source_type, source_visibility, matched_text, pattern_name, \
pattern_secret_type, first_seen_at,
                                     last_seen_at, seen_count)
               VALUES (%s, %s, 'active', 'valid', 'high', '{"enabled_services": []}', 1,
                       'repo', 'public', '********', 'n', 't', now(), now(), 1)""",
            [account_id, id_],
        )
