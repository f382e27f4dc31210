"""What recording metrics costs a list request: CPU time of an API process with and without it, in one run.

python -m bench.metrics [--rounds N] [--requests N]. Both services run on one database, and the rounds take
turns. The second figure is the CPU time of the recording alone, which is far below the noise of the first.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import httpx

from outcrop import metrics
from outcrop.processes import child_pids

COMMAND = str(Path(sys.executable).with_name("outcrop"))
TICK = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--requests", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="outcrop-bench-") as temporary, ExitStack() as stack:
        folder = Path(temporary)
        key = _prepare(folder)
        services = {
            "without": stack.enter_context(_serving(folder, "without")),
            "with": stack.enter_context(_serving(folder, "with", OUTCROP_METRICS_LISTEN="127.0.0.1:0")),
        }
        seconds: dict[str, list[float]] = {name: [] for name in services}
        for number in range(arguments.rounds + 1):
            for name, (pid, url) in services.items():
                used = _measure(pid, url, key, arguments.requests)
                if number:  # the first round warms up
                    seconds[name].append(used)
        recording = _measure_recording(folder)
    before, after = (median(seconds[name]) for name in ("without", "with"))
    print(f"CPU time per list request: {before * 1e6:.0f} µs without, {after * 1e6:.0f} µs with metrics")
    print(f"CPU time of the recording: {recording * 1e6:.1f} µs, {recording / before:.2%} of a list request")


def _prepare(folder: Path) -> str:
    """Create an account with findings; return an API key."""
    lines = [
        {
            "matched_text": f"AKIA****{number:04}",
            "repo_full_name": "acme/web",
            "file_path": f"src/{number}.py",
        }
        for number in range(200)
    ]
    report = "\n".join(map(json.dumps, lines))
    _run(folder, "account", "create", "acme", "--plan", "growth", "--email", "sec@acme.example")
    _run(folder, "import", "--account", "acme", "-", stdin=report)
    return str(json.loads(_run(folder, "key", "create", "--account", "acme", "--name", "bench"))["key"])


def _run(folder: Path, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        [COMMAND, *arguments, "--json"],
        env=_environment(folder),
        input=stdin,
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    )
    return done.stdout


def _environment(folder: Path, **more: str) -> dict[str, str]:
    return os.environ | {"OUTCROP_DATA_DIR": str(folder / "data"), "OUTCROP_LOG_FORMAT": "json"} | more


@contextmanager
def _serving(folder: Path, name: str, **settings: str) -> Iterator[tuple[int, str]]:
    """Run a service with one API process and no worker; yield that process's id and the address."""
    log = folder / f"{name}.log"
    settings |= {"OUTCROP_RATE_LIMIT_PER_MINUTE": "0"}
    with log.open("w") as file:
        process = subprocess.Popen(
            [COMMAND, "serve", "--port", "0", "--no-worker"],
            env=_environment(folder, **settings),
            stderr=file,
        )
    try:
        deadline = time.monotonic() + 120
        while not (found := [line for line in log.read_text().splitlines() if '"serving"' in line]):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        url = str(json.loads(found[0])["base_url"])
        while httpx.get(f"{url}/readyz", trust_env=False, timeout=120).status_code != 200:
            time.sleep(0.1)
        (pid,) = [pid for pid in child_pids(process.pid) if b"api" in _command_line(pid)]
        yield pid, url
    finally:
        process.terminate()
        process.wait()


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _measure(pid: int, url: str, key: str, requests: int) -> float:
    """Return the CPU seconds of a process for each of some list requests."""
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=120) as client:
        began = _cpu_seconds(pid)
        for _ in range(requests):
            assert client.get("/api/v1/findings").status_code == 200
        return (_cpu_seconds(pid) - began) / requests


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def _measure_recording(folder: Path, calls: int = 100_000) -> float:
    """Return the CPU seconds of recording one request."""
    metrics.start_recording(folder, "bench")
    began = time.process_time()
    for _ in range(calls):
        metrics.count_request("/api/v1/findings", "GET", 200, 0.004)
    return (time.process_time() - began) / calls


if __name__ == "__main__":
    main()
