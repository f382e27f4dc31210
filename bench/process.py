"""Run a program and measure wall time, CPU time and peak memory of its whole process tree."""

import os
import resource
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_INTERVAL = 0.05  # seconds between two measurements of the memory
_MAX_SHARE = 20  # measure for at most 1/20 of the time, so that measuring does not slow down the program


@dataclass(frozen=True)
class Run:
    """What a program needed."""

    wall: float  # seconds
    cpu: float  # seconds of user and system time
    memory: int  # bytes


def run(
    command: Sequence[str], environment: Mapping[str, str], *, output: Path, ok_codes: Sequence[int]
) -> Run:
    """Run a command with its standard output in a file; exit if its exit code is not in `ok_codes`.

    Memory is the largest sum of Pss over the process tree.
    """
    cpu_before, start = _children_cpu(), time.perf_counter()
    with output.open("wb") as file, output.with_suffix(".err").open("w+b") as errors:
        process = subprocess.Popen(command, env=os.environ | dict(environment), stdout=file, stderr=errors)
        watch = _MemoryWatch(process.pid)
        watch.start()
        code = process.wait()
        wall = time.perf_counter() - start
        watch.ended.set()
        watch.join()
        if code not in ok_codes:
            errors.seek(0)
            raise SystemExit(
                f"{command[0]} ended with {code}: {errors.read().decode(errors='replace')[-2000:]}"
            )
    return Run(wall, _children_cpu() - cpu_before, watch.peak)


def tree_cpu(root: int) -> float:
    """Return the CPU time of a process, its descendants and what they have waited for, in seconds."""
    fields = (_read(f"/proc/{pid}/stat").rpartition(")")[2].split() for pid in _process_tree(root))
    return sum(sum(map(int, times[11:15])) for times in fields) / os.sysconf("SC_CLK_TCK")


def _children_cpu() -> float:
    """Return the CPU time of all ended child processes; one runs at a time, so the difference is its own."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class _MemoryWatch(threading.Thread):
    """Measures the memory of a process tree until `ended` is set."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.peak = 0
        self.ended = threading.Event()

    def run(self) -> None:
        pause = 0.0
        while not self.ended.wait(pause):
            start = time.perf_counter()
            if (memory := self._memory()) > self.peak:
                # Measured twice: a process that is starting shares its parent's memory for a moment, which
                # would be counted twice.
                self.peak = max(self.peak, min(memory, self._memory()))
            pause = max(_INTERVAL, _MAX_SHARE * (time.perf_counter() - start))

    def _memory(self) -> int:
        return sum(_pss(pid) for pid in _process_tree(self.pid))


def _process_tree(root: int) -> list[int]:
    """Return the ids of a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - only the names are needed
        if entry.isdigit():
            parent = _read(f"/proc/{entry}/stat").rpartition(")")[2].split()[1:2]
            if parent:
                children.setdefault(int(parent[0]), []).append(int(entry))
    tree = [root]
    for pid in tree:
        tree += children.get(pid, [])
    return tree


def _pss(pid: int) -> int:
    """Return the proportional set size of a process, which divides shared pages by the processes."""
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _read(path: str) -> str:
    """Return the text of a file in /proc, "" if its process has ended."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
