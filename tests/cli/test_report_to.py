"""`outcrop scan --report-to`: what a CI job sends to a service, and what it prints."""

import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.backend import Backend, Tenant
from tests.support.command import Ran, run
from tests.support.imports import merge_queued
from tests.support.rulesets import cached_in, github_token

SHOWN, MARKED, IGNORED, KNOWN = (github_token(name) for name in ("shown", "marked", "ignored", "known"))
Scan = Callable[..., Ran]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cached_in(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a repository with four tokens; a mark, the ignore file and a baseline hide all but one."""
    folder = tmp_path / "place"
    (folder / "old").mkdir(parents=True)
    (folder / "shown.py").write_text(f"x = '{SHOWN}'\n")
    (folder / "marked.py").write_text(f"x = '{MARKED}'  # outcrop:allow\n")
    (folder / "old" / "ignored.py").write_text(f"x = '{IGNORED}'\n")
    (folder / ".outcropignore").write_text("old/\n")
    (folder / "known.py").write_text(f"x = '{KNOWN}'\n")
    git = ["git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@corp.io"]
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    remote = "https://ada@git.example.com/Acme/Shop.git"
    subprocess.run([*git, "remote", "add", "origin", remote], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "x"], check=True)
    return folder


@pytest.fixture
def scan(place: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scan:
    monkeypatch.setenv("OUTCROP_DATA_DIR", str(tmp_path / "data"))

    def call(*arguments: str | Path, key: str | None = None) -> Ran:
        if key is not None:
            monkeypatch.setenv("OUTCROP_API_KEY", key)
        return run("scan", "--no-validate", *arguments, folder=place, cache=cache)

    return call


@contextmanager
def merging(backend: Backend, tenant: Tenant) -> Iterator[None]:
    """Merge the imports of an account during the body, as a worker does."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.1):
            merge_queued(backend, tenant)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        stop.set()
        worker.join()


@pytest.mark.parametrize("kind", ["git", "folder"])
def test_all_findings_reach_the_account_and_only_some_are_printed(
    backend: Backend, scan: Scan, tmp_path: Path, kind: str
) -> None:
    tenant = backend.tenant()
    baseline = tmp_path / "baseline.json"
    baseline.write_text(scan("--json", "--type", kind, "--include", "known.py").out)
    options = ("--json", "--type", kind, "--baseline", baseline)
    alone = scan(*options)
    with merging(backend, tenant):
        reported = scan(*options, "--report-to", backend.base_url, "--report-wait", key=tenant.key)
    assert (reported.code, reported.out) == (1, alone.out)
    assert [finding["file_path"] for finding in reported.json] == ["shown.py"]
    ((import_id,),) = backend.sql("SELECT id FROM imports WHERE account_id = %s", tenant.account.id)
    assert reported.err.splitlines()[0] == f"reported: {import_id}, 4 new, 0 known"
    assert not (tmp_path / "data").exists()
    stored = {finding["file_path"]: finding for finding in tenant.get("/findings").json()["data"]}
    assert {path: finding["allowed_in_source"] for path, finding in stored.items()} == {
        "shown.py": False,
        "marked.py": True,
        "known.py": True,
        "old/ignored.py": True,
    }
    assert all(finding["pattern"]["secret_type"] == "github" for finding in stored.values())
    with merging(backend, tenant):
        second = scan("--type", kind, "-q", "--report-to", backend.base_url, "--report-wait")
    assert second.err.endswith(", 0 new, 4 known\n")


def test_the_repository_is_named_by_its_origin_without_the_login(
    backend: Backend, scan: Scan, tmp_path: Path
) -> None:
    tenant = backend.tenant()
    assert scan("-q", "--report-to", f"{backend.base_url}/", key=tenant.key).code == 1
    merge_queued(backend, tenant)
    places = {(f["repo_full_name"], f["source_url"]) for f in tenant.get("/findings").json()["data"]}
    assert places == {("acme/shop", "https://git.example.com/acme/shop")}
    exported = [{"matched_text": "x", "secret": SHOWN, "file_path": "shown.py", "fingerprint": "1"}]
    sent = tenant.client.post(
        "/api/v2/imports",
        params={"format": "outcrop", "repo": "git@git.example.com:acme/shop"},
        content=json.dumps(exported[0]),
    )
    merge_queued(backend, tenant)
    found: dict[str, Any] = tenant.client.get(f"/api/v2/imports/{sent.json()['data']['id']}").json()["data"]
    assert (found["findings_new"], found["findings_updated"] + found["findings_unchanged"]) == (0, 1)


def test_a_scan_without_findings_is_reported_too(backend: Backend, scan: Scan) -> None:
    tenant = backend.tenant()
    with merging(backend, tenant):
        ran = scan(
            "--include", "*.txt", "-q", "--report-to", backend.base_url, "--report-wait", key=tenant.key
        )
    assert ran.code == 0
    assert ran.err.endswith(", 0 new, 0 known\n")


# --- a report that fails


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Serve the same bytes to every client on a loopback port; yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)

        def work() -> None:
            try:
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(65536)
                        connection.sendall(answer)
            except OSError:
                return

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def http(status: str, body: bytes, *, headers: str = "", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return (
        f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n{headers}Connection: close\r\n\r\n".encode() + body
    )


ANSWERS = {
    "a page": (http("200 OK", b"<title>Sign in</title>"), "the answer is not one of Outcrop (status 200)"),
    "a redirect": (
        http("308 Permanent Redirect", b"", headers="Location: https://x.example/\r\n"),
        "the answer is a redirect (status 308): give the final address",
    ),
    "half a body": (http("202 Accepted", b'{"data": {', length=99), "the response ended early"),
    "nothing": (b"", "the connection was closed without a response"),
    "another API": (http("202 Accepted", b'{"ok": true}'), "the service gives no reason (status 202)"),
    "no id": (http("202 Accepted", b'{"data": {"id": 7}}'), "the answer has no id"),
    "a refused key": (http("401 Unauthorized", b'{"error": "invalid_token"}'), "the API key is not accepted"),
    "a message": (
        http("500 Oops", b'{"error": "internal_error", "message": "broken\\n\\u001b[31m"}'),
        r"broken\n\x1b[31m (status 500)",
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_a_service_that_answers_wrongly_is_one_line_and_exit_code_2(scan: Scan, case: str) -> None:
    answer, reason = ANSWERS[case]
    with answering(answer) as url:
        ran = scan("-q", "--json", "--report-to", url, key="outcrop_the-key")
    assert ran.code == 2
    assert len(ran.json) == 2
    line = ran.err.splitlines()
    assert len(line) == 1
    assert line[0].startswith(f"outcrop: the report to {url.removeprefix('http://')} failed: ")
    assert reason in line[0]
    assert "the-key" not in ran.err


def test_a_service_that_is_down_is_one_line_and_exit_code_2(scan: Scan) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    ran = scan("-q", "--report-to", f"http://localhost:{port}", key="outcrop_the-key")
    assert (ran.code, ran.err) == (2, f"outcrop: the report to localhost:{port} failed: connection failed\n")


def test_a_key_that_the_service_does_not_know_is_exit_code_2(backend: Backend, scan: Scan) -> None:
    ran = scan("-q", "--report-to", backend.base_url, key="outcrop_nobody")
    assert ran.code == 2
    assert "the API key is not accepted (status 401)" in ran.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--report-to", "http://outcrop.example.com"), "must be https"),
        (("--report-to", "ftp://127.0.0.1"), "must be https"),
        (("--report-to", "outcrop.example.com"), "should be an address"),
        (("--report-to", ""), "should be an address"),
        (("--report-to", "https://a:b@outcrop.example.com"), "should be an address"),
        (("--report-to", "https://outcrop.example.com:x"), "should be an address"),
        (("--report-wait",), "--report-wait needs --report-to"),
        (
            ("--report-to", "https://outcrop.example.com", "--account", "acme"),
            "cannot be combined with --account",
        ),
    ],
)
def test_a_wrong_call_is_refused_before_the_scan(scan: Scan, arguments: tuple[str, ...], reason: str) -> None:
    ran = scan(*arguments, key="outcrop_the-key")
    assert (ran.code, ran.out) == (2, "")
    assert reason in ran.err
    assert len(ran.err.splitlines()) == 1


def test_without_a_key_nothing_is_scanned(scan: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTCROP_API_KEY", raising=False)
    ran = scan("--report-to", "https://outcrop.example.com")
    assert (ran.code, ran.out) == (2, "")
    assert "OUTCROP_API_KEY" in ran.err
