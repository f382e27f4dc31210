"""Timing and tables for the benchmarks."""

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Seconds."""

    p50: float
    p99: float

    def __truediv__(self, other: "Timing") -> float:
        return self.p50 / other.p50


def timing(samples: Sequence[float]) -> Timing:
    ordered = sorted(samples)
    return Timing(statistics.median(ordered), ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))])


async def timed(work: Callable[[], Awaitable[object]], *, runs: int, at_most: float) -> Timing:
    """Time the work some times over, after one run to warm up, but no longer than `at_most` seconds."""
    await work()
    samples: list[float] = []
    end = time.perf_counter() + at_most
    while len(samples) < runs and (len(samples) < 3 or time.perf_counter() < end):
        began = time.perf_counter()
        await work()
        samples.append(time.perf_counter() - began)
    return timing(samples)


def ms(seconds: float) -> str:
    return f"{seconds * 1000:,.2f}"


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a Markdown table."""
    print(f"\n### {title}\n")
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(head), *(len(row[i]) for row in cells)) for i, head in enumerate(heads)]
    print("| " + " | ".join(head.ljust(width) for head, width in zip(heads, widths, strict=True)) + " |")
    print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    for row in cells:
        print(
            "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |",
            flush=True,
        )
