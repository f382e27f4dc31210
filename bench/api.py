"""`make bench-api`: the REST API for an account of a million findings, in a database with 200 small accounts.

python -m bench.api [--findings N] [--dir DIR] [--only lists,filters,incidents,oracle,http,triage]; --dir
reuses the database of an earlier run.
"""

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from bench import corpus, filters, http_load, incidents, oracle, team_work
from bench.measure import LIST_HEADINGS, Timing, measure, measure_list, ms, summarize, table
from outcrop.domain.account import Plan
from outcrop.domain.errors import NotFoundError
from outcrop.domain.finding import Action, Finding, SourceType, Status, Validation
from outcrop.domain.paging import FindingQuery, OrderBy, OrderDir, Page
from outcrop.domain.secret import MaskedText
from outcrop.runtime import Runtime, open_runtime
from outcrop.services import accounts, findings
from outcrop.services.exchange.importer import import_findings
from outcrop.settings import Settings
from outcrop.store.findings import rows

SMALL_ACCOUNTS = 200
PARTS = ("lists", "filters", "incidents", "oracle", "http", "triage")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--findings", type=int, default=1_000_000)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--only", default=",".join(PARTS))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="outcrop-bench-") as temporary:
        folder = arguments.dir or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        asyncio.run(_run(folder, arguments.findings, arguments.only.split(",")))


async def _run(folder: Path, count: int, parts: list[str]) -> None:
    settings = Settings(data_dir=folder / "data")
    async with open_runtime(settings, pool_size=8, statement_timeout=60) as runtime:
        account_id, small_id = await _fill(folder, runtime, count)
        if "lists" in parts:
            await _measure_lists(runtime, account_id, small_id)
        if "filters" in parts:
            await filters.measure_filters(runtime, account_id)
        if "incidents" in parts:
            await incidents.measure_incidents(runtime, account_id)
        if "oracle" in parts:
            await oracle.compare(runtime, account_id, 1000)
        if "http" in parts:
            await http_load.compare(runtime, settings, account_id)
        if "triage" in parts:
            await _measure_triage(folder, runtime, account_id, count)


# --- fill the database


async def _fill(folder: Path, runtime: Runtime, count: int) -> tuple[int, int]:
    """Create the accounts and import their findings; return the ids of the large and of a small account."""
    async with runtime.pool.connection() as db:
        try:
            big = await accounts.get_account(db, "big")
            small = await accounts.get_account(db, "small-7")
        except NotFoundError:
            for slug in ["big", *(f"small-{n}" for n in range(SMALL_ACCOUNTS))]:
                await accounts.create_account(
                    db,
                    slug=slug,
                    plan=Plan.ENTERPRISE,
                    email=f"{slug}@example.com",
                    by="bench",
                    now=corpus.NOW,
                )
        else:
            return big.id, small.id
    for n in range(SMALL_ACCOUNTS):
        corpus.write_file(folder / "small.jsonl", 100, seed=1000 + n)
        await _import_in_process(runtime, f"small-{n}", folder / "small.jsonl")
    corpus.write_file(folder / "big.jsonl", count, seed=1)
    seconds, memory = await _import_by_command(folder, "big", folder / "big.jsonl")
    figures = [f"{count:,}", f"{seconds:,.1f}", f"{count / seconds:,.0f}", f"{memory / 2**20:,.0f}"]
    table(
        "Import, `outcrop import`",
        ["findings", "seconds", "findings per second", "peak resident memory, MiB"],
        [figures],
    )
    async with runtime.pool.connection() as db:
        await team_work.fill_team_work(db, "big")
        return (await accounts.get_account(db, "big")).id, (await accounts.get_account(db, "small-7")).id


async def _import_in_process(runtime: Runtime, slug: str, path: Path) -> None:
    async with runtime.pool.connection() as db:
        account = await accounts.get_account(db, slug)
        with path.open("rb") as file:
            await import_findings(
                db,
                runtime.keys,
                account,
                file,
                by="bench",
                now=corpus.NOW,
                progress=lambda _: None,
            )


async def _import_by_command(folder: Path, slug: str, file: Path) -> tuple[float, int]:
    """Run `outcrop import` and return its seconds and its peak memory in bytes."""
    start = time.perf_counter()
    process = _start_import(folder, slug, file)
    peak = 0
    while process.poll() is None:
        await asyncio.sleep(0.05)
        peak = max(peak, _peak_memory(process.pid))
    if process.returncode != 0:
        raise SystemExit("the import failed")
    return time.perf_counter() - start, peak


