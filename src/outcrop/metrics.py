"""Count what a process of the service does, for the answer of GET /metrics.

The counts of a process are in files of a folder that all processes of one `serve` share, and one of them adds
them up. A function here does nothing until `start_recording` is called, so commands pay nothing, and neither
does a service without OUTCROP_METRICS_LISTEN. prometheus-client is imported by then only.

The recorder belongs to the process, as prometheus-client's own registry does: runs, deliveries and requests
are counted in places that share nothing else.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER_METHOD = "other"
UNMATCHED = "unmatched"  # the route of a request whose path no route has
NO_STATUS = "none"  # the client left before the response began

RUN_TYPES = ("github", "scrape")
RUN_STATUSES = ("completed", "failed")
SOURCE_OUTCOMES = ("done", "failed")
VERDICTS = ("valid", "invalid", "unvalidated", "error", "unreachable")
DELIVERY_OUTCOMES = ("ok", "failed", "unknown", "dropped")
POOL_STATES = ("used", "idle", "unopened")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class _Recorder:
    """The metrics of one process, named `slot` among the processes that share the folder."""

    def __init__(self, slot: str) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values  # noqa: PLC0415

        # A process that takes the place of a dead one goes on with its counts.
        values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]
        own = CollectorRegistry()
        self.requests = Counter(
            "outcrop_http_requests_total",
            "HTTP requests that were answered.",
            ["route", "method", "status"],
            registry=own,
        )
        self.seconds = Histogram(
            "outcrop_http_request_seconds",
            "Seconds from a request's head to the end of its response.",
            ["route"],
            buckets=_SECONDS,
            registry=own,
        )
        self.runs = Counter("outcrop_runs_total", "Runs that ended.", ["type", "status"], registry=own)
        self.sources = Counter(
            "outcrop_sources_total", "Sources of runs that ended.", ["outcome"], registry=own
        )
        self.validations = Counter(
            "outcrop_validations_total", "Verdicts on credentials.", ["verdict"], registry=own
        )
        self.deliveries = Counter(
            "outcrop_deliveries_total", "Webhook deliveries that ended.", ["outcome"], registry=own
        )
        self.connections = Gauge(
            "outcrop_db_pool_connections",
            "Connections of the pools to the database; the sum of all states is the largest number.",
            ["state"],
            multiprocess_mode="livesum",
            registry=own,
        )
        self.embedded_restarts = Counter(
            "outcrop_embedded_restarts_total",
            "Times that the embedded PostgreSQL had died and was started again.",
            registry=own,
        )
        self._requests_by_key: dict[tuple[str, str, int], Counter] = {}
        self._seconds_by_route: dict[str, Histogram] = {}
        self._create_known_series()

    def _create_known_series(self) -> None:
        """Create the series whose labels are known, with 0: a rate needs the value before the first event."""
        for kind in RUN_TYPES:
            for status in RUN_STATUSES:
                self.runs.labels(kind, status)
        for outcome in SOURCE_OUTCOMES:
            self.sources.labels(outcome)
        for verdict in VERDICTS:
            self.validations.labels(verdict)
        for outcome in DELIVERY_OUTCOMES:
            self.deliveries.labels(outcome)
        for state in POOL_STATES:
            self.connections.labels(state)

    def count_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request. The series are looked up in a dict, which is faster than `labels`."""
        key = (route, method, status)
        if (requests := self._requests_by_key.get(key)) is None:
            known = method if method in METHODS else OTHER_METHOD
            requests = self.requests.labels(route, known, str(status) if status else NO_STATUS)
            if known == method:
                self._requests_by_key[key] = requests
        requests.inc()
        if (duration := self._seconds_by_route.get(route)) is None:
            duration = self._seconds_by_route[route] = self.seconds.labels(route)
        duration.observe(seconds)


_recorder: _Recorder | None = None


def start_recording(folder: Path, slot: str) -> None:
    """Record the metrics of this process in a folder. `slot` is the process's name there, without `_`."""
    global _recorder  # noqa: PLW0603 - see the module's docstring
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)  # prometheus-client has no other way
    _recorder = _Recorder(slot)


def stop_recording() -> None:
    """Record nothing from now on; the files stay."""
    global _recorder  # noqa: PLW0603
    _recorder = None
    os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)


def is_recording() -> bool:
    """Whether this process records metrics."""
    return _recorder is not None


def forget_process(folder: Path, slot: str) -> None:
    """Remove the gauges of a process that has ended; its counts stay."""
    from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415

    mark_process_dead(slot, str(folder))  # type: ignore[no-untyped-call]


def add_processes(registry: "CollectorRegistry", folder: Path) -> None:
    """Add to a registry what all processes have recorded in a folder."""
    from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415

    MultiProcessCollector(registry, str(folder))  # type: ignore[no-untyped-call]


def count_request(route: str, method: str, status: int, seconds: float) -> None:
    """Count a request: its route's template, and the status of its response, 0 if there was none."""
    if _recorder is not None:
        _recorder.count_request(route, method, status, seconds)


def count_run(type_: str, status: str) -> None:
    """Count a run that ended."""
    if _recorder is not None:
        _recorder.runs.labels(type_, status).inc()


def count_source(outcome: str) -> None:
    """Count a source of a run that ended."""
    if _recorder is not None:
        _recorder.sources.labels(outcome).inc()


def count_validation(verdict: str) -> None:
    """Count a verdict on a credential."""
    if _recorder is not None:
        _recorder.validations.labels(verdict).inc()


def count_deliveries(outcome: str, number: int = 1) -> None:
    """Count webhook deliveries that ended."""
    if _recorder is not None:
        _recorder.deliveries.labels(outcome).inc(number)


def count_embedded_restart() -> None:
    """Count a start of an embedded PostgreSQL that had died."""
    if _recorder is not None:
        _recorder.embedded_restarts.inc()


def set_pool_connections(*, used: int, idle: int, unopened: int) -> None:
    """Set how many connections of this process's pool are used, idle and not opened."""
    if _recorder is not None:
        for state, number in zip(POOL_STATES, (used, idle, unopened), strict=True):
            _recorder.connections.labels(state).set(number)
