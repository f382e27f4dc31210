"""Read long downloads slowly on many connections; the service must still answer others."""

import http.client
import json
import socket
import time
from contextlib import suppress
from urllib.parse import urlsplit

from prove.portal_session import PortalSession, sign_in
from prove.service import PATIENCE, Service, open_service, request
from prove.trial import Report, Setting
from tests.support.factories import make_line

READERS = 16  # of each download: as many as an API process has connections to the database
FINDINGS = 12_000  # their export is longer than what the kernel buffers for a connection
_ANSWER_SECONDS = 60.0  # in which a request is answered, on a machine that has other work too
_AT_ONCE = 500  # findings of one bulk request
_NOTE = "n" * 480  # makes the audit trail as long
_SLUG = "slow"
_ADDRESSES = ("/export/findings.jsonl", "/export/findings.csv", "/profile/audit.jsonl")


def try_slow_readers(setting: Setting, report: Report) -> None:
    """Open downloads, read a byte now and then, and send ordinary requests beside them."""
    with open_service(setting.folder / "service") as service:
        service.serve()
        key = service.account(_SLUG)
        lines = (json.dumps(make_line(file_path=f"f{number}.env")) + "\n" for number in range(FINDINGS))
        service.run("import", "--account", _SLUG, "-", stdin="".join(lines))
        _fill_audit_trail(service, key)
        owner = sign_in(service, _SLUG, "owner")
        readers = [_open(owner, address) for address in _ADDRESSES for _ in range(READERS)]
        setting.random().shuffle(readers)
        deadline = setting.deadline()
        try:
            while True:
                for reader in readers:
                    with suppress(OSError):
                        reader.recv(1)
                _ask(service, key, report)
                if time.monotonic() > deadline:
                    break
                time.sleep(1)
        finally:
            for reader in readers:
                reader.close()


def _fill_audit_trail(service: Service, key: str) -> None:
    """Resolve all findings with a long note: each is a long line of the audit trail."""
    ids = [finding["id"] for finding in service.findings(key)]
    for begin in range(0, len(ids), _AT_ONCE):
        body = {"action": "resolve", "note": _NOTE, "ids": ids[begin : begin + _AT_ONCE]}
        answer = request(
            service.base_url,
            "POST",
            "/api/v2/findings/bulk",
            key=key,
            body=json.dumps(body).encode(),
            seconds=PATIENCE,
        )
        if answer.status != http.client.OK:
            raise RuntimeError(f"a bulk action was answered {answer.status}")


def _ask(service: Service, key: str, report: Report) -> None:
    """Send an ordinary request until it is answered other than "busy": that must be soon."""
    began = time.monotonic()
    while (answer := service.get("/findings", key, per_page=1)).status == http.client.SERVICE_UNAVAILABLE:
        report.count("times busy")
        if time.monotonic() > began + _ANSWER_SECONDS:
            break
        time.sleep(0.5)
    report.check(
        answer.status == http.client.OK, f"beside slow readers: {answer.status} {answer.body[:200]!r}"
    )
    report.count("requests beside slow readers")


def _open(person: PortalSession, path: str) -> socket.socket:
    """Ask for a download on a connection with a small buffer."""
    address = urlsplit(str(person.client.base_url))
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    reader.settimeout(5)
    reader.connect((address.hostname, address.port))
    cookies = "; ".join(f"{name}={value}" for name, value in person.client.cookies.items())
    reader.sendall(f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\nCookie: {cookies}\r\n\r\n".encode())
    return reader
