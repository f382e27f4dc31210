"""Answer GET /metrics at OUTCROP_METRICS_LISTEN, for all processes of an `outcrop serve` or `outcrop worker`.

The server is in the process that has the database and its children, so it answers while the database or a
child is away. It reads no more than a request's head, and knows one path.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outcrop import __version__, metrics
from outcrop.cli.listen import listen
from outcrop.lazy_logger import get_logger
from outcrop.limits import METRICS_CONNECTIONS, METRICS_HEAD_BYTES, METRICS_HEAD_SECONDS, METRICS_SEND_SECONDS
from outcrop.services.activity import MEASURE_SECONDS, Activity, measure
from outcrop.settings import Settings

if TYPE_CHECKING:
    from prometheus_client.core import Metric

PATH = "/metrics"
_MEASURE_EVERY = 1.0  # seconds; several servers may ask

log = get_logger()


@dataclass(slots=True)
class Recording:
    """Where the processes of a service record their metrics; None if nobody asks for them.

    `database` is set as soon as the database is open.
    """

    folder: Path | None = None
    database: str | None = None

    def arguments(self, slot: str) -> list[str]:
        """Return the arguments that let a child process record under the name `slot`."""
        return [] if self.folder is None else ["--metrics-folder", str(self.folder), "--metrics-slot", slot]

    def forget(self, slot: str) -> None:
        """Forget the gauges of a child process that has ended."""
        if self.folder is not None:
            metrics.forget_process(self.folder, slot)


@asynccontextmanager
async def open_metrics(settings: Settings) -> AsyncIterator[Recording]:
    """Record this process's metrics and serve those of all processes until the block ends, if it is set."""
    if settings.metrics_address is None:
        yield Recording()
        return
    sock = await listen(*settings.metrics_address)
    with sock, tempfile.TemporaryDirectory(prefix="outcrop-metrics-") as folder:
        recording = Recording(Path(folder))
        metrics.start_recording(Path(folder), "parent")
        answers = _MetricsAnswers(recording)
        server = await asyncio.start_server(answers.serve, sock=sock, limit=METRICS_HEAD_BYTES)
        log.info("serving_metrics", host=settings.metrics_address[0], port=sock.getsockname()[1])
        try:
            yield recording
        finally:
            server.close()
            await answers.close()
            metrics.stop_recording()


class _MetricsAnswers:
    """Answers the requests of the metrics port."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._connections: set[asyncio.Task[None]] = set()
        self._measuring: asyncio.Task[Activity] | None = None
        self._measured_at = 0.0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close the connection; close it at once if there are too many."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        self._connections.add(task)
        try:
            if len(self._connections) <= METRICS_CONNECTIONS:
                async with asyncio.timeout(METRICS_HEAD_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                response = await self._respond(head)
                async with asyncio.timeout(METRICS_SEND_SECONDS):
                    writer.write(response)
                    await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # the client is too slow, sends too much or has gone
        finally:
            self._connections.discard(task)
            with suppress(OSError):
                writer.close()
                await writer.wait_closed()

    async def close(self) -> None:
        """End the open connections."""
        tasks = [*self._connections, *([] if self._measuring is None else [self._measuring])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=MEASURE_SECONDS)

    async def _respond(self, head: bytes) -> bytes:
        """Return the response to a request."""
        request_line, *lines = head.decode("latin-1").split("\r\n")
        parts = request_line.split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            return _response("400 Bad Request", b"the request cannot be parsed\n")
        method, target, _ = parts
        if target.partition("?")[0] != PATH:
            return _response("404 Not Found", b"the metrics are at /metrics\n", method=method)
        if method not in {"GET", "HEAD"}:
            return _response("405 Method Not Allowed", b"only GET\n", extra="Allow: GET, HEAD\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        activity = await self._measure()
        body, kind = await asyncio.to_thread(
            _render, self._recording.folder, activity, headers.get("accept", "")
        )
        return _response("200 OK", body, kind=kind, method=method)

    async def _measure(self) -> Activity:
        """Return the activity of the database; one that does not answer in time counts as away.

        Requests at the same time share a measurement, and a hanging one is not started a second time.
        """
        now = time.monotonic()
        if self._measuring is None or (self._measuring.done() and now - self._measured_at >= _MEASURE_EVERY):
            self._measuring, self._measured_at = asyncio.create_task(measure(self._recording.database)), now
        done, _ = await asyncio.wait({self._measuring}, timeout=MEASURE_SECONDS)
        return self._measuring.result() if done else Activity(is_up=False)


def _response(
    status: str, body: bytes, *, kind: str = "text/plain; charset=utf-8", extra: str = "", method: str = "GET"
) -> bytes:
    """Return a complete response, after which the connection is closed; without its body for HEAD."""
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        f"X-Content-Type-Options: nosniff\r\n{extra}Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if method == "HEAD" else body)


def _render(folder: Path | None, activity: Activity, accept: str) -> tuple[bytes, str]:
    """Return the metrics of all processes and of the database in the wanted format, and its media type."""
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - not needed without the setting
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415

    registry = CollectorRegistry()
    if folder is not None:
        metrics.add_processes(registry, folder)
    registry.register(_ServiceCollector(activity))
    encode, kind = choose_encoder(accept)
    return encode(registry), kind


class _ServiceCollector:
    """Collects what is known once for the service: its version and the state of its database."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity

    def collect(self) -> "Iterator[Metric]":
        """Yield the metrics. What waits in the database is left out while the database is away."""
        from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415

        build = GaugeMetricFamily("outcrop_build_info", "Version of the program.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        up = float(self._activity.is_up)
        yield GaugeMetricFamily("outcrop_db_up", "Whether the database answers: 1 or 0.", value=up)
        if (waiting := self._activity.waiting) is None:
            return
        count = GaugeMetricFamily("outcrop_jobs_waiting", "Jobs that wait for a worker.", labels=["queue"])
        age = GaugeMetricFamily(
            "outcrop_jobs_oldest_seconds", "Age of the oldest job that waits for a worker.", labels=["queue"]
        )
        for queue, number in waiting.jobs.items():
            count.add_metric([queue], number)
            age.add_metric([queue], waiting.oldest_job_seconds[queue])
        yield count
        yield age
        text = "Webhook events that wait to be sent."
        yield GaugeMetricFamily("outcrop_deliveries_waiting", text, value=waiting.deliveries)
