"""Receive traces as a collector does: OTLP over HTTP on loopback."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

PATH = "/v1/traces"


@dataclass
class Collector:
    """A running receiver, and the bodies that it was sent."""

    url: str
    bodies: list[bytes] = field(default_factory=list)

    def spans(self) -> list[Span]:
        """Return all received spans, in the order of their start."""
        found = [
            span
            for request in map(ExportTraceServiceRequest.FromString, self.bodies)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def resources(self) -> list[dict[str, str | int]]:
        """Return what each message says about the process that sent it."""
        requests = map(ExportTraceServiceRequest.FromString, self.bodies)
        return [_values(part.resource.attributes) for request in requests for part in request.resource_spans]


def fields(span: Span) -> dict[str, str | int]:
    """Return the attributes of a span."""
    return _values(span.attributes)


def _values(attributes: list[KeyValue]) -> dict[str, str | int]:
    return {
        pair.key: pair.value.int_value if pair.value.HasField("int_value") else pair.value.string_value
        for pair in attributes
    }


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a receiver on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            is_known = self.path == PATH and self.headers["Content-Type"] == "application/x-protobuf"
            if is_known:
                collector.bodies.append(body)
            self.send_response(200 if is_known else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
