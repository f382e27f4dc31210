"""`make bench-validate`: how fast credentials are asked about, and whether any issuer is asked oftener than it may be.

python -m bench.validate [--checks N] [--issuers N] [--a-second N] [--delay SECONDS]; real TLS, everything on loopback.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.measure import table
from bench.process import run

_GOAL_A_SECOND, _GOAL_MEMORY = 500, 200e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checks", type=int, default=10_000)
    parser.add_argument("--issuers", type=int, default=50)
    parser.add_argument(
        "--a-second", type=int, default=20, help="requests a second that each issuer may be sent"
    )
    parser.add_argument("--delay", type=float, default=0.1, help="seconds before every answer")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        command = [sys.executable, "-m", "bench.validate_issuers", made, str(given.issuers), str(given.delay)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as issuers:
            assert issuers.stdout is not None
            assert issuers.stdin is not None
            there = issuers.stdout.readline()
            asking = [
                sys.executable,
                "-m",
                "bench.validate_client",
                made,
                str(given.checks),
                str(given.a_second),
            ]
            # The shell only hands the description on; it is told what to read by the file's name.
            (folder / "there.json").write_bytes(there)
            ran = run(
                ["sh", "-c", 'exec "$@" < "$0"', str(folder / "there.json"), *asking],
                {},
                output=folder / "told.json",
                well=[0],
            )
            issuers.stdin.close()
            seen = json.loads(issuers.stdout.readline())
        told = json.loads((folder / "told.json").read_bytes())
    rate = given.checks / told["seconds"]
    well = told["statuses"] == {"valid": given.checks} and seen["requests"] == given.checks
    title = f"{given.checks:,} credentials of {given.issuers} issuers, answers after {given.delay * 1000:.0f} ms, {given.a_second}/s each"
    rows = [
        ["checks a second", f"{rate:,.0f}", f"≥ {_GOAL_A_SECOND}", _yes(rate >= _GOAL_A_SECOND)],
        [
            "CPU per check, ms",
            f"{told['cpu'] / given.checks * 1000:.2f}",
            "≤ 2",
            _yes(told["cpu"] / given.checks <= 0.002),
        ],
        [
            "peak memory, MB",
            f"{ran.memory / 1e6:.0f}",
            f"< {_GOAL_MEMORY / 1e6:.0f}",
            _yes(ran.memory < _GOAL_MEMORY),
        ],
        [
            "most requests in any second at one issuer",
            seen["most"],
            f"≤ {given.a_second}",
            _yes(seen["most"] <= given.a_second),
        ],
        ["each asked about once, and valid", f"{seen['requests']:,}", f"{given.checks:,}", _yes(well)],
    ]
    table(title, ["", "measured", "goal", "met"], rows)


def _yes(met: bool) -> str:
    return "yes" if met else "no"


if __name__ == "__main__":
    main()
