"""What a receiver of OpenTelemetry is sent: spans of requests, jobs and validations, without private text."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from uuid import uuid4

import procrastinate
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from procrastinate.testing import InMemoryConnector
from structlog.testing import capture_logs

from outcrop import __version__, tracing
from outcrop.limits import TRACE_FLUSH_SECONDS
from outcrop.store.runs import jobs
from outcrop.tracing import is_tracing, record_span, start_tracing, stop_tracing
from outcrop.worker.tasks import trace_jobs
from tests.support.backend import Backend, running_server
from tests.support.checks import run_with_validator, write_rule
from tests.support.factories import make_line
from tests.support.fake_https import FakeResponse, serve_https
from tests.support.otlp import Collector, collecting, fields

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture(autouse=True)
def _without_variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    yield
    stop_tracing()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Yield a receiver that this process sends its spans to."""
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        start_tracing()
        assert is_tracing()
        yield collector
        stop_tracing()


def test_a_request_is_a_span_with_the_template_of_its_route(settings, keys, collector):
    with (
        running_server(settings, rate_limit=0) as server,
        Backend(settings, keys, server.base_url) as backend,
    ):
        tenant = backend.tenant()
        line = make_line()
        backend.import_(tenant.account, line)
        listed = tenant.get("/findings", q="a-private-query")
        tenant.get(f"/findings/{line['id']}")
        assert backend.client("oc_live_private").get(f"/api/v1/findings/{line['id']}").status_code == 401
        backend.client().get("/a-private-path")
        backend.client().post("/hooks/github/a-private-token", content=b"{}")
        backend.client().request("PROPFIND", "/healthz/")
        backend.client().get("/healthz")
        backend.client().get("/readyz")
    stop_tracing()

    spans = collector.spans()
    assert [span.name for span in spans] == [
        "GET /api/v1/findings",
        "GET /api/v1/findings/{finding_id}",
        "GET /api/v1/findings/{finding_id}",
        "GET",
        "POST /hooks/{host}/{token}",
        "_OTHER /healthz",
    ]
    assert fields(spans[0]) == {
        "http.request.method": "GET",
        "http.route": "/api/v1/findings",
        "http.response.status_code": 200,
        "outcrop.request_id": listed.headers["x-request-id"],
    }
    assert [fields(span)["http.response.status_code"] for span in spans[:3]] == [200, 200, 401]
    assert {span.kind for span in spans} == {Span.SPAN_KIND_SERVER}
    assert {span.status.code for span in spans} == {Status.STATUS_CODE_UNSET}
    sent = b"".join(collector.bodies)
    for private in (
        "private",
        tenant.key,
        line["id"],
        line["repo_full_name"],
        line["file_path"],
        "127.0.0.1",
    ):
        assert private.encode() not in sent
    assert all(resource["service.name"] == "outcrop" for resource in collector.resources())
    assert all(resource["service.version"] == __version__ for resource in collector.resources())


def test_an_error_of_the_server_is_an_error_of_the_span(settings, keys, collector):
    with (
        running_server(settings, rate_limit=0) as server,
        Backend(settings, keys, server.base_url) as backend,
    ):
        tenant = backend.tenant()
        with backend.without_tables("findings"):
            assert tenant.get(f"/findings/{uuid4()}").status_code == 500
    stop_tracing()
    (span,) = collector.spans()
    assert (span.status.code, span.status.message) == (Status.STATUS_CODE_ERROR, "")
    assert not span.events  # an exception's text may contain a credential


def test_the_span_of_the_client_is_the_parent(settings, keys, collector):
    with (
        running_server(settings, rate_limit=0) as server,
        Backend(settings, keys, server.base_url) as backend,
    ):
        client = backend.client()
        secret = "secret=a-private-value"
        client.get("/sign-in", headers={"traceparent": TRACEPARENT, "tracestate": secret, "baggage": secret})
        client.get(
            "/sign-in", headers={"traceparent": f"00-{TRACE}-{PARENT}-00"}
        )  # it records nothing either
        client.get("/sign-in", headers={"traceparent": f"00-{TRACE}-nonsense-01"})
        client.get("/sign-in", headers=[("traceparent", TRACEPARENT), ("traceparent", TRACEPARENT)])
        client.get("/sign-in")
    stop_tracing()
    first, *others = collector.spans()
    assert (first.trace_id.hex(), first.parent_span_id.hex(), first.trace_state) == (TRACE, PARENT, "")
    assert len(others) == 3
    assert {span.parent_span_id for span in others} == {b""}
    assert len({span.trace_id for span in (first, *others)}) == 4
    assert b"a-private-value" not in b"".join(collector.bodies)


def test_the_parent_is_ignored_without_its_propagator(settings, keys, monkeypatch):
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.url}/v1/traces")
        monkeypatch.setenv("OTEL_PROPAGATORS", "none")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "scans")
        start_tracing()
        with record_span("GET", {}, is_request=True, traceparent=TRACEPARENT):
            pass
        stop_tracing()
        (span,) = collector.spans()
        assert span.parent_span_id == b""
        assert collector.resources()[0]["service.name"] == "scans"


