"""Notice an embedded server that never ends its recovery from a crash, and kill it.

After a crash of one of its processes the server starts a process that recovers the data. If that one is
killed too, PostgreSQL 18.6 starts no other and refuses all connections from then on.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from psycopg import pq

from outcrop.lazy_logger import get_logger
from outcrop.processes import child_pids
from outcrop.store.embedded.cluster import Cluster, read_pid

_CHECK_EVERY = 5.0  # seconds
_STUCK_AFTER = 20.0  # seconds without a process that recovers; the server needs 5 to end the others

log = get_logger()


class RecoveryWatch:
    """Kills a server that has refused connections for `seconds` although nothing recovers its data."""

    def __init__(self, cluster: Cluster, seconds: float = _STUCK_AFTER) -> None:
        self._cluster = cluster
        self._seconds = seconds
        self._checked = 0.0
        self._since: float | None = None

    def kill_if_stuck(self) -> None:
        """Check the server, unless that was done a moment ago; to be called again and again."""
        now = time.monotonic()
        if now < self._checked + min(_CHECK_EVERY, self._seconds / 2):
            return
        self._checked = now
        pid = self._find_stuck_server()
        if pid is None:
            self._since = None
        elif self._since is None:
            self._since = now
        elif now > self._since + self._seconds:
            log.error("database_recovery_stuck", data=str(self._cluster.data))
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            self._since = None

    def _find_stuck_server(self) -> int | None:
        """Return the process id of a server that runs, refuses connections, and recovers nothing.

        A server that stops says so in its lock file. One that starts has a process that recovers its data.
        """
        lock = self._cluster.data / "postmaster.pid"
        with suppress(OSError):
            pid = read_pid(lock)
            if pid is None or not self._cluster.is_server(pid):
                return None
            if lock.read_text().split()[-1] not in {"starting", "ready"}:
                return None
            children = child_pids(pid)
            recovers = any(b"startup" in Path(f"/proc/{child}/cmdline").read_bytes() for child in children)
            if children and not recovers and self._cluster.ping() == pq.Ping.REJECT:
                return pid
        return None
