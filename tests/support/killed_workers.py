"""Run delivery workers that are killed.

A prepared parent process forks them, so that hundreds can die in a short time.
`python -m tests.support.killed_workers URL PORT CA_FILE` reads one command per line from standard input and
answers each with a line of JSON.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import psycopg

from outcrop.logs import set_up_logs
from outcrop.net import post
from outcrop.net.guard import Egress
from outcrop.net.post import PostClient
from outcrop.runtime import prepare_database
from outcrop.services import delivery
from outcrop.services.delivery import DeliveryWorker
from outcrop.settings import SecretText, Settings
from outcrop.store import db as database
from outcrop.store import outbox
from outcrop.store.keyring import Keyring
from tests.support.deliveries import COUNT_OPEN, HOST, SECRET_KEY


def die(*_: object, **__: object) -> NoReturn:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


# --- the points of a delivery at which a worker can be killed; each function patches a forked process


def while_claiming() -> None:
    claim = outbox.claim_events

    async def claim_and_die(*args: Any) -> Any:
        if await claim(*args):
            die()
        return []

    outbox.claim_events = claim_and_die  # type: ignore[assignment]


def when_claimed() -> None:
    DeliveryWorker._send = die  # type: ignore[method-assign]


def when_connected() -> None:
    post._PostProtocol.connection_made = die  # type: ignore[method-assign]


def while_sending() -> None:
    def send_half(self: Any, transport: Any) -> None:
        transport.write(self._request[: len(self._request) // 2])
        asyncio.get_running_loop().call_later(0.1, die)

    post._PostProtocol.connection_made = send_half  # type: ignore[method-assign]


def when_sent() -> None:
    connection_made = post._PostProtocol.connection_made

    def send_all(self: Any, transport: Any) -> None:
        connection_made(self, transport)
        asyncio.get_running_loop().call_later(0.1, die)

    post._PostProtocol.connection_made = send_all  # type: ignore[method-assign]


def when_answered() -> None:
    post_event = PostClient.post

    async def post_and_die(*args: Any, **kwargs: Any) -> Any:
        await post_event(*args, **kwargs)
        die()

    PostClient.post = post_and_die  # type: ignore[method-assign]


def while_writing() -> None:
    outbox.save_results = die  # type: ignore[assignment]


def when_written() -> None:
    save_results = outbox.save_results

    async def save_and_die(*args: Any, **kwargs: Any) -> None:
        await save_results(*args, **kwargs)
        die()

    outbox.save_results = save_and_die


POINTS: dict[str, Callable[[], None]] = {
    change.__name__: change
    for change in (
        while_claiming,
        when_claimed,
        when_connected,
        while_sending,
        when_sent,
        when_answered,
        while_writing,
        when_written,
    )
}


# --- the parent process


class WorkerParent:
    """A process that has loaded everything and forks delivery workers."""

    def __init__(self, url: str, keys: Keyring, egress: Egress) -> None:
        self.url = url
        self.keys = keys
        self.poster = PostClient(egress)

    def fork(self, change: Callable[[], None] | None = None) -> int:
        """Fork a worker, patched by `change`; return its process id."""
        if (pid := os.fork()) == 0:
            try:
                if change is not None:
                    change()
                asyncio.run(self.work())
            finally:
                os._exit(0)
        return pid

    async def work(self) -> None:
        """Run a delivery worker until SIGTERM."""
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        async with database.open_pool(self.url, size=2, statement_timeout=20) as pool:
            await DeliveryWorker(pool, self.keys, self.poster.post, slots=20).run(stop)

    def die(self, point: str) -> bool:
        """Run a worker that kills itself at a point; return whether it did."""
        pid = self.fork(POINTS[point])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            ended_pid, status = os.waitpid(pid, os.WNOHANG)
            if ended_pid:
                return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return False

    def race(self, *, kills: int, seconds: float, pause: float, worker_count: int = 4) -> dict[str, Any]:
        """Run several workers, kill and replace them at random times, and wait until no event waits."""
        rng = random.Random(6)
        workers = [self.fork() for _ in range(worker_count)]
        killed = 0
        deadline = time.monotonic() + seconds
        while killed < kills and time.monotonic() < deadline and self.waiting():
            time.sleep(rng.expovariate(1 / pause))
            pid = workers.pop(rng.randrange(worker_count))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            workers.append(self.fork())
            killed += 1
        final_deadline = time.monotonic() + 120
        while self.waiting() and time.monotonic() < final_deadline:
            time.sleep(0.1)
        for pid in workers:
            os.kill(pid, signal.SIGTERM)
        for pid in workers:
            os.waitpid(pid, 0)
        return {"killed": killed}

    def waiting(self) -> int:
        """Return the number of events that wait to be claimed."""
        with psycopg.connect(self.url, autocommit=True) as db:
            row = db.execute(COUNT_OPEN.encode() + b" AND claimed_at IS NULL").fetchone()
        return 0 if row is None else int(row[0])


def main() -> None:
    """Execute the commands of standard input."""
    url, port, ca_file = sys.argv[1:4]
    settings = Settings(
        database_url=url, data_dir=Path("/nonexistent"), secret_key=SecretText(SECRET_KEY), validate_="off"
    )
    egress = Egress.parse(["127.0.0.0/8"], [f"{HOST}:443=127.0.0.1:{port}"], Path(ca_file))
    set_up_logs("error", "json")
    delivery._IDLE_PAUSE = 0.05
    parent = WorkerParent(url, asyncio.run(prepare_database(settings, url)), egress)
    for line in sys.stdin:
        name, _, rest = line.strip().partition(" ")
        result: object = parent.die(rest) if name == "die" else parent.race(**json.loads(rest))
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
