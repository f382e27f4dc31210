"""Test `outcrop serve` with an embedded database and several processes, and every way to stop it."""

import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from outcrop.webhooks import verify
from tests.support.deliveries import HOST, receiver
from tests.support.factories import make_line
from tests.support.fake_https import FakeServer

COMMAND = str(Path(sys.executable).with_name("outcrop"))


def outcrop(folder: Path, *arguments: str, stdin: str = "") -> Any:
    done = subprocess.run(
        [COMMAND, *arguments, "--json"],
        env=_environment(folder),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _environment(folder: Path, **more: str) -> dict[str, str]:
    return os.environ | {"OUTCROP_DATA_DIR": str(folder), "OUTCROP_LOG_FORMAT": "json"} | more


@contextmanager
def serving(folder: Path, *arguments: str, **more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the service on a free port; give the process and its base address."""
    log = folder.parent / "serve.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [COMMAND, "serve", "--port", "0", *arguments],
            env=_environment(folder, **more),
            stderr=file,
            text=True,
        )
    try:
        yield (
            process,
            wait_for(lambda: re.search(r'"base_url": "([^"]+)"', log.read_text()), "the service to start")[1],
        )
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(120)


def wait_for(look: Any, what: str, seconds: float = 120) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.2)
    raise AssertionError(f"waited {seconds} s for {what}")


def ready(base_url: str, **options: Any) -> bool:
    options = {"verify": False} | options  # otherwise each request reads all certificates of the machine
    try:
        return httpx.get(f"{base_url}/readyz", timeout=3, trust_env=False, **options).status_code == 200
    except httpx.TransportError:
        return False


def processes_of(folder: Path) -> list[int]:
    """Return the ids of all processes that use the data folder.

    Our processes have it in their environment, those of PostgreSQL in their command line.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if str(folder).encode() in text and state != "Z":
                found.append(int(entry.name))
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    folder = private / "data"
    yield folder
    for pid in processes_of(folder):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data folder whose database has the schema."""
    private = tmp_path_factory.mktemp("template")
    private.chmod(0o700)
    outcrop(private / "data", "migrate")
    return private / "data"


@pytest.fixture
def used(folder: Path, template: Path) -> Path:
    """Return a data folder that has been used before: to create the database takes a second each time."""
    shutil.copytree(template, folder, symlinks=True)
    return folder


@pytest.fixture
def hooks(tmp_path: Path) -> Iterator[FakeServer]:
    with receiver(tmp_path) as made:
        yield made


def test_a_customers_first_day(folder: Path, hooks: FakeServer) -> None:
    outcrop(folder, "account", "create", "acme", "--plan", "growth", "--email", "sec@acme.example")
    webhook = outcrop(folder, "webhook", "set", "--account", "acme", f"https://{HOST}/in")
    line = make_line()
    assert outcrop(folder, "import", "--account", "acme", "-", stdin=json.dumps(line))["new"] == 1
    egress = {
        "OUTCROP_EGRESS_CONNECT_TO": f"{HOST}:443=127.0.0.1:{hooks.port}",
        "OUTCROP_EGRESS_CA_FILE": str(hooks.ca),
    }
    with serving(folder, "--processes", "2", **egress) as (process, base_url):
        wait_for(lambda: ready(base_url), "the service to be ready")
        # A command beside the running service uses the same database.
        key = outcrop(folder, "key", "create", "--account", "acme", "--name", "ci")
        headers = {"Authorization": f"Bearer {key['key']}"}
        with httpx.Client(base_url=base_url, headers=headers, trust_env=False) as client:
            assert client.get("/api/v1/findings").json()["data"][0]["id"] == line["id"]
            assert client.post(f"/api/v1/findings/{line['id']}/resolve?note=done").status_code == 200
            (event,) = wait_for(lambda: hooks.requests, "the event to arrive")
            assert (
                verify(event.body, event.headers, webhook["secret"])["finding"]["resolution_note"] == "done"
            )
            outcrop(folder, "key", "revoke", key["id"])
            assert client.get("/api/v1/findings").json() == {"error": "revoked_token"}
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
    assert wait_for(lambda: not processes_of(folder), "every process to be gone") is True
    actions = [entry["action"] for entry in outcrop(folder, "audit", "--account", "acme")]
    # what was imported was last seen long ago: the worker may turn it stale at any moment
    assert [action for action in actions if action != "finding.stale"] == [
        "account.create",
        "webhook.save",
        "findings.import",
        "key.create",
        "finding.resolve",
        "webhook.delivery",
        "key.revoke",
    ]
    assert not processes_of(folder)


def test_a_killed_parent_takes_its_children_along_and_the_next_one_adopts_the_database(used: Path) -> None:
    with serving(used) as (process, base_url):
        wait_for(lambda: ready(base_url), "the service to be ready")
        process.kill()
        process.wait(120)
        wait_for(lambda: not ready(base_url), "the port to be closed")
    outcrop(used, "account", "list")
    assert wait_for(lambda: not processes_of(used), "every process to be gone") is True


def test_a_child_that_does_not_end_by_itself_is_ended_after_its_parent() -> None:
    stubborn = (
        "import signal, sys, time; from outcrop.processes import watch_parent;"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "watch_parent(sys.stdin.read, stop_within=0.3); time.sleep(600)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", stubborn], stdin=subprocess.DEVNULL, timeout=120, check=False
    )
    assert ended.returncode == -signal.SIGKILL


def test_a_killed_child_is_started_again(used: Path) -> None:
    with serving(used, "--no-worker") as (process, base_url):
        wait_for(lambda: ready(base_url), "the service to be ready")
        (child,) = [
            pid for pid in processes_of(used) if b"\0api\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(child, signal.SIGKILL)
        wait_for(lambda: child not in processes_of(used), "the child to be gone")
        wait_for(lambda: ready(base_url), "the service to be back")
        process.terminate()
        assert process.wait(120) == 0
    assert not processes_of(used)


def test_a_killed_database_is_started_again_and_nothing_acknowledged_is_lost(used: Path) -> None:
    outcrop(used, "account", "create", "acme", "--plan", "enterprise", "--email", "sec@acme.example")
    lines = [make_line() for _ in range(150)]
    outcrop(used, "import", "--account", "acme", "-", stdin="\n".join(map(json.dumps, lines)))
    key = outcrop(used, "key", "create", "--account", "acme", "--name", "ci")["key"]
    headers = {"Authorization": f"Bearer {key}"}
    acknowledged = []
    with (
        serving(used) as (process, base_url),
        httpx.Client(base_url=base_url, headers=headers, trust_env=False, timeout=30) as client,
    ):
        wait_for(lambda: ready(base_url), "the service to be ready")
        children = {
            pid
            for pid in processes_of(used)
            if b"outcrop.cli.process" in Path(f"/proc/{pid}/cmdline").read_bytes()
        }
        for number, line in enumerate(lines):
            if number in {20, 70, 120}:
                wait_for(lambda: ready(base_url), "the database to be back", 120)
                kill_database(used)
            answer = client.post(f"/api/v1/findings/{line['id']}/resolve")
            if answer.status_code == 200:
                acknowledged.append(line["id"])
            else:
                assert (answer.status_code, answer.json()["error"]) == (503, "busy")
                assert int(answer.headers["Retry-After"]) >= 1
        wait_for(lambda: ready(base_url), "the database to be back", 120)
        assert len(acknowledged) > 60, "the service was there before, between and after the kills"
        states = [client.get(f"/api/v1/findings/{id_}").json()["data"]["status"] for id_ in acknowledged]
        assert set(states) == {"resolved"}
        assert children <= set(processes_of(used)), "no child had to be started again"
        process.terminate()
        assert process.wait(60) == 0
    assert not processes_of(used)
    log = (used.parent / "serve.log").read_text()
    assert log.count('"database_restarted"') == 3
    assert all("event" in json.loads(line) for line in log.splitlines()), "every line is an event"
    assert "Traceback" not in log


def test_the_service_can_be_stopped_while_its_database_cannot_be_started(used: Path) -> None:
    with serving(used, "--no-worker") as (process, base_url):
        wait_for(lambda: ready(base_url), "the service to be ready")
        settings = used / "postgres/data/postgresql.conf"
        settings.write_text("no_such_setting = 1\n")
        kill_database(used)
        log = used.parent / "serve.log"
        wait_for(lambda: '"database_not_started"' in log.read_text(), "the start to fail", 120)
        assert httpx.get(f"{base_url}/healthz", trust_env=False).status_code == 200
        process.terminate()
        assert process.wait(60) == 0
        assert "Traceback" not in log.read_text()
    assert not processes_of(used)


def kill_database(folder: Path) -> None:
    os.kill(int((folder / "postgres/data/postmaster.pid").read_text().split()[0]), signal.SIGKILL)


def test_a_taken_port_is_one_line(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [COMMAND, "serve", "--port", port],
            env=_environment(folder),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1 port {port}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not processes_of(folder)


def test_a_port_that_becomes_free_is_waited_for(used: Path) -> None:
    log = used.parent / "waiting.log"
    with socket.create_server(("127.0.0.1", 0)) as taken, log.open("w") as file:
        port = taken.getsockname()[1]
        process = subprocess.Popen(
            [COMMAND, "serve", "--no-worker", "--port", str(port)], env=_environment(used), stderr=file
        )
        wait_for(lambda: '"port_in_use"' in log.read_text() or process.poll() is not None, "a try", 120)
    wait_for(lambda: ready(f"http://127.0.0.1:{port}"), "the service to be ready", 120)
    process.terminate()
    assert process.wait(60) == 0


def test_a_service_that_waits_for_its_port_can_be_stopped(folder: Path) -> None:
    log = folder.parent / "waiting.log"
    with socket.create_server(("127.0.0.1", 0)) as taken, log.open("w") as file:
        process = subprocess.Popen(
            [COMMAND, "serve", "--port", str(taken.getsockname()[1])],
            env=_environment(folder),
            stderr=file,
        )
        wait_for(lambda: '"port_in_use"' in log.read_text() or process.poll() is not None, "a try", 120)
        process.terminate()
        assert process.wait(60) == 0
    assert "cannot listen" not in log.read_text()
    assert not processes_of(folder)


def test_tls_of_our_own(used: Path, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    context = ssl.create_default_context(cafile=certificate)
    with serving(used, "--no-worker", "--tls-cert", str(certificate), "--tls-key", str(key)) as (_, base_url):
        assert base_url.startswith("https://127.0.0.1:")
        wait_for(lambda: ready(base_url, verify=context), "the service to be ready")
        answer = httpx.get(f"{base_url}/api/v1/findings", verify=context, trust_env=False)
        assert answer.status_code == 401
        assert answer.headers["strict-transport-security"] == "max-age=31536000"


def test_behind_a_proxy_the_forwarded_scheme_is_believed_only_from_it(used: Path) -> None:
    base = {"OUTCROP_BASE_URL": "https://outcrop.example.com"}
    forwarded = {"X-Forwarded-Proto": "https"}
    with serving(used, "--no-worker", **base, OUTCROP_TRUSTED_PROXIES="127.0.0.1") as (_, _base):
        address = f"http://127.0.0.1:{port_of(used)}"
        wait_for(lambda: ready(address), "the service to be ready")
        assert httpx.get(f"{address}/api/v1/findings", headers=forwarded, trust_env=False).status_code == 401
        redirected = httpx.get(f"{address}/api/v1/findings?q=a%20b", trust_env=False)
        assert (redirected.status_code, redirected.headers["location"]) == (
            308,
            "https://outcrop.example.com/api/v1/findings?q=a%20b",
        )
    with serving(used, "--no-worker", **base) as (_, _base):
        address = f"http://127.0.0.1:{port_of(used)}"
        wait_for(lambda: ready(address), "the service to be ready")
        assert httpx.get(f"{address}/api/v1/findings", headers=forwarded, trust_env=False).status_code == 308


def port_of(folder: Path) -> int:
    """Return the port that a child process listens on, as its parent logged it."""
    log = (folder.parent / "serve.log").read_text()
    found = re.search(r'"port": (\d+)', log)
    assert found is not None
    return int(found[1])


def make_certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "outcrop test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(private)
    return folder / "cert.pem", folder / "key.pem"
