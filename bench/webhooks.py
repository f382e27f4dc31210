"""`make bench-webhooks`: deliveries beside bare POSTs by the same client, and what receivers that hang cost everybody else.

python -m bench.webhooks [--events N] [--pairs N] [--seconds N] [--work DIR]
"""

import argparse
import asyncio
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

from bench.measure import Timing, ms, table, timing
from outcrop.domain.account import Account, Plan
from outcrop.domain.events import Event, EventType
from outcrop.domain.finding import Action
from outcrop.domain.slots import MAX_SLOTS
from outcrop.net.guard import Egress
from outcrop.net.post import PostClient
from outcrop.runtime import prepare_database
from outcrop.services import accounts, exchange, webhooks
from outcrop.services.delivery import DeliveryWorker
from outcrop.services.findings import close_finding
from outcrop.settings import Settings
from outcrop.store import db as database
from outcrop.store import outbox
from outcrop.store.db import Pool
from outcrop.store.embedded.server import embedded_postgres
from outcrop.store.keyring import Keyring
from outcrop.webhooks import USER_AGENT, sign
from tests.support.backend import now
from tests.support.factories import make_line

GOOD, HANG = "https://good.example/in", "https://hang.example/in"
_RATE = 100  # events a second where latency is measured
_WAITING = 10_000
_TRIAGED = 300  # findings in each half of a pair


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each half of a pair")
    parser.add_argument("--work", type=Path, default=Path(".bench/webhooks"))
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    with embedded_postgres(work / "data") as url, _receiver(work) as receiver:
        asyncio.run(_measure(url, work, receiver, arguments))


