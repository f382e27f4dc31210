"""A program run to its end: wall time, CPU time and peak memory of it and of everything it started."""

import os
import resource
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_INTERVAL = 0.05  # seconds between two looks at the memory; longer where a look is slow, so that looking costs at most 1 part in 20


@dataclass(frozen=True)
class Run:
    """Seconds, seconds of user and system time, and bytes."""

    wall: float
    cpu: float
    memory: int


def run(command: Sequence[str], environment: Mapping[str, str], *, output: Path, well: Sequence[int]) -> Run:
    """Run a command, its standard output going to a file. Memory is the largest sum of Pss over the whole process tree."""
    before, began = _children_cpu(), time.perf_counter()
    with output.open("wb") as file, output.with_suffix(".err").open("w+b") as errors:
        process = subprocess.Popen(command, env=os.environ | dict(environment), stdout=file, stderr=errors)
        watch = _Watch(process.pid)
        watch.start()
        code = process.wait()
        wall = time.perf_counter() - began
        watch.ended.set()
        watch.join()
        if code not in well:
            errors.seek(0)
            raise SystemExit(
                f"{command[0]} ended with {code}: {errors.read().decode(errors='replace')[-2000:]}"
            )
    return Run(wall, _children_cpu() - before, watch.peak)


def _children_cpu() -> float:
    """Give the CPU time of all ended children and theirs: only one is measured at a time, so its own is the difference."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class _Watch(threading.Thread):
    """Looks at the memory of a process tree until told that it ended."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid = pid
        self.peak = 0
        self.ended = threading.Event()

    def run(self) -> None:
        pause = 0.0
        while not self.ended.wait(pause):
            began = time.perf_counter()
            if (memory := self._memory()) > self.peak:
                # For a moment a process that is being started has its parent's memory, which would be counted twice.
                self.peak = max(self.peak, min(memory, self._memory()))
            pause = max(_INTERVAL, 20 * (time.perf_counter() - began))

    def _memory(self) -> int:
        return sum(_pss(pid) for pid in _tree(self.pid))


def _tree(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names are all that is wanted
        if entry.isdigit():
            parent = _read(f"/proc/{entry}/stat").rpartition(")")[2].split()[1:2]
            if parent:
                children.setdefault(int(parent[0]), []).append(int(entry))
    tree = [root]
    for pid in tree:
        tree += children.get(pid, [])
    return tree


def _pss(pid: int) -> int:
    """Give the memory of a process, each shared page divided by how many share it."""
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:  # it has just ended
        return ""
