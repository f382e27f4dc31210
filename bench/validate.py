"""`make bench-validate`: how fast credentials are checked, and whether the rate limit of each issuer is kept.

python -m bench.validate [--checks N] [--issuers N] [--a-second N] [--delay SECONDS]; all on loopback.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.measure import table
from bench.process import run

_GOAL_CHECKS_PER_SECOND, _GOAL_CPU_SECONDS, _GOAL_MEMORY = 500, 0.002, 200e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checks", type=int, default=10_000)
    parser.add_argument("--issuers", type=int, default=50)
    parser.add_argument(
        "--a-second", type=int, default=20, help="limit of requests per second to each issuer"
    )
    parser.add_argument("--delay", type=float, default=0.1, help="seconds before every response")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        module = [sys.executable, "-m", "bench.validate_issuers"]
        command = [*module, temporary, str(arguments.issuers), str(arguments.delay)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as issuers:
            assert issuers.stdout is not None
            assert issuers.stdin is not None
            (folder / "issuers.json").write_bytes(issuers.stdout.readline())
            module = [sys.executable, "-m", "bench.validate_client"]
            client = [*module, temporary, str(arguments.checks), str(arguments.a_second)]
            # The shell only connects standard input to the file.
            measured = run(
                ["sh", "-c", 'exec "$@" < "$0"', str(folder / "issuers.json"), *client],
                {},
                output=folder / "client.json",
                ok_codes=[0],
            )
            issuers.stdin.close()
            received = json.loads(issuers.stdout.readline())
        figures = json.loads((folder / "client.json").read_bytes())
    _print(arguments, figures, received, measured.memory)


def _print(
    arguments: argparse.Namespace, figures: dict[str, Any], received: dict[str, int], memory: int
) -> None:
    """Print the figures of the client and of the issuers beside the goals."""
    checks = arguments.checks
    rate, cpu = checks / figures["seconds"], figures["cpu"] / checks
    is_complete = figures["statuses"] == {"valid": checks} and received["requests"] == checks
    max_rate = received["max_per_second"]
    rows: list[list[object]] = [
        [
            "checks per second",
            f"{rate:,.0f}",
            f"≥ {_GOAL_CHECKS_PER_SECOND}",
            _yes_no(rate >= _GOAL_CHECKS_PER_SECOND),
        ],
        [
            "CPU per check, ms",
            f"{cpu * 1000:.2f}",
            f"≤ {_GOAL_CPU_SECONDS * 1000:.0f}",
            _yes_no(cpu <= _GOAL_CPU_SECONDS),
        ],
        [
            "peak memory, MB",
            f"{memory / 1e6:.0f}",
            f"< {_GOAL_MEMORY / 1e6:.0f}",
            _yes_no(memory < _GOAL_MEMORY),
        ],
        [
            "most requests in any second to one issuer",
            max_rate,
            f"≤ {arguments.a_second}",
            _yes_no(max_rate <= arguments.a_second),
        ],
        [
            "each checked with one request, and valid",
            f"{received['requests']:,}",
            f"{checks:,}",
            _yes_no(is_complete),
        ],
    ]
    title = (
        f"{checks:,} credentials of {arguments.issuers} issuers, responses after "
        f"{arguments.delay * 1000:.0f} ms, at most {arguments.a_second} requests per second each"
    )
    table(title, ["", "measured", "goal", "reached"], rows)


def _yes_no(is_reached: bool) -> str:
    return "yes" if is_reached else "no"


if __name__ == "__main__":
    main()
