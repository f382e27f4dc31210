"""Import the same credentials by every route; measure other requests while many reports are uploaded."""

import http.client
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.measure import Timing, ms, summarize, table
from bench.service import OUTCROP, Service, run_service
from outcrop.scanner.rules.example_templates import expand_template

_REPO = "https://git.example.com/acme/shop"
_PER_FILE = 20  # credentials in one file of the scanned folder
_POLL_SECONDS = 0.2
_PER_UPLOAD = 200  # findings in each of the reports that are uploaded at once


def measure(folder: Path, *, findings: int, uploads: int, rounds: int) -> None:
    """Print the throughput of every route, and the times of other requests during uploads; 0 skips a part."""
    with _run(folder / "service") as service:
        if findings:
            tokens = [_token(str(number)) for number in range(findings)]
            report = folder / "report.json"
            report.write_bytes(_report(tokens))
            _measure_routes(service, folder, report, tokens)
        if uploads:
            _measure_load(service, uploads, rounds)


@contextmanager
def _run(work: Path) -> Iterator[Service]:
    """Serve the API with one worker on a new database."""
    work.mkdir(parents=True, exist_ok=True)
    with (
        run_service(work, {"OUTCROP_RATE_LIMIT_PER_MINUTE": "1000000"}) as service,
        subprocess.Popen([OUTCROP, "worker"], env=service.environment, stderr=subprocess.DEVNULL) as worker,
    ):
        try:
            yield service
        finally:
            worker.terminate()
            worker.wait()


def _report(tokens: list[str]) -> bytes:
    """Return a report of gitleaks on the tokens, 20 in each file."""
    return json.dumps(
        [
            {
                "RuleID": "github-pat",
                "Description": "GitHub token",
                "StartLine": number % _PER_FILE + 1,
                "Match": token,
                "Secret": token,
                "File": f"config/{number // _PER_FILE}.env",
                "Commit": "c0ffee" * 6 + "c0ff",
                "Author": "Ada",
                "Fingerprint": f"config/{number // _PER_FILE}.env:github-pat:{number % _PER_FILE + 1}",
            }
            for number, token in enumerate(tokens)
        ]
    ).encode()


# --- throughput


def _measure_routes(service: Service, folder: Path, report: Path, tokens: list[str]) -> None:
    """Import the same credentials by every route into an account of its own, new and a second time."""
    scanned = folder / "scanned"
    for start in range(0, len(tokens), _PER_FILE):
        path = scanned / "config" / f"{start // _PER_FILE}.env"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(tokens[start : start + _PER_FILE]) + "\n")
    scan_alone = min(_timed(lambda: _scan(service, scanned, [])) for _ in range(2))
    routes: dict[str, Callable[[str], object]] = {
        "`outcrop import`": lambda slug: service.outcrop(
            "import", "--account", slug, "--repo", _REPO, "--json", str(report)
        ),
        "`POST /api/v2/imports`, until merged": lambda slug: _upload_and_wait(
            service, slug, report.read_bytes()
        ),
        "`outcrop scan --report-to --report-wait`": lambda slug: _scan(
            service, scanned, ["--report-to", service.base_url, "--report-wait"], slug
        ),
    }
    rows, baseline = [], 0.0
    for number, (name, run) in enumerate(routes.items()):
        slug = f"route-{number}"
        service.create_account(slug)
        first, repeated = _timed(lambda: run(slug)), _timed(lambda: run(slug))  # noqa: B023
        if (total := _total(service, slug)) != len(tokens):
            raise SystemExit(f"{name}: {total} findings instead of {len(tokens)}")
        scan = scan_alone if "scan" in name else 0.0
        baseline = baseline or first
        rows.append(
            [
                name,
                f"{first:.1f}",
                f"{len(tokens) / first:,.0f}",
                f"{first / baseline:.2f}",
                f"{repeated:.1f}",
            ]
        )
        if scan:
            rows.append(
                [
                    f"the same without the {scan:.1f} s of the scan",
                    f"{first - scan:.1f}",
                    f"{len(tokens) / (first - scan):,.0f}",
                    f"{(first - scan) / baseline:.2f}",
                    f"{repeated - scan:.1f}",
                ]
            )
    headings = ["route", "seconds", "findings a second", "× `outcrop import`", "seconds, all known"]
    table(f"Import of {len(tokens):,} new findings by every route", headings, rows)


