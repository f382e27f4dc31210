"""What several processes record is one answer, and a restarted process goes on with its counts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from starlette.routing import Route

from outcrop import metrics
from outcrop.api.route_names import RouteNames
from outcrop.domain.finding import Validation
from outcrop.domain.scan import ScanStatus, ScanType, SourceState
from outcrop.domain.webhook import DeliveryOutcome
from outcrop.settings import Settings
from tests.support.exposition import Served, parse


@pytest.fixture(autouse=True)
def _end() -> Iterator[None]:
    yield
    metrics.stop_recording()


def collect(folder: Path) -> Served:
    registry = CollectorRegistry()
    metrics.add_processes(registry, folder)
    return parse(generate_latest(registry).decode())


def test_the_counts_of_all_processes_are_added(tmp_path: Path) -> None:
    for slot, number in (("api0", 2), ("api1", 3)):
        metrics.start_recording(tmp_path, slot)
        for _ in range(number):
            metrics.count_request("/api/v1/findings", "GET", 200, 0.02)
        metrics.set_pool_connections(used=number, idle=1, unopened=4)
    served = collect(tmp_path)
    labels = {"route": "/api/v1/findings", "method": "GET", "status": "200"}
    assert served.value("outcrop_http_requests_total", **labels) == 5
    assert served.value("outcrop_http_request_seconds_count", route="/api/v1/findings") == 5
    bucket = {"route": "/api/v1/findings", "le": "0.01"}
    assert served.value("outcrop_http_request_seconds_bucket", **bucket) == 0
    assert served.value("outcrop_http_request_seconds_bucket", **bucket | {"le": "0.025"}) == 5
    assert served.value("outcrop_db_pool_connections", state="used") == 5
    assert served.value("outcrop_db_pool_connections", state="unopened") == 8


def test_a_process_that_is_started_again_goes_on_with_its_counts_and_not_its_gauges(tmp_path: Path) -> None:
    metrics.start_recording(tmp_path, "api0")
    metrics.count_deliveries("ok", 4)
    metrics.set_pool_connections(used=3, idle=0, unopened=0)
    metrics.forget_process(tmp_path, "api0")
    assert collect(tmp_path).value("outcrop_db_pool_connections", state="used") is None
    assert collect(tmp_path).value("outcrop_deliveries_total", outcome="ok") == 4
    metrics.start_recording(tmp_path, "api0")
    metrics.count_deliveries("ok")
    assert collect(tmp_path).value("outcrop_deliveries_total", outcome="ok") == 5


def test_every_known_series_exists_before_the_first_event(tmp_path: Path) -> None:
    metrics.start_recording(tmp_path, "parent")
    served = collect(tmp_path)
    assert served.value("outcrop_runs_total", type="scrape", status="failed") == 0
    assert served.value("outcrop_embedded_restarts_total") == 0
    # The names here are those of the program.
    assert set(metrics.RUN_TYPES) == set(ScanType)
    assert set(metrics.RUN_STATUSES) == {ScanStatus.COMPLETED, ScanStatus.FAILED}
    assert set(metrics.SOURCE_OUTCOMES) == {SourceState.DONE, SourceState.FAILED}
    assert set(metrics.VERDICTS) == set(Validation)
    assert set(metrics.DELIVERY_OUTCOMES) == set(DeliveryOutcome)


def test_a_client_cannot_make_new_labels(tmp_path: Path) -> None:
    metrics.start_recording(tmp_path, "api0")
    for number in range(50):
        metrics.count_request(metrics.UNMATCHED, f"METHOD{number}", 405, 0.1)
    metrics.count_request(metrics.UNMATCHED, "GET", 0, 0.1)
    served = collect(tmp_path)
    assert served.value("outcrop_http_requests_total", route="unmatched", method="other", status="405") == 50
    assert served.value("outcrop_http_requests_total", route="unmatched", method="GET", status="none") == 1
    assert served.total("outcrop_http_requests_total") == 51


def test_nothing_is_recorded_without_being_started(tmp_path: Path) -> None:
    metrics.count_request("/", "GET", 200, 0.1)
    metrics.count_run("github", "failed")
    metrics.count_source("done")
    metrics.count_validation("valid")
    metrics.count_deliveries("ok")
    metrics.count_embedded_restart()
    metrics.set_pool_connections(used=1, idle=0, unopened=0)
    assert not metrics.is_recording()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/findings", "/findings"),
        ("/findings/", "/findings"),
        ("/findings/0b6f6a5e", "/findings/{finding_id}"),
        ("/findings/acme/resolve", "/findings/{finding_id}/resolve"),
        ("/static/a/b.css", "/static/{address}"),
        ("/", "/"),
        ("", "/"),
        ("/findings/acme/other", "unmatched"),
        ("/acme@example.com", "unmatched"),
        ("/findings\n", "unmatched"),
    ],
)
def test_a_path_has_the_name_of_its_route(path: str, route: str) -> None:
    paths = (
        "/",
        "/findings",
        "/findings/{finding_id}",
        "/findings/{finding_id}/resolve",
        "/static/{address:path}",
    )
    assert RouteNames([Route(path, lambda _: None) for path in paths]).find(path) == route


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9464", ("127.0.0.1", 9464)),
        ("[::1]:9464", ("::1", 9464)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_the_address_of_the_metrics(text: str, address: tuple[str, int]) -> None:
    assert Settings(metrics_listen=text).metrics_address == address


@pytest.mark.parametrize(
    "text",
    ["9464", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "::1:9464", "[::1]", "on",
     "http://127.0.0.1:9464", "127.0.0.1:94a", "[1.2.3.4]:1", "a b:1", "127.0.0.1:9464/metrics"],
)  # fmt: skip
def test_another_text_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|Expected 4 octets|At least 3 parts"):
        Settings(metrics_listen=text)
