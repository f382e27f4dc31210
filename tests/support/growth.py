"""Compare the CPU time of work of two sizes: a limit in seconds would depend on the machine."""

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