@dataclass
class Receiver:
    egress: Egress
    to: list[str]
    process: "subprocess.Popen[str]"

    def latencies(self) -> list[float]:
        """Give the seconds that events took since this was asked last."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found: list[float] = json.loads(self.process.stdout.readline())
        return found


@contextmanager
def _receiver(work: Path) -> Iterator[Receiver]:
    command = [sys.executable, "-m", "bench.webhook_receiver", str(work)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            to = [f"{name}.example:443=127.0.0.1:{port}" for name in ("good", "hang")]
            yield Receiver(Egress.parse(["127.0.0.0/8"], to, work / "cert.pem"), to, process)
        finally:
            process.kill()


@dataclass
class Bench:
    pool: Pool
    keys: Keyring
    receiver: Receiver
    environment: dict[str, str]  # of a worker

    async def account(self, slug: str, url: str) -> Account:
        async with self.pool.connection() as db, db.transaction():
            made = await accounts.create_account(
                db, slug=slug, plan=Plan.GROWTH, email=f"{slug}@example.com", by="bench", now=now()
            )
            await webhooks.save_webhook(db, self.keys, made, url, by="bench", now=now())
            return made

    async def write(self, account: Account, count: int, *, stamped: bool = False) -> None:
        """Let events wait, as many changes would."""
        async with self.pool.connection() as db, db.transaction():
            for _ in range(count):
                finding = make_line(source_url=f"{time.time():.6f}" if stamped else None)
                event = Event(EventType.NEW, UUID(finding["id"]), finding)
                await outbox.append(db, account.id, event, event_id=uuid4(), now=now())

    async def fill(self, chosen: Sequence[Account], count: int) -> None:
        """Let many events wait, written at once."""
        finding = json.dumps(make_line(source_url=None))
        async with self.pool.connection() as db:
            await db.execute(
                """INSERT INTO outbox (id, account_id, event, finding_id, finding, created_at)
                   SELECT gen_random_uuid(), (%s::int[])[1 + n %% %s], 'finding.new', gen_random_uuid(), %s, now()
                   FROM generate_series(1, %s) n""",
                [[account.id for account in chosen], len(chosen), finding, count],
            )
            await db.execute("ANALYZE outbox")

    async def waiting(self) -> int:
        async with self.pool.connection() as db:
            (count,) = await database.fetch_single_row(
                db, "SELECT count(*) FROM outbox WHERE outcome IS NULL"
            )
        return int(count)

    async def forget(self) -> None:
        async with self.pool.connection() as db:
            await db.execute("DELETE FROM outbox")
            await db.execute("VACUUM ANALYZE outbox")

    @asynccontextmanager
    async def courier(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        running = asyncio.create_task(
            DeliveryWorker(self.pool, self.keys, PostClient(self.receiver.egress).post).run(stop)
        )
        try:
            yield
        finally:
            stop.set()
            await running

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        """Let a worker run as a process of its own, as it does beside the API."""
        command = [str(Path(sys.executable).with_name("outcrop")), "worker", "--jobs", "1"]
        with subprocess.Popen(command, env=self.environment, stderr=subprocess.DEVNULL) as process:
            await asyncio.sleep(5)  # it loads its rules first
            try:
                yield
            finally:
                process.terminate()


async def _measure(url: str, work: Path, receiver: Receiver, arguments: argparse.Namespace) -> None:
    secret = os.urandom(32).hex()
    settings = Settings(_env_file=None, database_url=url, data_dir=work, secret_key=secret)
    environment = os.environ | {
        "OUTCROP_DATABASE_URL": url,
        "OUTCROP_DATA_DIR": str(work),
        "OUTCROP_SECRET_KEY": secret,
        "OUTCROP_EGRESS_ALLOW": "127.0.0.0/8",
        "OUTCROP_EGRESS_CONNECT_TO": ",".join(receiver.to),
        "OUTCROP_EGRESS_CA_FILE": str(work / "cert.pem"),
        "OUTCROP_VALIDATE": "off",
    }
    keys = await prepare_database(settings, url)
    async with database.open_pool(url, size=8, statement_timeout=60) as pool:
        bench = Bench(pool, keys, receiver, environment)
        await _throughput(bench, arguments.events, arguments.pairs)
        await _hanging(bench, arguments.pairs, arguments.seconds)
        await _triage(bench, arguments.pairs)


async def _throughput(bench: Bench, events: int, pairs: int) -> None:
    account = await bench.account("fast", GOOD)
    rows, ratios = [], []
    part = events // pairs
    await _bare(bench, 200)
    for number in range(pairs):
        bare, bare_cpu = await _timed(lambda: _bare(bench, part))
        await bench.fill([account], part)
        ours, our_cpu = await _timed(lambda: _delivered(bench))
        ratios.append(bare / ours)
        rows.append(
            [
                number + 1,
                f"{part / bare:,.0f}",
                f"{part / ours:,.0f}",
                f"{bare / ours:.2f}",
                f"{bare_cpu:.1f}",
                f"{our_cpu:.1f}",
            ]
        )
    median = statistics.median(ratios)
    heads = ["pair", "bare POSTs a second", "deliveries a second", "ratio", "CPU s, bare", "CPU s, ours"]
    table(f"{events:,} events to one receiver on loopback, TLS, a connection each", heads, rows)
    table(
        "Goal",
        ["", "measured", "goal", "met"],
        [["deliveries of bare POSTs", f"{median:.2f}", "0.70", "yes" if median >= 0.7 else "no"]],
    )
    await bench.forget()


async def _timed(work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    began, cpu = time.perf_counter(), time.process_time()
    await work()
    return time.perf_counter() - began, time.process_time() - cpu


async def _bare(bench: Bench, count: int) -> None:
    """Send the same bodies with the same headers by the same client, and nothing else."""
    poster = PostClient(bench.receiver.egress)
    body = json.dumps({"event": "finding.new", "finding": make_line(source_url=None)}).encode()
    headers = {"Content-Type": "application/json", "User-Agent": USER_AGENT} | sign(
        body, "0" * 64, id_=str(uuid4()), timestamp=1
    )
    left = count

    async def one_after_the_other() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await poster.post(GOOD, headers, body, seconds=10, max_bytes=1 << 16, max_body=2048)

    await asyncio.gather(*(one_after_the_other() for _ in range(MAX_SLOTS)))


async def _delivered(bench: Bench) -> None:
    async with bench.courier():
        while await bench.waiting():
            await asyncio.sleep(0.05)


async def _hanging(bench: Bench, pairs: int, seconds: float) -> None:
    good = [await bench.account(f"good-{n}", GOOD) for n in range(45)]
    hanging = [await bench.account(f"hang-{n}", HANG) for n in range(5)]

    async def half(hang: bool) -> Timing:
        if hang:
            await bench.fill(hanging, 5_000)
        bench.receiver.latencies()
        async with bench.courier():
            await asyncio.sleep(1)
            end = time.perf_counter() + seconds
            number = 0
            while time.perf_counter() < end:
                await bench.write(good[number % len(good)], 1, stamped=True)
                number += 1
                await asyncio.sleep(1 / _RATE)
            await asyncio.sleep(0.5)
        await bench.forget()
        return timing(bench.receiver.latencies())

    await half(hang=False)
    await _pairs(
        half, pairs, "The others' deliveries while 5 of 50 receivers hang, ms from the change to its arrival"
    )


async def _triage(bench: Bench, pairs: int) -> None:
    account = await bench.account("triage", GOOD)
    hanging = [await bench.account(f"wait-{n}", HANG) for n in range(5)]

    async def half(hang: bool) -> Timing:
        ids = await _findings(bench, account)
        if hang:
            await bench.fill(hanging, _WAITING)
        samples = []
        async with bench.worker():
            for id_ in ids:
                began = time.perf_counter()
                async with bench.pool.connection() as db, db.transaction():
                    await close_finding(
                        db, bench.keys, account.id, id_, Action.RESOLVE, note=None, by="bench", now=now()
                    )
                samples.append(time.perf_counter() - began)
                await asyncio.sleep(0.01)
        await bench.forget()
        return timing(samples)

    await half(hang=False)
    await _pairs(half, pairs, f"Resolving a finding while {_WAITING:,} events wait, ms")


async def _findings(bench: Bench, account: Account) -> list[UUID]:
    lines = [make_line() for _ in range(_TRIAGED)]
    file = io.BytesIO(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    async with bench.pool.connection() as db:
        await exchange.import_findings(
            db, bench.keys, account, file, keep_secrets=False, by="bench", now=now(), progress=lambda _: None
        )
    return [UUID(line["id"]) for line in lines]


async def _pairs(half: Callable[[bool], Awaitable[Timing]], pairs: int, title: str) -> None:
    rows, p50, p99 = [], [], []
    for number in range(pairs):
        without, with_ = await half(False), await half(True)
        p50.append(with_.p50 / without.p50)
        p99.append(with_.p99 / without.p99)
        rows.append([number + 1, ms(without.p50), ms(with_.p50), ms(without.p99), ms(with_.p99)])
    table(title, ["pair", "p50 without", "p50 with", "p99 without", "p99 with"], rows)
    goals = []
    for name, ratios, most in (("p50", p50, 1.10), ("p99", p99, 1.30)):
        median = statistics.median(ratios)
        goals.append([name, f"{median:.2f}", f"{most:.2f}", "yes" if median <= most else "no"])
    table("Goals, with of without, median", ["", "measured", "at most", "met"], goals)


if __name__ == "__main__":
    main()