def _timed(work: Callable[[], object]) -> float:
    """Return the seconds that the work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _scan(service: Service, folder: Path, options: list[str], slug: str | None = None) -> None:
    """Scan a folder with `outcrop scan`, without a database."""
    with tempfile.TemporaryDirectory() as data:
        environment = service.environment | {"OUTCROP_DATA_DIR": data}
        if slug is not None:
            environment["OUTCROP_API_KEY"] = service.keys[slug]
        ran = subprocess.run(
            [OUTCROP, "scan", "--no-validate", "-q", "-o", f"json={os.devnull}", *options, str(folder)],
            env=environment,
            capture_output=True,
            check=False,
        )
    if ran.returncode != 1:
        raise SystemExit(f"outcrop scan: {ran.stderr.decode()[-1000:]}")


def _upload_and_wait(service: Service, slug: str, body: bytes) -> None:
    """Send a report and wait until it is merged."""
    connection = _Connection(service.base_url, service.keys[slug])
    id_ = connection.request("POST", f"/api/v2/imports?repo={_REPO}", body)["data"]["id"]
    while (found := connection.request("GET", f"/api/v2/imports/{id_}")["data"])["status"] != "completed":
        if found["status"] == "failed":
            raise SystemExit(f"the import failed: {found['error']}")
        time.sleep(_POLL_SECONDS)


def _total(service: Service, slug: str) -> int:
    """Return the number of findings of an account."""
    page = _Connection(service.base_url, service.keys[slug]).request("GET", "/api/v1/findings?per_page=1")
    return int(page["meta"]["total"])


class _Connection:
    """A connection to the API that stays open."""

    def __init__(self, base_url: str, key: str) -> None:
        parts = urlsplit(base_url)
        self._http = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=600)
        self._headers = {"Authorization": f"Bearer {key}"}

    def request(self, method: str, path: str, body: bytes | None = None) -> Any:
        """Send a request; return the JSON of the response, and exit for an error."""
        self._http.request(method, path, body, self._headers)
        response = self._http.getresponse()
        content = response.read()
        if response.status >= 300:
            raise SystemExit(f"{method} {path}: {response.status} {content.decode()[:500]}")
        return json.loads(content)


# --- other requests during uploads


def _measure_load(service: Service, uploads: int, rounds: int) -> None:
    """Measure another account's requests while reports are uploaded at once, in turns with quiet times."""
    service.create_account("uploads")
    service.create_account("other")
    _upload_and_wait(service, "other", _report([_token(f"other {n}") for n in range(1_000)]))
    connection = _Connection(service.base_url, service.keys["other"])
    samples: dict[str, list[float]] = {"quiet": [], "uploads": [], "merges": []}
    seconds, answered = 0.0, 0
    for number in range(rounds):
        samples["quiet"] += _sample(connection, lambda start: time.perf_counter() - start < 15)
        taken, accepted = _measure_round(service, connection, samples, uploads, number)
        seconds, answered = seconds + taken, answered + accepted
    timings = {name: summarize(values) for name, values in samples.items()}
    quiet = timings["quiet"]
    names = {
        "quiet": "nothing else",
        "uploads": f"{uploads} uploads at once, until all are answered",
        "merges": "the worker merges them",
    }
    rows = [_row(names[name], len(samples[name]), timing, quiet) for name, timing in timings.items()]
    headings = ["meanwhile", "requests", "p50, ms", "×", "p99, ms", "×"]
    title = f"Page 1 of another account while {uploads} reports of {_PER_UPLOAD} findings come at once"
    table(title, headings, rows)
    print(f"\n{answered} of {uploads * rounds} uploads were accepted, {uploads} in {seconds / rounds:.1f} s")


def _measure_round(
    service: Service, connection: _Connection, samples: dict[str, list[float]], uploads: int, number: int
) -> tuple[float, int]:
    """Upload reports at once and wait until they are merged; add the times of requests meanwhile.

    Return the seconds until all uploads were answered, and how many were accepted.
    """
    bodies = [
        _report([_token(f"{number} {upload} {n}") for n in range(_PER_UPLOAD)]) for upload in range(uploads)
    ]
    key = service.keys["uploads"]
    context = multiprocessing.get_context("spawn")
    done = context.Queue()
    sender = context.Process(target=_upload_all, args=(service.base_url, key, bodies, done))
    sender.start()
    done.get()  # it has started
    start = time.perf_counter()
    samples["uploads"] += _sample(connection, lambda _: done.empty())
    seconds = time.perf_counter() - start
    accepted = int(done.get())
    sender.join()
    expected = uploads * _PER_UPLOAD * (number + 1)
    uploader = _Connection(service.base_url, key)

    def is_merging(_: float) -> bool:
        page = uploader.request("GET", "/api/v1/findings?per_page=1")
        return bool(page["meta"]["total"] < expected)

    samples["merges"] += _sample(connection, is_merging, check_every=0.5)
    return seconds, accepted


def _token(seed: str) -> str:
    """Return a GitHub token."""
    return expand_template("ghp_{{base62 30}}{{crc32_base62}}", seed)


def _row(name: str, count: int, timing: Timing, quiet: Timing) -> list[str]:
    """Return a row of the table of times."""
    p50, p99 = timing.p50 / quiet.p50, timing.p99 / quiet.p99
    return [name, f"{count:,}", ms(timing.p50), f"{p50:.2f}", ms(timing.p99), f"{p99:.2f}"]


def _sample(
    connection: _Connection, goes_on: Callable[[float], bool], check_every: float = 0.0
) -> list[float]:
    """Return the times of requests, one after the other with short pauses, while `goes_on(start)` is true."""
    samples: list[float] = []
    begin = checked = time.perf_counter()
    while True:
        start = time.perf_counter()
        if start - checked >= check_every:
            if not goes_on(begin):
                return samples
            checked = start = time.perf_counter()
        connection.request("GET", "/api/v1/findings")
        samples.append(time.perf_counter() - start)
        time.sleep(0.005)


def _upload_all(base_url: str, key: str, bodies: list[bytes], done: Any) -> None:
    """Upload all reports at once, each over a connection of its own; put the number of accepted ones."""
    accepted = []

    def upload(body: bytes) -> None:
        try:
            _Connection(base_url, key).request("POST", f"/api/v2/imports?repo={_REPO}&events=false", body)
            accepted.append(1)
        except SystemExit as error:
            print(error, file=sys.stderr)

    threads = [threading.Thread(target=upload, args=(body,)) for body in bodies]
    done.put(0)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.put(len(accepted))