def test_a_job_is_a_span_with_its_queue_its_kind_and_its_outcome(collector):
    app = procrastinate.App(connector=InMemoryConnector())

    @app.task(name="plan_run")
    async def plan(text: str) -> None:
        assert text == "an argument"
        if not is_tracing():
            raise AssertionError

    @app.task(name="look_at_source")
    async def look(text: str) -> None:
        raise RuntimeError(text)

    @app.task(name="poll_target")
    async def poll(text: str) -> None:
        raise asyncio.CancelledError(text)

    trace_jobs(app)

    async def main() -> None:
        async with app.open_async():
            for task, queue in ((plan, jobs.QUEUE), (look, "pushes"), (poll, "polls")):
                await task.configure(queue=queue).defer_async(text="an argument")
            await app.run_worker_async(wait=False, install_signal_handlers=False)

    asyncio.run(main())
    stop_tracing()
    assert [fields(span) for span in collector.spans()] == [
        {"outcrop.queue": "runs", "outcrop.job": "plan_run", "outcrop.outcome": "completed"},
        {"outcrop.queue": "pushes", "outcrop.job": "look_at_source", "outcrop.outcome": "failed"},
        {"outcrop.queue": "polls", "outcrop.job": "poll_target", "outcrop.outcome": "cancelled"},
    ]
    assert [span.status.code for span in collector.spans()] == [Status.STATUS_CODE_UNSET] + 2 * [
        Status.STATUS_CODE_ERROR
    ]
    assert b"an argument" not in b"".join(collector.bodies)


def test_a_validation_is_a_span_of_its_job_with_issuer_and_verdict(collector, tmp_path):
    answer = FakeResponse(401, {"Content-Type": "application/json"}, b"{}")
    acme = write_rule(tmp_path)

    async def work(validator):
        with record_span("job", {}):
            return await validator.check(acme, "acme_private", {})

    with serve_https(tmp_path, ("api.acme.example",), lambda _: answer) as issuer:
        assert run_with_validator(issuer.egress, work).status == "invalid"
    stop_tracing()
    job, validation = collector.spans()
    assert validation.name == "validate"
    assert fields(validation) == {"outcrop.issuer": "acme", "outcrop.verdict": "invalid"}
    assert validation.parent_span_id == job.span_id
    assert b"acme_private" not in b"".join(collector.bodies)


def test_an_exception_is_not_described(collector):
    with pytest.raises(ValueError, match="private"), record_span("job", {}):
        raise ValueError("a-private-text")
    stop_tracing()
    (span,) = collector.spans()
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert b"private" not in b"".join(collector.bodies)


def test_a_receiver_that_never_answers_holds_nothing_up(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        start_tracing()
        began = time.monotonic()
        for _ in range(5_000):
            with record_span("job", {}):
                pass
        stop_tracing()
        assert time.monotonic() - began < TRACE_FLUSH_SECONDS + 20


ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_SERVICE_NAME": "outcrop"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
        ENDPOINT | {"OTEL_SDK_DISABLED": "TRUE"},
        ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_without_the_variables_nothing_is_recorded_or_logged(variables):
    with capture_logs() as logs:
        start_tracing(variables)
    assert not is_tracing()
    assert logs == []


@pytest.mark.parametrize(
    "variables",
    [
        ENDPOINT,
        ENDPOINT | {"OTEL_SDK_DISABLED": "false"},
        {"OTEL_TRACES_EXPORTER": "otlp"},
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://collector.example/v1/traces"},
        ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
    ],
)
def test_each_of_the_variables_switches_traces_on(variables, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    start_tracing()
    assert is_tracing()


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"OTEL_TRACES_EXPORTER": "a-private-value"}, "OTEL_TRACES_EXPORTER: must be otlp or none"),
        (
            ENDPOINT | {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL: must be http/protobuf",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "a-private-value:4318"},
            "OTEL_EXPORTER_OTLP_ENDPOINT: must begin with http:// or https://",
        ),
        (
            ENDPOINT | {"OTEL_BSP_SCHEDULE_DELAY": "-1"},
            "a variable OTEL_* has a wrong value: ValueError",
        ),
    ],
)
def test_what_cannot_be_followed_is_one_warning(variables, reason, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with capture_logs() as logs:
        start_tracing()
    assert not is_tracing()
    assert logs == [{"event": "traces_not_sent", "log_level": "warning", "reason": reason}]


def test_a_missing_package_is_one_warning(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with capture_logs() as logs:
        start_tracing(ENDPOINT)
    assert not is_tracing()
    (entry,) = logs
    assert entry["reason"] == "opentelemetry.sdk.trace is not installed: pip install 'outcrop[otel]'"


def test_without_the_variables_the_sdk_is_not_imported():
    code = (
        "import sys; from outcrop import tracing; import outcrop.asgi, outcrop.worker.main; tracing.start_tracing();"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_span_that_is_not_recorded_costs_next_to_nothing():
    assert tracing._sender is None
    began = time.process_time()
    for _ in range(10_000):
        with record_span("validate", {}):
            pass
    assert time.process_time() - began < 1  # 100 µs each, on the slowest machine
