"""A core dump of a process would have the credentials that it holds in memory."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = str(Path(sys.executable).with_name("outcrop"))
# Asks for core dumps, as an operator's shell may, and becomes the command.
START = """
import os, resource, sys
most = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_CORE, (most, most))
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_a_command_disables_core_dumps_for_itself_and_all_that_it_starts() -> None:
    most = resource.RLIM_INFINITY if os.geteuid() == 0 else resource.getrlimit(resource.RLIMIT_CORE)[1]
    if most == 0:
        pytest.skip("core dumps are disabled here for every process")
    command = [sys.executable, "-c", START, str(most), COMMAND, "scan", "-"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + 120
        while core_limits(process.pid) != ["0", "0"]:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.kill()


def core_limits(pid: int) -> list[str]:
    """Return the soft and the hard limit of a process's core dumps."""
    (line,) = [
        line
        for line in Path(f"/proc/{pid}/limits").read_text().splitlines()
        if line.startswith("Max core file size")
    ]
    return line.split()[4:6]
