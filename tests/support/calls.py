"""Record the calls of a function, or act before them, without replacing it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import unwrap
from types import BuiltinFunctionType, FrameType
from typing import Any, TypeAlias

Tracer: TypeAlias = Callable[[FrameType, str, Any], Any]


@dataclass
class RecordedCall:
    """A call: its arguments by parameter name, and its result; of a generator the last yielded value."""

    function: Callable[..., object]
    arguments: dict[str, Any]
    result: Any = None


@contextmanager
def recorded_calls(*functions: Callable[..., object]) -> Iterator[list[RecordedCall]]:
    """Yield a list that gets each call of these Python functions in this thread, from wherever they are called.

    The interpreter reports the calls, so every module that has imported a function is observed, and none
    has to be patched. A call that a cache answers is no call. A trace function hears of calls of Python
    functions alone; a profile function, which also hears of every built-in one, takes three times as long.
    """
    by_code = {unwrap(function).__code__: function for function in functions}  # type: ignore[attr-defined]
    calls: list[RecordedCall] = []
    by_frame: dict[FrameType, RecordedCall] = {}  # a generator's frame is entered once for each value

    def enter(frame: FrameType, event: str, value: object) -> Tracer | None:
        function = by_code.get(frame.f_code)
        if function is None:
            return None
        frame.f_trace_lines = False
        if frame not in by_frame:
            by_frame[frame] = RecordedCall(function, dict(frame.f_locals))
            calls.append(by_frame[frame])
        return leave

    def leave(frame: FrameType, event: str, result: object) -> None:
        if event == "return" and result is not None:
            by_frame[frame].result = result

    assert sys.gettrace() is None, "a block inside another one, or a debugger"
    sys.settrace(enter)
    try:
        yield calls
    finally:
        sys.settrace(None)


@contextmanager
def before_call(function: Callable[..., object], act: Callable[[int], object]) -> Iterator[None]:
    """Call `act` before each call of a function in this thread, with the number of the call, from 1 on.

    This is for what another process or user does between two statements, and for a fault at one point: if
    `act` raises an exception, the call raises it, and later calls are not observed.
    """
    is_builtin = isinstance(function, BuiltinFunctionType)
    expected = function if is_builtin else unwrap(function).__code__  # type: ignore[attr-defined]
    frames: set[FrameType] = set()  # a coroutine's frame is entered again after each `await`
    count = 0

    def watch(frame: FrameType, event: str, called: object) -> None:
        nonlocal count
        if is_builtin:
            if event != "c_call" or called != expected:
                return
        elif event != "call" or frame.f_code is not expected or frame in frames:
            return
        frames.add(frame)
        count += 1
        act(count)

    with _reported_to(watch):
        yield


@contextmanager
def _reported_to(observer: Callable[[FrameType, str, object], None]) -> Iterator[None]:
    """Report the calls of this thread to earlier observers and to `observer`."""
    earlier = sys.getprofile()

    def report_to_both(frame: FrameType, event: str, value: Any) -> None:
        if earlier is not None:
            earlier(frame, event, value)
        observer(frame, event, value)

    sys.setprofile(observer if earlier is None else report_to_both)
    try:
        yield
    finally:
        sys.setprofile(earlier)
