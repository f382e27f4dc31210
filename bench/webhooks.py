"""`make bench-webhooks`: deliveries compared with bare POSTs, and how receivers that hang affect others.

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

from bench.measure import Timing, ms, summarize, table
from outcrop.domain.account import Account, Plan
from outcrop.domain.clock import now
from outcrop.domain.events import Event, EventType
from outcrop.domain.finding import Action
from outcrop.domain.slots import MAX_SLOTS
from outcrop.net.guard import Egress
from outcrop.net.post import PostClient
from outcrop.runtime import prepare_database
from outcrop.services import accounts, webhooks
from outcrop.services.delivery import DeliveryWorker
from outcrop.services.exchange.importer import import_findings
from outcrop.services.findings import close_finding
from outcrop.settings import SecretText, Settings
from outcrop.store import db as database
from outcrop.store import outbox
from outcrop.store.db import Pool
from outcrop.store.embedded.server import embedded_postgres
from outcrop.store.keyring import Keyring
from outcrop.webhooks import USER_AGENT, sign
from tests.support.factories import make_line

GOOD, HANG = "https://good.example/in", "https://hang.example/in"
_EVENT_RATE = 100  # events per second while latency is measured
_WAITING_EVENTS = 10_000  # for receivers that hang, while findings are resolved
_RESOLVED_FINDINGS = 300  # in each half of a pair


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
    with embedded_postgres(work / "data") as url, _run_receiver(work) as receiver:
        asyncio.run(_measure(url, work, receiver, arguments))


@dataclass
class Receiver:
    """A running `bench.webhook_receiver`."""

    egress: Egress
    connect_to: list[str]  # the setting that sends its host names to loopback
    process: "subprocess.Popen[str]"

    def latencies(self) -> list[float]:
        """Return the seconds from change to arrival of the events since the last call."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        latencies: list[float] = json.loads(self.process.stdout.readline())
        return latencies


