"""Record the calls of a function without replacing it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import unwrap
from types import FrameType
from typing import Any


@dataclass
class RecordedCall:
    """The arguments of one call, by parameter name, and its result; of a generator the last yielded value."""

    arguments: dict[str, Any]
    result: Any = None


@contextmanager
def recorded_calls(function: Callable[..., object]) -> Iterator[list[RecordedCall]]:
    """Yield a list that gets each call of a Python function in this thread, from wherever it is called.

    The interpreter reports the calls, so every module that has imported the function is observed, and none
    has to be patched. A call that a cache answers is no call.
    """
    code = unwrap(function).__code__  # type: ignore[attr-defined]
    calls: list[RecordedCall] = []
    by_frame: dict[FrameType, RecordedCall] = {}  # a generator's frame is entered once for each value

    def record(frame: FrameType, event: str, result: object) -> None:
        if frame.f_code is not code:
            return
        if event == "call" and frame not in by_frame:
            by_frame[frame] = RecordedCall(dict(frame.f_locals))
            calls.append(by_frame[frame])
        elif event == "return" and result is not None:
            by_frame[frame].result = result

    previous = sys.getprofile()
    sys.setprofile(record)
    try:
        yield calls
    finally:
        sys.setprofile(previous)
