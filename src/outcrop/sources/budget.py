"""Watch the processes of one source, and cut the source short when it costs more than its limits allow.

A thread measures this process and all processes that it has started since: their memory, their CPU time and
the size of the working folder. Past a limit it kills the processes that were started. The code that waits for
them finds `SourceBudget.reason` set, keeps what was found until then, and reports the reason as a gap.
"""

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from outcrop.limits import MEGA, SOURCE_LIMITS, SourceLimits
from outcrop.processes import child_pids, kill_tree

_INTERVAL = 0.2  # seconds between two measurements
_DISK_EVERY = 5  # measurements: the working folder is measured less often
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class SourceBudget:
    """What one source has cost, and why it was cut short.

    `reason` is None until a limit is reached; then it names the limit. After that, what was found must still
    be located: so the CPU time without new results begins again, and `cuts` counts how often it has ended.
    """

    def __init__(self, limits: SourceLimits = SOURCE_LIMITS) -> None:
        self.limits = limits
        self.reason: str | None = None
        self.cuts = 0
        self._debt = 0.0  # CPU seconds that no work explains
        self._least_debt = 0.0  # below 0 for a large repository
        self._cpu = 0.0  # of all processes until the last measurement
        self._packed = 0  # bytes that `explain_packs` was called with
        self._folder: Path | None = None
        self._deadline = float("inf")
        self._others: set[int] = set()  # child processes of others

    @contextmanager
    def watch(self, folder: Path | None = None) -> Iterator["SourceBudget"]:
        """Watch this process and those that it starts, and the working folder `folder`, until the exit."""
        self._folder = folder
        self._deadline = time.monotonic() + self.limits.seconds
        self._others = set(child_pids(os.getpid()))
        self._cpu = self._measure_cpu([])
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(stop,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join()

    def explain(self, *, objects: int = 0, new_bytes: int = 0, commits: int = 0) -> None:
        """Note work that was done: it explains CPU time."""
        limits = self.limits
        seconds = (
            objects * limits.cpu_per_object
            + new_bytes / MEGA * limits.cpu_per_new_megabyte
            + commits * limits.cpu_per_commit
        )
        self._debt = max(self._least_debt, self._debt - seconds)

    def explain_packs(self, size: int) -> None:
        """Note that the packs have `size` bytes: a large repository costs more before it yields."""
        grown = max(0, size - self._packed) / MEGA * self.limits.cpu_per_packed_megabyte
        self._packed = max(self._packed, size)
        self._least_debt -= grown
        self._debt -= grown

    def _run(self, stop: threading.Event) -> None:
        """Measure until `stop` is set; cut the source short past a limit."""
        number = 0
        while not stop.wait(_INTERVAL):
            reason = self.find_exceeded(with_disk=number % _DISK_EVERY == 0)
            number += 1
            if reason:
                self._cut(reason)

    def find_exceeded(self, *, with_disk: bool = True) -> str | None:
        """Measure, and return the text of a limit that is exceeded; None if none is."""
        started = self._started_pids()
        cpu = max(self._cpu, self._measure_cpu(started))
        self._debt += cpu - self._cpu
        self._cpu = cpu
        limits = self.limits
        if self._debt > limits.idle_cpu:
            return f"nothing new was found in {limits.idle_cpu:g} CPU seconds: the rest was not read"
        if time.monotonic() > self._deadline:
            return f"the time limit of {limits.seconds:g} seconds is reached: the rest was not scanned"
        if _exceeds_memory([os.getpid(), *started], limits.memory):
            return f"the memory limit of {limits.memory // MEGA:,} MB is reached: the rest was not scanned"
        return self._find_exceeded_disk() if with_disk and self._folder else None

    def _find_exceeded_disk(self) -> str | None:
        """Return the text of a limit for the working folder that is exceeded; None if none is."""
        assert self._folder is not None  # noqa: S101 - the caller checks
        size = _folder_bytes(self._folder)
        self.explain_packs(size)
        limits = self.limits
        if size > limits.disk:
            return f"the working folder has reached its limit of {limits.disk // MEGA:,} MB"
        with suppress(OSError):
            if shutil.disk_usage(self._folder).free < limits.free_disk:
                return f"less than {limits.free_disk // MEGA:,} MB are free on the disk of the working folder"
        if _folder_bytes(self._folder.parent) > limits.total_disk:
            return f"all working folders have reached their limit of {limits.total_disk // MEGA:,} MB"
        return None

    def _cut(self, reason: str) -> None:
        """Kill all processes that were started, and give the rest of the work the idle CPU time once more."""
        self.reason = self.reason or reason
        self.cuts += 1
        self._deadline = max(self._deadline, time.monotonic() + self.limits.idle_cpu)
        self._debt = min(self._debt, 0.0) if self.cuts == 1 else self._debt
        for pid in self._started_pids():
            kill_tree(pid)

    def _started_pids(self) -> list[int]:
        """Return the ids of the processes that this process has started since, and of those they started."""
        pids = [pid for pid in child_pids(os.getpid()) if pid not in self._others]
        for pid in pids:  # grows
            pids += child_pids(pid)
        return pids

    def _measure_cpu(self, started: list[int]) -> float:
        """Return the CPU seconds of this process, of those it has waited for, and of the `started` ones."""
        return sum(os.times()[:4]) + sum(map(_cpu_seconds, started))


def was_cut(budget: SourceBudget | None) -> bool:
    """Whether there is a budget and it was cut short, so that the processes that were started are killed."""
    return budget is not None and budget.reason is not None


def _cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process and of the children it has waited for; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("latin-1").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS


def _exceeds_memory(pids: list[int], limit: int) -> bool:
    """Whether these processes together have more than `limit` bytes; pages that they share count once.

    That takes milliseconds, so the resident bytes, which are more, are compared first.
    """
    return sum(map(_resident_bytes, pids)) > limit and sum(map(_proportional_bytes, pids)) > limit


def _resident_bytes(pid: int) -> int:
    """Return the resident bytes of a process, shared pages included; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _proportional_bytes(pid: int) -> int:
    """Return the bytes of a process, with its part of the pages that it shares with others."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return _resident_bytes(pid)
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def _folder_bytes(folder: Path) -> int:
    """Return the bytes that the files in a folder take on the disk; files that cannot be read count 0."""
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += os.lstat(os.path.join(path, name)).st_blocks * 512
    return size
