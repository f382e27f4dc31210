"""The port of the metrics: what it answers, also while the database is away, and to hostile clients."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest
from structlog.testing import capture_logs

from outcrop import __version__
from outcrop.cli import metrics_server
from outcrop.cli.metrics_server import open_metrics
from outcrop.domain.errors import OperatorError
from outcrop.services.activity import MEASURE_SECONDS
from outcrop.settings import Settings
from outcrop.store.runs import jobs
from tests.support.exposition import Served, exchange, parse
from tests.support.servers import free_port

pytestmark = pytest.mark.anyio
GET = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


@asynccontextmanager
async def serving(database: str | None) -> AsyncIterator[int]:
    """Serve the metrics of a database on a free port."""
    with capture_logs() as logs:
        async with open_metrics(Settings(metrics_listen="127.0.0.1:0")) as recording:
            recording.database = database
            yield next(entry["port"] for entry in logs if entry["event"] == "serving_metrics")


async def scrape(port: int) -> Served:
    head, _, body = (await exchange(port, GET)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    return parse(body.decode())


async def test_waiting_work_is_served(database_url: str, keys: object) -> None:
    async with serving(database_url) as port:
        waiting_before = (await scrape(port)).value("outcrop_jobs_waiting", queue="requests")
    assert waiting_before is not None
    async with await psycopg.AsyncConnection.connect(database_url) as db:
        await jobs.defer_jobs(db, "a task of this test", [("a lock", {"account_id": 1})], jobs.INTERACTIVE)
        await db.execute(
            "UPDATE procrastinate_events SET at = now() - interval '1 hour' WHERE job_id ="
            " (SELECT max(id) FROM procrastinate_jobs)"
        )
        await db.commit()
        try:
            async with serving(database_url) as port:
                served = await scrape(port)
        finally:
            await db.execute("DELETE FROM procrastinate_jobs WHERE lock = 'a lock'")
            await db.commit()
    assert served.value("outcrop_db_up") == 1
    assert served.value("outcrop_build_info", version=__version__) == 1
    assert served.value("outcrop_jobs_waiting", queue="requests") == waiting_before + 1
    assert 3600 <= (served.value("outcrop_jobs_oldest_seconds", queue="requests") or 0) < 4000
    assert served.value("outcrop_jobs_waiting", queue="imports") is not None
    assert served.value("outcrop_deliveries_waiting") is not None


@pytest.mark.parametrize("database", [None, "host=127.0.0.1 port={port} user=nobody", "no connection string"])
async def test_without_a_database_the_answer_says_so(database: str | None) -> None:
    async with serving(database and database.format(port=free_port())) as port:
        served = await scrape(port)
    assert served.value("outcrop_db_up") == 0
    assert served.value("outcrop_jobs_waiting", queue="runs") is None
    assert served.value("outcrop_deliveries_waiting") is None
    assert served.value("outcrop_runs_total", type="github", status="completed") == 0


async def test_a_database_that_hangs_does_not_hang_the_answers() -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    hanging = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with hanging:
        database = f"host=127.0.0.1 port={hanging.sockets[0].getsockname()[1]} user=nobody"
        began = time.monotonic()
        async with serving(database) as port:
            answers = await asyncio.gather(*(scrape(port) for _ in range(5)))
            assert [served.value("outcrop_db_up") for served in answers] == [0] * 5
            assert time.monotonic() - began < MEASURE_SECONDS + 30
        assert len(asyncio.all_tasks()) < 20


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"GET /metrics/ HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", b"405 Method Not Allowed"),
        (b"GET /metrics?name[]=x HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"GET /metrics\r\n\r\n", b"400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400 Bad Request"),
        (b"GET /metrics SSH-2.0\r\n\r\n", b"400 Bad Request"),
    ],
)
async def test_other_requests_are_refused(request_: bytes, status: bytes) -> None:
    async with serving(None) as port:
        answer = await exchange(port, request_)
    assert answer.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert b"\r\nConnection: close\r\n" in answer


async def test_the_head_alone_is_sent_for_a_head_request() -> None:
    async with serving(None) as port:
        answer = await exchange(port, GET.replace(b"GET", b"HEAD"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"200 OK" in head
    assert body == b""


async def test_openmetrics_is_served_if_it_is_asked_for() -> None:
    async with serving(None) as port:
        accept = b"Accept: application/openmetrics-text; version=1.0.0\r\n\r\n"
        answer = await exchange(port, GET.removesuffix(b"\r\n") + accept)
    assert b"Content-Type: application/openmetrics-text" in answer
    assert answer.endswith(b"# EOF\n")


async def test_a_slow_or_long_head_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "METRICS_HEAD_SECONDS", 0.2)
    async with serving(None) as port:
        assert await exchange(port, b"GET /metrics HT") == b""
        assert await exchange(port, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 200_000) == b""
        assert (await scrape(port)).value("outcrop_db_up") == 0


async def test_many_idle_connections_do_not_keep_others_out_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "METRICS_HEAD_SECONDS", 1.0)
    monkeypatch.setattr(metrics_server, "METRICS_CONNECTIONS", 4)
    async with serving(None) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        assert await exchange(port, GET) == b""
        for reader, _ in idle:
            assert await reader.read() == b""
        assert (await scrape(port)).value("outcrop_db_up") == 0
        for _, writer in idle:
            writer.close()
            await writer.wait_closed()


async def test_an_address_that_cannot_be_listened_on_is_an_error() -> None:
    with pytest.raises(OperatorError, match=r"cannot listen on 192\.0\.2\.1 port 9464"):
        async with open_metrics(Settings(metrics_listen="192.0.2.1:9464")):
            pass


async def test_nothing_is_served_without_the_setting() -> None:
    async with open_metrics(Settings()) as recording:
        assert recording.folder is None
        assert recording.arguments("api0") == []
        recording.forget("api0")
