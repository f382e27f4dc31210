"""End a process with its parent, kill it with all that it started, and start processes uninterrupted.

Also keep the memory of a process, which may hold credentials, out of core dumps.
"""

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

_CHECK_INTERVAL = 0.5  # seconds


def disable_core_dumps() -> None:
    """Keep this process, and all that it starts, from writing a core dump when it crashes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def watch_parent(wait: Callable[[], object], *, stop_within: float | None = None) -> None:
    """Start a thread that ends this process as soon as `wait` returns, which shows that the parent has ended.

    With `stop_within`, the process gets SIGTERM first, and that many seconds to stop. In the end it is killed
    with all processes that it started.
    """

    def end_with_parent() -> None:
        wait()
        if stop_within is not None:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(stop_within)
        for child in child_pids(os.getpid()):
            kill_tree(child)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=end_with_parent, daemon=True).start()


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Handle a SIGINT that arrives in the block after the block: for blocks that start a process or import.

    An interrupt between a process's start and our wait for it would leave the process running, and Python
    loses an interrupt that arrives while it forks. A handler delays the signal, not a signal mask, since the
    process would inherit that. Only the main thread is interrupted.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    delayed: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: delayed.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if delayed:
            handler(*delayed[0])


def wait_for_end(parent: int) -> None:
    """Wait until the process `parent`, the parent of this process, has ended."""
    while os.getppid() == parent:
        time.sleep(_CHECK_INTERVAL)


def kill_tree(pid: int) -> None:
    """Kill a process and all processes that it started: git would otherwise continue to clone."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)  # so that it starts no other process meanwhile
        for child in child_pids(pid):
            kill_tree(child)
        os.kill(pid, signal.SIGKILL)


def child_pids(pid: int) -> list[int]:
    """Return the process ids of the direct children of a process, from /proc; an empty list without /proc."""
    try:
        return [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_bytes().split()
        ]
    except FileNotFoundError:  # the process or a thread has ended, or the kernel has no such file
        return _find_children(pid)
    except OSError:
        return []


def _find_children(pid: int) -> list[int]:
    """Return the process ids of the direct children of a process by reading the parent of each process."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int((entry / "stat").read_text("latin-1").rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.name))
    return found
