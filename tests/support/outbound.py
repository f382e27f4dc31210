"""Record the addresses that this process connects to, and refuse those outside of loopback."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_recordings: list[list[tuple[str, int]]] = []


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "socket.connect" or not _recordings:
        return
    address = arguments[1]
    if not isinstance(address, tuple):  # a Unix socket
        return
    for recording in _recordings:
        recording.append(address[:2])
    if not address[0].startswith("127."):
        raise OSError("this test connects to loopback only")


sys.addaudithook(_on_event)  # it cannot be removed, and does nothing outside of a `with` statement


@contextmanager
def connections_to_loopback() -> Iterator[list[tuple[str, int]]]:
    """Yield a list that gets the address and port of each connection; others than to 127.0.0.0/8 fail."""
    recording: list[tuple[str, int]] = []
    _recordings.append(recording)
    try:
        yield recording
    finally:
        _recordings.remove(recording)
