"""`make bench-pipeline`: account runs over many repositories and a site, beside `outcrop scan`, and shared by workers.

python -m bench.pipeline [--repositories N] [--pages N] [--work DIR]; the repositories are made once.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.measure import table
from bench.pipeline_hosts import OWNER
from bench.process import Run, run

OUTCROP = str(Path(sys.executable).with_name("outcrop"))
_SHARED_DELAY = 0.05  # seconds before every answer where workers share a run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repositories", type=int, default=200)
    parser.add_argument("--pages", type=int, default=500)
    parser.add_argument("--work", type=Path, default=Path(".bench/pipeline"))
    parser.add_argument("--only-shared", action="store_true", help="measure the workers only")
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    count, pages = arguments.repositories, arguments.pages
    if not arguments.only_shared:
        with _hosts(work, count, pages, 0.0) as hosts, _service(work, hosts) as service:
            _repositories(service, count)
            _site(service, pages)
        _memory(work, count)
    _shared(work, count)


@dataclass
class Service:
    """A running service on a database of its own."""

    work: Path
    environment: dict[str, str]
    base_url: str
    keys: dict[str, str] = field(default_factory=dict)

    def outcrop(self, *arguments: str) -> Any:
        ran = subprocess.run([OUTCROP, *arguments], env=self.environment, capture_output=True, check=False)
        if ran.returncode:
            raise SystemExit(f"outcrop {' '.join(arguments)}: {ran.stderr.decode()[-1000:]}")
        return json.loads(ran.stdout)

    def account(self, slug: str) -> str:
        self.outcrop(
            "account", "create", slug, "--plan", "enterprise", "--email", f"{slug}@example.com", "--json"
        )
        self.keys[slug] = self.outcrop("key", "create", "--account", slug, "--name", "bench", "--json")["key"]
        return slug

    def runs(self, slug: str) -> list[dict[str, Any]]:
        request = urllib.request.Request(
            f"{self.base_url}/api/v1/scans", headers={"Authorization": f"Bearer {self.keys[slug]}"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return list(json.load(answer)["data"])


@contextmanager
def _hosts(work: Path, repositories: int, pages: int, delay: float) -> Iterator[dict[str, str]]:
    command = [
        sys.executable,
        "-m",
        "bench.pipeline_hosts",
        str(work),
        str(repositories),
        str(pages),
        str(delay),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.kill()


@contextmanager
def _service(work: Path, hosts: dict[str, str]) -> Iterator[Service]:
    """Serve the API on a fresh database, without a worker: runs are made in the foreground, or by workers that are counted."""
    shutil.rmtree(work / "data", ignore_errors=True)
    own = {
        "OUTCROP_DATA_DIR": str(work / "data"),
        "XDG_CACHE_HOME": str(work / "cache"),
        "OUTCROP_LOG_FORMAT": "json",
    }
    own["OUTCROP_VALIDATE"] = "off"  # nothing is asked of anybody outside
    environment = os.environ | hosts | own
    with subprocess.Popen(
        [OUTCROP, "serve", "--port", "0", "--no-worker"], env=environment, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if b'"serving"' in line:
                    threading.Thread(
                        target=process.stderr.read, daemon=True
                    ).start()  # a full pipe would stop the service
                    yield Service(work, environment, json.loads(line)["base_url"])
                    return
            raise SystemExit("the service did not start")
        finally:
            process.terminate()
            process.wait()


def _account_scan(service: Service, slug: str, target: str, *options: str) -> tuple[Run, dict[str, Any]]:
    if slug not in service.keys:
        service.account(slug)
    output = service.work / "run.json"
    took = run(
        [OUTCROP, "scan", "--account", slug, "--json", "--jobs", "1", *options, target],
        service.environment,
        output=output,
        well=[0],
    )
    return took, json.loads(output.read_bytes())


def _plain_scan(service: Service, targets: Sequence[str]) -> tuple[Run, int]:
    output = service.work / "plain.json"
    command = [OUTCROP, "scan", "--json", "--no-cache", "--jobs", "1", *targets]
    took = run(command, service.environment, output=output, well=[0, 1])
    return took, len(json.loads(output.read_bytes()))


def _repositories(service: Service, count: int) -> None:
    service.outcrop("rules", "list", "--json")
    _plain_scan(service, [f"https://git.example/{OWNER}/r0.git"])  # compiles the rules
    plain, found = _plain_scan(service, [f"https://git.example/{OWNER}/r{n}.git" for n in range(count)])
    first, told = _account_scan(service, "repos", f"github:{OWNER}")
    again, nothing = _account_scan(service, "repos", f"github:{OWNER}")
    idle, _ = _account_scan(service, "repos", f"github:{OWNER}", "--type", "gists")
    rows = [
        ["`outcrop scan` of all", f"{plain.wall:.1f}", f"{plain.cpu:.1f}", found, ""],
        [
            "account run",
            f"{first.wall:.1f}",
            f"{first.cpu:.1f}",
            told["findings_new"],
            f"{told['findings_new'] / first.wall:.0f}",
        ],
        ["with nothing new", f"{again.wall:.1f}", f"{again.cpu:.1f}", nothing["findings_new"], ""],
        ["with nothing to do at all", f"{idle.wall:.1f}", f"{idle.cpu:.1f}", "", ""],
    ]
    table(
        f"{count} repositories, `--jobs 1`",
        ["", "seconds", "CPU seconds", "findings", "recorded a second"],
        rows,
    )
    overhead, share = first.wall / plain.wall - 1, again.wall / first.wall
    rows = [
        ["overhead over `outcrop scan`", f"{overhead:.0%}", "15%", "yes" if overhead < 0.15 else "no"],
        ["rescan with nothing new, of the first", f"{share:.1%}", "5%", "yes" if share < 0.05 else "no"],
    ]
    table("Goals", ["", "measured", "goal", "met"], rows)


def _site(service: Service, pages: int) -> None:
    took, told = _account_scan(service, "site", "http://site.example/", "--type", "site")
    progress = told["progress"]
    rows = [
        [
            progress["pages"],
            f"{progress['bytes'] / 1e6:.1f}",
            told["findings_new"],
            f"{took.wall:.1f}",
            f"{progress['pages'] / took.wall:.0f}",
        ]
    ]
    table(
        f"A site of {pages} pages and scripts",
        ["resources", "MB", "findings", "seconds", "resources a second"],
        rows,
    )


def _memory(work: Path, count: int) -> None:
    rows = []
    for part in (count // 4, count // 2, count):
        with _hosts(work, part, 2, 0.0) as hosts, _service(work, hosts) as service:
            took, _ = _account_scan(service, "memory", f"github:{OWNER}")
            rows.append([part, f"{took.memory / 2**20:,.0f}"])
    table("Peak memory of a run with its children, `--jobs 1`", ["repositories", "MiB"], rows)


def _shared(work: Path, count: int) -> None:
    """Measure the same run by 1, 2 and 4 workers, each on a core, with answers that take their time."""
    rows: list[list[str]] = []
    alone = 0.0
    for workers in (1, 2, 4):
        with _hosts(work, count, 2, _SHARED_DELAY) as hosts, _service(work, hosts) as service:
            slug = service.account("shared")
            target = service.outcrop("target", "add", "--account", slug, f"github:{OWNER}", "--json")["id"]
            cores = sorted(os.sched_getaffinity(0))
            started = [
                subprocess.Popen(
                    ["taskset", "-c", str(cores[number % len(cores)]), OUTCROP, "worker", "--jobs", "1"],
                    env=service.environment,
                    stderr=subprocess.DEVNULL,
                )
                for number in range(workers)
            ]
            try:
                time.sleep(8)
                service.outcrop("target", "run", "--account", slug, target, "--json")
                began = time.perf_counter()
                while (latest := service.runs(slug)[0])["finished_at"] is None:
                    time.sleep(0.2)
                seconds = time.perf_counter() - began
            finally:
                for process in started:
                    process.terminate()
                for process in started:
                    process.wait()
        alone = alone or seconds
        rows.append(
            [
                str(workers),
                f"{seconds:.1f}",
                f"{count / seconds:.1f}",
                f"{alone / seconds:.2f}",
                latest["status"],
            ]
        )
    heads = ["workers", "seconds", "repositories a second", "× one worker", "status"]
    table(
        f"{count} repositories shared by workers with `--jobs 1`, answers after {_SHARED_DELAY * 1000:.0f} ms",
        heads,
        rows,
    )


if __name__ == "__main__":
    main()
