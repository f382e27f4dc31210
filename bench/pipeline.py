"""`make bench-pipeline`: runs of an account over many repositories and a site.

They are compared with `outcrop scan`, and with the same run shared by several workers.
python -m bench.pipeline [--repositories N] [--pages N] [--work DIR]; the repositories are made once. With
--hosts [--backlog N] the stand-ins of all code hosts are measured (`bench.code_hosts`). From 10,000
repositories on they are empty, and only the cost of planning and bookkeeping is measured. With --due N it is
measured how soon the runs of N due targets begin.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import bookkeeping, code_hosts
from bench.measure import table
from bench.pipeline_hosts import OWNER
from bench.process import Run, run
from bench.service import OUTCROP, Service, run_service

_EMPTY_FROM = 10_000  # repositories; more real ones would take hours to make
_SHARED_DELAY = 0.05  # seconds before every response of the hosts while workers share a run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repositories", type=int, default=200)
    parser.add_argument("--pages", type=int, default=500)
    parser.add_argument("--work", type=Path, default=Path(".bench/pipeline"))
    parser.add_argument("--only-shared", action="store_true", help="measure the workers only")
    parser.add_argument("--hosts", action="store_true", help="measure the stand-ins of all code hosts")
    parser.add_argument("--backlog", type=int, default=50_000, help="waiting sources, with --hosts")
    parser.add_argument("--due", type=int, default=0, help="measure only how so many due targets start")
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    count, pages = arguments.repositories, arguments.pages
    if arguments.hosts:
        code_hosts.measure(work, count, arguments.backlog)
        return
    if arguments.due:
        bookkeeping.measure_due(work, arguments.due)
        return
    if count >= _EMPTY_FROM:
        bookkeeping.measure(work, count)
        return
    if not arguments.only_shared:
        with _run_hosts(work, count, pages, 0.0) as hosts, run_service(work, hosts) as service:
            _measure_repositories(service, count)
            _measure_site(service, pages)
        _measure_memory(work, count)
    _measure_workers(work, count)


@contextmanager
def _run_hosts(work: Path, repositories: int, pages: int, delay: float) -> Iterator[dict[str, str]]:
    """Run the fake hosts and yield the settings that make `outcrop` use them."""
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


def _run_account_scan(service: Service, slug: str, target: str, *options: str) -> tuple[Run, dict[str, Any]]:
    """Run `outcrop scan --account` and return its figures and its JSON output."""
    if slug not in service.keys:
        service.create_account(slug)
    output = service.work / "run.json"
    measured = run(
        [OUTCROP, "scan", "--account", slug, "--json", "--jobs", "1", *options, target],
        service.environment,
        output=output,
        ok_codes=[0],
    )
    return measured, json.loads(output.read_bytes())


def _run_plain_scan(service: Service, targets: Sequence[str]) -> tuple[Run, int]:
    """Run `outcrop scan` without an account and return its figures and the number of findings."""
    output = service.work / "plain.json"
    command = [OUTCROP, "scan", "--json", "--no-cache", "--jobs", "1", *targets]
    measured = run(command, service.environment, output=output, ok_codes=[0, 1])
    return measured, len(json.loads(output.read_bytes()))


def _measure_repositories(service: Service, count: int) -> None:
    """Compare account runs over all repositories with one `outcrop scan` of them."""
    service.outcrop("rules", "list", "--json")
    _run_plain_scan(service, [f"https://git.example/{OWNER}/r0.git"])  # to compile the rules
    plain, found = _run_plain_scan(service, [f"https://git.example/{OWNER}/r{n}.git" for n in range(count)])
    first, first_run = _run_account_scan(service, "repos", f"github:{OWNER}")
    rescan, second_run = _run_account_scan(service, "repos", f"github:{OWNER}")
    idle, _ = _run_account_scan(service, "repos", f"github:{OWNER}", "--type", "gists")
    rows = [
        ["`outcrop scan` of all repositories", f"{plain.wall:.1f}", f"{plain.cpu:.1f}", found, ""],
        [
            "account run",
            f"{first.wall:.1f}",
            f"{first.cpu:.1f}",
            first_run["findings_new"],
            f"{first_run['findings_new'] / first.wall:.0f}",
        ],
        ["rescan without changes", f"{rescan.wall:.1f}", f"{rescan.cpu:.1f}", second_run["findings_new"], ""],
        ["run without any repository", f"{idle.wall:.1f}", f"{idle.cpu:.1f}", "", ""],
    ]
    table(
        f"{count} repositories, `--jobs 1`",
        ["", "seconds", "CPU seconds", "findings", "recorded per second"],
        rows,
    )
    overhead, share = first.wall / plain.wall - 1, rescan.wall / first.wall
    rows = [
        ["overhead over `outcrop scan`", f"{overhead:.0%}", "15%", "yes" if overhead < 0.15 else "no"],
        [
            "rescan without changes, relative to the first run",
            f"{share:.1%}",
            "5%",
            "yes" if share < 0.05 else "no",
        ],
    ]
    table("Goals", ["", "measured", "goal", "reached"], rows)


def _measure_site(service: Service, pages: int) -> None:
    """Measure an account run over a web site."""
    measured, site_run = _run_account_scan(service, "site", "http://site.example/", "--type", "site")
    progress = site_run["progress"]
    rows = [
        [
            progress["pages"],
            f"{progress['bytes'] / 1e6:.1f}",
            site_run["findings_new"],
            f"{measured.wall:.1f}",
            f"{progress['pages'] / measured.wall:.0f}",
        ]
    ]
    table(
        f"A site of {pages} pages and scripts",
        ["resources", "MB", "findings", "seconds", "resources per second"],
        rows,
    )


def _measure_memory(work: Path, count: int) -> None:
    """Measure the peak memory of runs over a quarter, a half and all of the repositories."""
    rows = []
    for part in (count // 4, count // 2, count):
        with _run_hosts(work, part, 2, 0.0) as hosts, run_service(work, hosts) as service:
            measured, _ = _run_account_scan(service, "memory", f"github:{OWNER}")
            rows.append([part, f"{measured.memory / 2**20:,.0f}"])
    table("Peak memory of a run with its child processes, `--jobs 1`", ["repositories", "MiB"], rows)


def _measure_workers(work: Path, count: int) -> None:
    """Measure the same run with 1, 2 and 4 workers, each on one core; the hosts respond after a delay."""
    rows: list[list[str]] = []
    alone = 0.0
    for workers in (1, 2, 4):
        with _run_hosts(work, count, 2, _SHARED_DELAY) as hosts, run_service(work, hosts) as service:
            slug = "shared"
            service.create_account(slug)
            target = service.outcrop("target", "add", "--account", slug, f"github:{OWNER}", "--json")["id"]
            cores = sorted(os.sched_getaffinity(0))
            processes = [
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
                start = time.perf_counter()
                while (latest := service.list_runs(slug)[0])["finished_at"] is None:
                    time.sleep(0.2)
                seconds = time.perf_counter() - start
            finally:
                for process in processes:
                    process.terminate()
                for process in processes:
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
    headings = ["workers", "seconds", "repositories per second", "× one worker", "status"]
    table(
        f"{count} repositories shared by workers with `--jobs 1`, "
        f"responses after {_SHARED_DELAY * 1000:.0f} ms",
        headings,
        rows,
    )


if __name__ == "__main__":
    main()
