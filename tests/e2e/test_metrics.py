"""GET /metrics of a running service: one answer over all its processes, also while one of them is away."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from outcrop.processes import child_pids
from tests.e2e.test_serve import COMMAND, outcrop, processes_of, ready, serving, wait_for
from tests.support.exposition import Served, scrape
from tests.support.factories import make_line


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    yield private / "data"
    for pid in processes_of(private / "data"):
        os.kill(pid, signal.SIGKILL)


def api_pids(parent: int) -> list[int]:
    """Return the process ids of the API processes of a service."""
    pids = child_pids(parent)
    return [pid for pid in pids if b"\0api\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_the_processes_of_a_service_have_one_answer(folder: Path) -> None:
    outcrop(folder, "account", "create", "acme-corp", "--plan", "growth", "--email", "sec@acme.example")
    key = outcrop(folder, "key", "create", "--account", "acme-corp", "--name", "ci")["key"]
    line = make_line()
    outcrop(folder, "import", "--account", "acme-corp", "-", stdin=json.dumps(line))
    settings = {"OUTCROP_METRICS_LISTEN": "127.0.0.1:0", "OUTCROP_RATE_LIMIT_PER_MINUTE": "0"}
    with serving(folder, "--processes", "2", **settings) as (process, base_url):
        log = folder.parent / "serve.log"
        entry = next(entry for entry in log.read_text().splitlines() if '"serving_metrics"' in entry)
        port = json.loads(entry)["port"]
        wait_for(lambda: ready(base_url), "the service to be ready")

        def listed(status: int = 200) -> float:
            labels = {"route": "/api/v1/findings", "method": "GET", "status": str(status)}
            return scrape(port).value("outcrop_http_requests_total", **labels) or 0

        def ask(number: int) -> None:
            for _ in range(number):  # a connection each, so that both processes answer
                headers = {"Authorization": f"Bearer {key}"}
                response = httpx.get(f"{base_url}/api/v1/findings?q=acme", headers=headers, trust_env=False)
                assert response.status_code == 200

        ask(40)
        httpx.get(f"{base_url}/api/v1/findings/{line['id']}", trust_env=False)  # refused before its route
        httpx.get(f"{base_url}/acme-corp/{line['id']}", trust_env=False)
        assert listed() == 40
        wait_for(
            lambda: scrape(port).total("outcrop_db_pool_connections") >= 32, "both pools and the worker's"
        )
        served = scrape(port)
        assert served.value("outcrop_db_up") == 1
        assert served.value("outcrop_http_request_seconds_count", route="/api/v1/findings") == 40
        route = {"route": "/api/v1/findings/{finding_id}", "method": "GET", "status": "401"}
        assert served.value("outcrop_http_requests_total", **route) == 1
        check_labels(served, line)

        os.kill(api_pids(process.pid)[0], signal.SIGKILL)
        wait_for(lambda: len(api_pids(process.pid)) == 2, "the dead process to be replaced")
        wait_for(lambda: ready(base_url), "the service to be ready")
        ask(10)
        assert listed() == 50

        server = int((folder / "postgres/data/postmaster.pid").read_text().split()[0])
        os.kill(server, signal.SIGSTOP)
        time.sleep(1.1)  # a measurement counts for a second
        try:
            assert scrape(port).value("outcrop_db_up") == 0
        finally:
            os.kill(server, signal.SIGCONT)
        wait_for(lambda: scrape(port).value("outcrop_db_up") == 1, "the database to answer")
        os.kill(server, signal.SIGKILL)
        wait_for(lambda: scrape(port).value("outcrop_embedded_restarts_total") == 1, "the database's restart")


def check_labels(served: Served, line: dict[str, Any]) -> None:
    """Check that no label has an account, a repository, a path or an address."""
    for value in served.label_values:
        for private in ("acme", line["id"], line["repo_full_name"], line["file_path"], "127.0.0.1", "http:"):
            assert private not in value


def test_a_wrong_address_is_an_error(folder: Path) -> None:
    for address, message in (
        ("9464", "OUTCROP_METRICS_LISTEN: must be HOST:PORT, such as 127.0.0.1:9464 or [::1]:9464"),
        ("192.0.2.1:9464", "cannot listen on 192.0.2.1 port 9464: "),
    ):
        for command in ("serve", "worker"):
            environment = os.environ | {"OUTCROP_DATA_DIR": str(folder), "OUTCROP_METRICS_LISTEN": address}
            done = subprocess.run(
                [COMMAND, command], env=environment, capture_output=True, text=True, timeout=120, check=False
            )
            assert done.returncode == 2
            assert message in done.stderr
            assert "Traceback" not in done.stderr
    assert not folder.exists()
