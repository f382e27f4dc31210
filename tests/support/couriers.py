"""Couriers that are killed: a warm parent that forks them, so that hundreds can die in half a minute.

`python -m tests.support.couriers URL PORT CA_FILE` takes one command a line on standard input and answers each with one line of JSON.
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
from outcrop.settings import Settings
from outcrop.store import db as database
from outcrop.store import outbox
from outcrop.store.keyring import Keyring
from tests.support.deliveries import HOST, LEFT, SECRET_KEY


def die(*_: object, **__: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


# --- the named points of a delivery; each changes a process that is about to be forked away


def while_claiming() -> None:
    claim = outbox.claim_events

    async def broken(*given: Any) -> Any:
        if await claim(*given):
            die()
        return []

    outbox.claim_events = broken  # type: ignore[assignment]


def when_claimed() -> None:
    DeliveryWorker._send = die  # type: ignore[method-assign]


def when_connected() -> None:
    post._PostProtocol.connection_made = die  # type: ignore[method-assign]


def while_sending() -> None:
    def half(self: Any, transport: Any) -> None:
        transport.write(self._request[: len(self._request) // 2])
        asyncio.get_running_loop().call_later(0.1, die)

    post._PostProtocol.connection_made = half  # type: ignore[method-assign]


def when_sent() -> None:
    made = post._PostProtocol.connection_made

    def whole(self: Any, transport: Any) -> None:
        made(self, transport)
        asyncio.get_running_loop().call_later(0.1, die)

    post._PostProtocol.connection_made = whole  # type: ignore[method-assign]


def when_answered() -> None:
    send = PostClient.post

    async def sent(*given: Any, **more: Any) -> Any:
        await send(*given, **more)
        die()

    PostClient.post = sent  # type: ignore[method-assign]


def while_writing() -> None:
    outbox.save_results = die  # type: ignore[assignment]


def when_written() -> None:
    settle = outbox.save_results

    async def settled(*given: Any, **more: Any) -> None:
        await settle(*given, **more)
        die()

    outbox.save_results = settled


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


# --- the warm parent


class Parent:
    def __init__(self, url: str, keys: Keyring, egress: Egress) -> None:
        self.url = url
        self.keys = keys
        self.poster = PostClient(egress)

    def fork(self, change: Callable[[], None] | None = None) -> int:
        if (pid := os.fork()) == 0:
            try:
                if change is not None:
                    change()
                asyncio.run(self.work())
            finally:
                os._exit(0)
        return pid

    async def work(self) -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        async with database.open_pool(self.url, size=2, statement_timeout=20) as pool:
            await DeliveryWorker(pool, self.keys, self.poster.post, slots=20).run(stop)

    def die(self, point: str) -> bool:
        """Let a courier run until it dies at a point; tell whether it did."""
        pid = self.fork(POINTS[point])
        end = time.monotonic() + 60
        while time.monotonic() < end:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return False

    def race(self, *, kills: int, seconds: float, pause: float, racing: int = 4) -> dict[str, Any]:
        """Let couriers race, kill them at random moments, and let others take over until nothing waits."""
        dice = random.Random(6)
        living = [self.fork() for _ in range(racing)]
        killed = 0
        end = time.monotonic() + seconds
        while killed < kills and time.monotonic() < end and self.waiting():
            time.sleep(dice.expovariate(1 / pause))
            pid = living.pop(dice.randrange(racing))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            living.append(self.fork())
            killed += 1
        late = time.monotonic() + 120
        while self.waiting() and time.monotonic() < late:
            time.sleep(0.1)
        for pid in living:
            os.kill(pid, signal.SIGTERM)
        for pid in living:
            os.waitpid(pid, 0)
        return {"killed": killed}

    def waiting(self) -> int:
        with psycopg.connect(self.url, autocommit=True) as db:
            row = db.execute(LEFT.encode() + b" AND claimed_at IS NULL").fetchone()
        return 0 if row is None else int(row[0])


def main() -> None:
    url, port, ca_file = sys.argv[1:4]
    settings = Settings(
        _env_file=None, database_url=url, data_dir=Path("/nonexistent"), secret_key=SECRET_KEY
    )
    egress = Egress.parse(["127.0.0.0/8"], [f"{HOST}:443=127.0.0.1:{port}"], Path(ca_file))
    set_up_logs("error", "json")
    delivery._IDLE_PAUSE = 0.05
    parent = Parent(url, asyncio.run(prepare_database(settings, url)), egress)
    for line in sys.stdin:
        name, _, rest = line.strip().partition(" ")
        done: object = parent.die(rest) if name == "die" else parent.race(**json.loads(rest))
        sys.stdout.write(json.dumps(done) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
