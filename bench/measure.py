"""Timing and tables for the benchmarks."""

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Median and 99th percentile of some measurements, in seconds."""

    p50: float
    p99: float

    def __truediv__(self, other: "Timing") -> float:
        """Return how many times as long the median is."""
        return self.p50 / other.p50


def summarize(samples: Sequence[float]) -> Timing:
    """Return median and 99th percentile of the samples."""
    ordered = sorted(samples)
    return Timing(statistics.median(ordered), ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))])


async def measure(work: Callable[[], Awaitable[object]], *, runs: int, max_seconds: float) -> Timing:
    """Measure the work `runs` times after one run to warm up; stop after `max_seconds`, at 3 runs or more."""
    await work()
    samples: list[float] = []
    end = time.perf_counter() + max_seconds
    while len(samples) < runs and (len(samples) < 3 or time.perf_counter() < end):
        start = time.perf_counter()
        await work()
        samples.append(time.perf_counter() - start)
    return summarize(samples)


LIST_HEADINGS = ["list", "p50, ms", "p99, ms", "× by key", "goal", "reached"]


async def measure_list(
    name: str, goal: str, base: Timing, work: Callable[[], Awaitable[object]]
) -> list[str]:
    """Measure one list and return its row under LIST_HEADINGS; `base` is the time by primary key.

    The goal is a multiple of that time, such as "10", or a time, such as "50 ms".
    """
    timing = await measure(work, runs=200, max_seconds=6)
    limit = float(goal.removesuffix(" ms")) / 1000 if goal.endswith(" ms") else float(goal) * base.p50
    shown = goal if goal.endswith(" ms") else f"{goal} ×"
    is_reached = "yes" if timing.p50 <= limit else "NO"
    return [name, ms(timing.p50), ms(timing.p99), f"{timing / base:,.1f}", shown, is_reached]


def ms(seconds: float) -> str:
    """Format seconds as milliseconds with two decimals."""
    return f"{seconds * 1000:,.2f}"


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a Markdown table."""
    print(f"\n### {title}\n")
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, [heading, *(row[i] for row in cells)])) for i, heading in enumerate(headings)]
    print(
        "| "
        + " | ".join(heading.ljust(width) for heading, width in zip(headings, widths, strict=True))
        + " |"
    )
    print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    for row in cells:
        print(
            "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |",
            flush=True,
        )
