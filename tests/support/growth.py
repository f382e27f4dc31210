"""Compare the work for texts of two sizes, in CPU time or counted: seconds would depend on the machine."""

import sys
import time
from collections.abc import Callable


def cpu_seconds(work: Callable[[int], object], size: int, repeat: int = 3) -> float:
    """Return the least CPU time of some calls of `work(size)`: other processes disturb it least."""
    measured = []
    for _ in range(repeat):
        start = time.process_time()
        work(size)
        measured.append(time.process_time() - start)
    return min(measured)


def grows_linearly(work: Callable[[int], object], size: int, times: int = 8) -> bool:
    """Whether `work(times * size)` takes less than three times as long per item as `work(size)`.

    With quadratic work it would take `times` times as long per item. Below 20 ms nothing is compared: so
    short a time is mostly noise.
    """
    work(size)  # compiles patterns and fills caches
    least = max(cpu_seconds(work, size), 0.02)
    return cpu_seconds(work, times * size, repeat=1) < 3 * times * least or (
        cpu_seconds(work, times * size) < 3 * times * least
    )


class CountingBytes(bytes):
    """Bytes that count in `searched` how many of them `find` and `rfind` read."""

    searched = 0

    def find(self, *arguments: object) -> int:  # type: ignore[override]
        found = super().find(*arguments)  # type: ignore[arg-type]
        start, stop = _bounds(self, *arguments[1:])
        self.searched += max(0, (stop if found < 0 else found) - start)
        return found

    def rfind(self, *arguments: object) -> int:  # type: ignore[override]
        found = super().rfind(*arguments)  # type: ignore[arg-type]
        start, stop = _bounds(self, *arguments[1:])
        self.searched += max(0, stop - (start if found < 0 else found))
        return found


def _bounds(data: bytes, start: object = None, stop: object = None) -> tuple[int, int]:
    """Return the offsets that are meant by the optional arguments of `find`."""
    first, last, _ = slice(start, stop).indices(len(data))
    return first, last


def count_operations(work: Callable[[], object]) -> int:
    """Return how many lines of Python and calls of built-in functions `work` runs."""
    count = 0

    def on_call(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "c_call"

    def on_line(_frame: object, event: str, _argument: object) -> object:
        nonlocal count
        count += event == "line"
        return on_line

    tracer, profiler = sys.gettrace(), sys.getprofile()
    sys.setprofile(on_call)
    sys.settrace(on_line)
    try:
        work()
    finally:
        sys.settrace(tracer)
        sys.setprofile(profiler)
    return count