@contextmanager
def _run_receiver(work: Path) -> Iterator[Receiver]:
    """Run a receiver until the block ends."""
    command = [sys.executable, "-m", "bench.webhook_receiver", str(work)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            connect_to = [f"{name}.example:443=127.0.0.1:{port}" for name in ("good", "hang")]
            yield Receiver(Egress.parse(["127.0.0.0/8"], connect_to, work / "cert.pem"), connect_to, process)
        finally:
            process.kill()


@dataclass
class Bench:
    """The database, the receiver and the processes of this benchmark."""

    pool: Pool
    keys: Keyring
    receiver: Receiver
    environment: dict[str, str]  # of a worker process

    async def create_account(self, slug: str, url: str) -> Account:
        """Create an account with a webhook."""
        async with self.pool.connection() as db, db.transaction():
            account = await accounts.create_account(
                db, slug=slug, plan=Plan.GROWTH, email=f"{slug}@example.com", by="bench", now=now()
            )
            await webhooks.save_webhook(db, self.keys, account, url, by="bench", now=now())
            return account

    async def append_events(self, account: Account, count: int, *, stamped: bool = False) -> None:
        """Append events to the outbox as changes do; `stamped` puts the time into the finding."""
        async with self.pool.connection() as db, db.transaction():
            for _ in range(count):
                finding = make_line(source_url=f"{time.time():.6f}" if stamped else None)
                event = Event(EventType.NEW, UUID(finding["id"]), finding)
                await outbox.append(db, account.id, event, event_id=uuid4(), now=now())

    async def fill_outbox(self, receivers: Sequence[Account], count: int) -> None:
        """Append many events of these accounts to the outbox with one statement."""
        finding = json.dumps(make_line(source_url=None))
        async with self.pool.connection() as db:
            await db.execute(
                """INSERT INTO outbox (id, account_id, event, finding_id, finding, created_at)
                   SELECT gen_random_uuid(), (%s::int[])[1 + n %% %s], 'finding.new',
                          gen_random_uuid(), %s, now()
                   FROM generate_series(1, %s) n""",
                [[account.id for account in receivers], len(receivers), finding, count],
            )
            await db.execute("ANALYZE outbox")

    async def count_waiting(self) -> int:
        """Return the number of events that are not delivered yet."""
        async with self.pool.connection() as db:
            (count,) = await database.fetch_single_row(
                db, "SELECT count(*) FROM outbox WHERE outcome IS NULL"
            )
        return int(count)

    async def empty_outbox(self) -> None:
        """Delete all events."""
        async with self.pool.connection() as db:
            await db.execute("DELETE FROM outbox")
            await db.execute("VACUUM ANALYZE outbox")

    @asynccontextmanager
    async def run_deliveries(self) -> AsyncIterator[None]:
        """Deliver events in this process until the block ends."""
        stop = asyncio.Event()
        task = asyncio.create_task(
            DeliveryWorker(self.pool, self.keys, PostClient(self.receiver.egress).post).run(stop)
        )
        try:
            yield
        finally:
            stop.set()
            await task

    @asynccontextmanager
    async def run_worker(self) -> AsyncIterator[None]:
        """Run `outcrop worker` in a process of its own until the block ends."""
        command = [str(Path(sys.executable).with_name("outcrop")), "worker", "--jobs", "1"]
        with subprocess.Popen(command, env=self.environment, stderr=subprocess.DEVNULL) as process:
            await asyncio.sleep(5)  # it loads its rules first
            try:
                yield
            finally:
                process.terminate()


async def _measure(url: str, work: Path, receiver: Receiver, arguments: argparse.Namespace) -> None:
    secret = os.urandom(32).hex()
    settings = Settings(database_url=url, data_dir=work, secret_key=SecretText(secret))
    environment = os.environ | {
        "OUTCROP_DATABASE_URL": url,
        "OUTCROP_DATA_DIR": str(work),
        "OUTCROP_SECRET_KEY": secret,
        "OUTCROP_EGRESS_ALLOW": "127.0.0.0/8",
        "OUTCROP_EGRESS_CONNECT_TO": ",".join(receiver.connect_to),
        "OUTCROP_EGRESS_CA_FILE": str(work / "cert.pem"),
        "OUTCROP_VALIDATE": "off",
    }
    keys = await prepare_database(settings, url)
    async with database.open_pool(url, size=8, statement_timeout=60) as pool:
        bench = Bench(pool, keys, receiver, environment)
        await _measure_throughput(bench, arguments.events, arguments.pairs)
        await _measure_with_hanging_receivers(bench, arguments.pairs, arguments.seconds)
        await _measure_triage(bench, arguments.pairs)


async def _measure_throughput(bench: Bench, events: int, pairs: int) -> None:
    """Print deliveries per second beside bare POSTs per second, in turns."""
    account = await bench.create_account("fast", GOOD)
    rows, ratios = [], []
    part = events // pairs
    await _send_bare_posts(bench, 200)
    for number in range(pairs):
        bare_seconds, bare_cpu = await _measure_once(lambda: _send_bare_posts(bench, part))
        await bench.fill_outbox([account], part)
        delivery_seconds, delivery_cpu = await _measure_once(lambda: _deliver_all(bench))
        ratios.append(bare_seconds / delivery_seconds)
        rows.append(
            [
                number + 1,
                f"{part / bare_seconds:,.0f}",
                f"{part / delivery_seconds:,.0f}",
                f"{bare_seconds / delivery_seconds:.2f}",
                f"{bare_cpu:.1f}",
                f"{delivery_cpu:.1f}",
            ]
        )
    median = statistics.median(ratios)
    headings = [
        "pair",
        "bare POSTs per second",
        "deliveries per second",
        "ratio",
        "CPU s, bare POSTs",
        "CPU s, deliveries",
    ]
    table(f"{events:,} events to one receiver on loopback, each over its own TLS connection", headings, rows)
    table(
        "Goal",
        ["", "measured", "goal", "reached"],
        [["deliveries relative to bare POSTs", f"{median:.2f}", "0.70", "yes" if median >= 0.7 else "no"]],
    )
    await bench.empty_outbox()


async def _measure_once(work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """Return the seconds and CPU seconds of the work."""
    start, cpu_start = time.perf_counter(), time.process_time()
    await work()
    return time.perf_counter() - start, time.process_time() - cpu_start


async def _send_bare_posts(bench: Bench, count: int) -> None:
    """Send the same requests with the same client, without the outbox."""
    client = PostClient(bench.receiver.egress)
    body = json.dumps({"event": "finding.new", "finding": make_line(source_url=None)}).encode()
    headers = {"Content-Type": "application/json", "User-Agent": USER_AGENT} | sign(
        body, "0" * 64, id_=str(uuid4()), timestamp=1
    )
    remaining = count

    async def send_in_turn() -> None:
        nonlocal remaining
        while remaining > 0:
            remaining -= 1
            await client.post(GOOD, headers, body, seconds=10, max_bytes=1 << 16, max_body=2048)

    await asyncio.gather(*(send_in_turn() for _ in range(MAX_SLOTS)))


async def _deliver_all(bench: Bench) -> None:
    """Deliver until no event is waiting."""
    async with bench.run_deliveries():
        while await bench.count_waiting():
            await asyncio.sleep(0.05)


async def _measure_with_hanging_receivers(bench: Bench, pairs: int, seconds: float) -> None:
    """Print the latency of deliveries to 45 receivers, with and without 5 others that hang."""
    good = [await bench.create_account(f"good-{n}", GOOD) for n in range(45)]
    hanging = [await bench.create_account(f"hang-{n}", HANG) for n in range(5)]

    async def measure_latency(hang: bool) -> Timing:
        if hang:
            await bench.fill_outbox(hanging, 5_000)
        bench.receiver.latencies()
        async with bench.run_deliveries():
            await asyncio.sleep(1)
            end = time.perf_counter() + seconds
            number = 0
            while time.perf_counter() < end:
                await bench.append_events(good[number % len(good)], 1, stamped=True)
                number += 1
                await asyncio.sleep(1 / _EVENT_RATE)
            await asyncio.sleep(0.5)
        await bench.empty_outbox()
        return summarize(bench.receiver.latencies())

    await measure_latency(hang=False)
    await _print_pairs(
        measure_latency,
        pairs,
        "Deliveries to the other receivers while 5 of 50 hang, ms from change to arrival",
    )


async def _measure_triage(bench: Bench, pairs: int) -> None:
    """Print the time to resolve a finding, with and without many waiting events."""
    account = await bench.create_account("triage", GOOD)
    hanging = [await bench.create_account(f"wait-{n}", HANG) for n in range(5)]

    async def measure_resolving(hang: bool) -> Timing:
        ids = await _import_findings(bench, account)
        if hang:
            await bench.fill_outbox(hanging, _WAITING_EVENTS)
        samples = []
        async with bench.run_worker():
            for id_ in ids:
                start = time.perf_counter()
                async with bench.pool.connection() as db, db.transaction():
                    await close_finding(
                        db, bench.keys, account.id, id_, Action.RESOLVE, note=None, by="bench", now=now()
                    )
                samples.append(time.perf_counter() - start)
                await asyncio.sleep(0.01)
        await bench.empty_outbox()
        return summarize(samples)

    await measure_resolving(hang=False)
    await _print_pairs(
        measure_resolving, pairs, f"Resolving a finding while {_WAITING_EVENTS:,} events wait, ms"
    )


async def _import_findings(bench: Bench, account: Account) -> list[UUID]:
    """Import new findings into the account and return their ids."""
    lines = [make_line() for _ in range(_RESOLVED_FINDINGS)]
    file = io.BytesIO(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    async with bench.pool.connection() as db:
        await import_findings(db, bench.keys, account, file, by="bench", now=now(), progress=lambda _: None)
    return [UUID(line["id"]) for line in lines]


async def _print_pairs(half: Callable[[bool], Awaitable[Timing]], pairs: int, title: str) -> None:
    """Measure `half` without and with receivers that hang, in pairs, and print the results and the goals."""
    rows, p50, p99 = [], [], []
    for number in range(pairs):
        without, with_ = await half(False), await half(True)
        p50.append(with_.p50 / without.p50)
        p99.append(with_.p99 / without.p99)
        rows.append([number + 1, ms(without.p50), ms(with_.p50), ms(without.p99), ms(with_.p99)])
    table(title, ["pair", "p50 without", "p50 with", "p99 without", "p99 with"], rows)
    goals = []
    for name, ratios, max_ratio in (("p50", p50, 1.10), ("p99", p99, 1.30)):
        median = statistics.median(ratios)
        goals.append([name, f"{median:.2f}", f"{max_ratio:.2f}", "yes" if median <= max_ratio else "no"])
    table("Goals: with, relative to without, median", ["", "measured", "at most", "reached"], goals)


if __name__ == "__main__":
    main()