def _start_import(folder: Path, slug: str, file: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"OUTCROP_DATA_DIR": str(folder / "data")}
    command = [str(Path(sys.executable).with_name("outcrop")), "import", "--account", slug, str(file)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


def _peak_memory(pid: int) -> int:
    """Return the peak resident memory of a process in bytes, 0 if it has ended."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


# --- lists


def _cases(total: int) -> list[tuple[str, str, FindingQuery]]:
    """Return name, goal and query of each list; a goal is a multiple of that by primary key, or a time."""
    q = FindingQuery
    last = total // 25
    days30: dict[str, Any] = {
        "seen_from": corpus.NOW - timedelta(days=400),
        "seen_before": corpus.NOW - timedelta(days=370),
    }
    years2: dict[str, Any] = {
        "seen_from": corpus.NOW - timedelta(days=800),
        "seen_before": corpus.NOW - timedelta(days=70),
    }
    cases = [
        ("no filter, page 1", "10", q()),
        ("no filter, middle page", "40", q(page=last // 2)),
        ("no filter, last page", "40", q(page=last)),
    ]
    for order in OrderBy:
        for direction in OrderDir:
            cases.append((f"{order} {direction}, page 1", "10", q(order_by=order, order_dir=direction)))
            cases.append(
                (
                    f"{order} {direction}, page at 0.3",
                    "40",
                    q(order_by=order, order_dir=direction, page=last * 3 // 10),
                )
            )
    three: dict[str, Any] = {
        "status": Status.ACTIVE,
        "validation": Validation.VALID,
        "source_type": SourceType.COMMIT,
    }
    rare: dict[str, Any] = {
        "status": Status.CUSTOMER_RESTRICTED,
        "validation": Validation.ERROR,
        "source_type": SourceType.GIST,
    }
    cases += [
        ("status", "10", q(status=Status.ACTIVE)),
        ("status, deep", "40", q(status=Status.ACTIVE, page=last // 5)),
        (
            "status, deep by first_seen_at",
            "40",
            q(status=Status.ACTIVE, page=last // 5, order_by=OrderBy.FIRST_SEEN_AT),
        ),
        (
            "status, deep by last_seen_at",
            "40",
            q(status=Status.ACTIVE, page=last // 5, order_by=OrderBy.LAST_SEEN_AT),
        ),
        ("status + validation + source_type", "10", q(**three)),
        ("status + validation + source_type, deep", "40", q(**three, page=last // 40)),
        ("the same, a rare triple", "10", q(**rare)),
        ("min_score 90", "10", q(min_score=90.0)),
        ("min_score 90, deep", "40", q(min_score=90.0, page=last // 20)),
        ("min_score 50.5", "10", q(min_score=50.5)),
        ("min_score 50.5, deep", "40", q(min_score=50.5, page=last // 3)),
        ("service rare", "10", q(service=corpus.RARE_SERVICE)),
        ("service common", "10", q(service=corpus.COMMON_SERVICE)),
        ("service common, deep", "40", q(service=corpus.COMMON_SERVICE, page=last // 10)),
        ("30 days", "10", q(**days30)),
        ("30 days, deep", "40", q(**days30, page=500)),
        ("2 years", "10", q(**years2)),
        ("2 years, deep", "40", q(**years2, page=last // 3)),
        ("30 days + status", "300", q(**days30, status=Status.ACTIVE)),
        ("30 days + status, deep", "300", q(**days30, status=Status.ACTIVE, page=300)),
        ("2 years + status", "300", q(**years2, status=Status.ACTIVE)),
        ("2 years + status, deep", "300", q(**years2, status=Status.ACTIVE, page=last // 5)),
        ("2 years + min_score 50.5", "300", q(**years2, min_score=50.5)),
        ("2 years + min_score 50.5, deep", "300", q(**years2, min_score=50.5, page=last // 6)),
        ("service common + status", "300", q(service=corpus.COMMON_SERVICE, status=Status.ACTIVE)),
        ("service common + 30 days", "300", q(service=corpus.COMMON_SERVICE, **days30)),
        (
            "service common + 2 years + status, deep",
            "300",
            q(service=corpus.COMMON_SERVICE, **years2, status=Status.ACTIVE, page=500),
        ),
        (
            "service common by first_seen_at",
            "300",
            q(service=corpus.COMMON_SERVICE, order_by=OrderBy.FIRST_SEEN_AT),
        ),
        (
            "service common by last_seen_at, deep",
            "2000 ms",
            q(service=corpus.COMMON_SERVICE, order_by=OrderBy.LAST_SEEN_AT, page=2000),
        ),
        ("q rare", "100", q(terms=(corpus.RARE_TERM,))),
        ("q in 1 of 10", "600", q(terms=(corpus.COMMON_TERM,))),
        ("q in 1 of 10, deep", "600", q(terms=(corpus.COMMON_TERM,), page=2000)),
        ("q of 2 characters", "600", q(terms=(corpus.TWO_CHARACTERS,))),
        ("q of 2 characters + status", "600", q(terms=(corpus.TWO_CHARACTERS,), status=Status.ACTIVE)),
        (
            "everything combined",
            "2000 ms",
            q(
                **three,
                service=corpus.COMMON_SERVICE,
                min_score=50.5,
                **years2,
                terms=(corpus.COMMON_TERM, "config"),
                suppressed=False,
                order_by=OrderBy.LAST_SEEN_AT,
            ),
        ),
    ]
    return cases


async def _measure_lists(runtime: Runtime, account_id: int, small_id: int) -> None:
    """Print the time of every list, relative to 25 rows by primary key."""

    async def page_of(list_account_id: int, query: FindingQuery) -> Page[Finding]:
        async with runtime.pool.connection() as db:
            return await findings.list_findings(db, list_account_id, query)

    first = await page_of(account_id, FindingQuery())
    base = await _measure_by_key(runtime, account_id, [item.id for item in first.items])
    table_rows = [["25 rows by primary key", ms(base.p50), ms(base.p99), "1", "", ""]]
    for name, goal, query in _cases(first.total):
        table_rows.append(await measure_list(name, goal, base, partial(page_of, account_id, query)))
    table_rows.append(
        await measure_list("a small account, page 1", "10", base, lambda: page_of(small_id, FindingQuery()))
    )
    small_search = FindingQuery(terms=(corpus.COMMON_TERM,))
    table_rows.append(
        await measure_list(
            "a small account, q in 1 of 10", "100", base, lambda: page_of(small_id, small_search)
        )
    )
    table(f"Lists over {first.total:,} findings in one account", LIST_HEADINGS, table_rows)


async def _measure_by_key(runtime: Runtime, account_id: int, ids: list[UUID]) -> Timing:
    """Measure the selection of rows by primary key, which no list can beat."""
    sql = f"SELECT {rows.COLUMNS} FROM findings WHERE account_id = %s AND id = ANY(%s)".encode()

    async def work() -> None:
        async with runtime.pool.connection() as db:
            cursor = await db.execute(sql, [account_id, ids])
            await cursor.fetchall()

    return await measure(work, runs=2000, max_seconds=10)


# --- triage while an import runs


async def _measure_triage(folder: Path, runtime: Runtime, account_id: int, count: int) -> None:
    """Print the time to close a finding, alone and while an import into the same account runs."""
    async with runtime.pool.connection() as db:
        page = await findings.list_findings(db, account_id, FindingQuery(status=Status.ACTIVE, per_page=200))
    ids = [item.id for item in page.items]
    dice = random.Random(3)

    async def close_random_finding() -> float:
        finding_id = dice.choice(ids)
        start = time.perf_counter()
        async with runtime.pool.connection() as db, db.transaction():
            await findings.close_finding(
                db,
                runtime.keys,
                account_id,
                finding_id,
                dice.choice(list(Action)),
                note=MaskedText("n"),
                by="b@example.com",
                now=corpus.NOW,
            )
        return time.perf_counter() - start

    async def measure_closing(runs: int) -> Timing:
        samples = []
        for _ in range(runs):
            await _reopen(runtime, account_id, ids)
            samples.append(await close_random_finding())
            await asyncio.sleep(0.01)
        return summarize(samples)

    corpus.write_file(folder / "second.jsonl", count, seed=2)
    await measure_closing(50)
    alone = await measure_closing(1000)
    process = _start_import(folder, "big", folder / "second.jsonl")
    await asyncio.sleep(10)
    during_import = await measure_closing(1000)
    still_running = process.poll() is None
    process.terminate()
    process.wait()
    table_rows = [
        ["no import", ms(alone.p50), ms(alone.p99), "1", "1"],
        [
            "import running",
            ms(during_import.p50),
            ms(during_import.p99),
            f"{during_import / alone:.2f}",
            f"{during_import.p99 / alone.p99:.2f}",
        ],
    ]
    note = "" if still_running else " (the import ended before the measurement did)"
    table(
        f"Triage in the same account{note}; goal: at most 2×",
        ["", "p50, ms", "p99, ms", "p50 ×", "p99 ×"],
        table_rows,
    )


async def _reopen(runtime: Runtime, account_id: int, ids: list[UUID]) -> None:
    """Make all these findings active again."""
    async with runtime.pool.connection() as db:
        await db.execute(
            """UPDATE findings
               SET status = 'active', resolved_at = NULL, auto_resolved = NULL, resolved_by = NULL
               WHERE account_id = %s AND id = ANY(%s) AND status <> 'active'""",
            [account_id, ids],
        )


if __name__ == "__main__":
    main()
