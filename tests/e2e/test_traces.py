"""Traces of a running service: its API processes and its worker send them, also what waits when it stops."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.test_serve import outcrop, processes_of, ready, serving, wait_for
from tests.support.factories import make_line
from tests.support.otlp import collecting, fields


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    yield private / "data"
    for pid in processes_of(private / "data"):
        os.kill(pid, signal.SIGKILL)


def test_a_service_sends_the_spans_of_all_its_processes(folder: Path) -> None:
    outcrop(folder, "account", "create", "acme-corp", "--plan", "growth", "--email", "sec@acme.example")
    key = outcrop(folder, "key", "create", "--account", "acme-corp", "--name", "ci")["key"]
    outcrop(folder, "import", "--account", "acme-corp", "-", stdin=json.dumps(make_line()))
    with collecting() as collector:
        # Nothing is sent before the processes stop: in an hour at the earliest.
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "3600000"}
        with serving(folder, "--processes", "2", **variables) as (_, base_url):
            wait_for(lambda: ready(base_url), "the service to be ready")
            headers = {"Authorization": f"Bearer {key}"}
            for _ in range(10):  # a connection each, so that both processes answer
                assert httpx.get(f"{base_url}/api/v1/findings", headers=headers, trust_env=False).is_success
            for report in (make_line(), make_line()):  # queued as jobs of the worker
                sent = httpx.post(
                    f"{base_url}/api/v2/imports?format=auto",
                    headers=headers,
                    content=json.dumps(report),
                    trust_env=False,
                )
                assert sent.status_code == 202, sent.text
                address = f"{base_url}/api/v2/imports/{sent.json()['data']['id']}"
                wait_for(
                    lambda address=address: (
                        httpx.get(address, headers=headers, trust_env=False).json()["data"]["status"]
                        == "completed"
                    ),
                    "the import",
                )
            assert collector.bodies == []
        spans = collector.spans()
    assert [span.name for span in spans].count("GET /api/v1/findings") == 10
    assert len([span for span in spans if span.name == "POST /api/v2/imports"]) == 2
    jobs = [fields(span) for span in spans if span.name == "job"]
    merged = {"outcrop.queue": "imports", "outcrop.job": "merge_import", "outcrop.outcome": "completed"}
    assert jobs.count(merged) == 2
    log = (folder.parent / "serve.log").read_text()
    assert "traces_not_sent" not in log
    assert "library_message" not in log
    assert key.encode() not in b"".join(collector.bodies)
