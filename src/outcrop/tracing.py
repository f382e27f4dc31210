"""Send traces with OpenTelemetry, if its standard variables (OTEL_*) ask for them.

A span has the template of a route, a queue and a kind of job, or an issuer and the class of a verdict. It has
no path, no query string and no text of an exception: these may contain a credential. The provider is not the
global one, so a library that knows OpenTelemetry too sends nothing through it.

Without the variables the SDK is not imported, and `record_span` does nothing. The sender belongs to the
process, as the recorder of the metrics does.
"""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from outcrop import __version__
from outcrop.lazy_logger import get_logger
from outcrop.limits import TRACE_FLUSH_SECONDS

SERVICE = "outcrop"  # `service.name`, unless the variables have another one
_PROTOCOL = "http/protobuf"
_PROPAGATOR = "tracecontext"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")

log = get_logger()


@dataclass(slots=True)
class TraceSpan:
    """What a span says. It may be changed until the span ends."""

    fields: dict[str, str | int] = field(default_factory=dict)
    has_failed: bool = False


class _SpanSender:
    """Records the spans of this process, and sends them in batches from a thread of its own."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        import requests  # noqa: PLC0415 - see the module's docstring
        from opentelemetry.context import Context  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        from opentelemetry.trace import SpanKind, StatusCode  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        session = requests.Session()
        session.trust_env = False  # no proxy and no .netrc of the environment, as for other connections
        resource = Resource.create()
        own = {"service.version": __version__}
        if str(resource.attributes["service.name"]).startswith("unknown_service"):
            own["service.name"] = SERVICE
        self._provider = TracerProvider(resource=resource.merge(Resource(own)), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(session=session)))
        self._tracer = self._provider.get_tracer(SERVICE, __version__)
        self._new_trace, self._propagator = Context, TraceContextTextMapPropagator()
        self._error, self._server, self._internal = StatusCode.ERROR, SpanKind.SERVER, SpanKind.INTERNAL
        self._honours_parents = _PROPAGATOR in (_list("OTEL_PROPAGATORS", environment) or [_PROPAGATOR])

    @contextmanager
    def record(
        self, name: str, span: TraceSpan, *, is_request: bool, traceparent: str | None
    ) -> Iterator[None]:
        """Record the body as a span: a request below its client's span, anything else below the current one.

        The header `tracestate` of a request is not read: it may contain any text.
        """
        carrier = {"traceparent": traceparent} if traceparent and self._honours_parents else {}
        with self._tracer.start_as_current_span(
            name,
            context=self._propagator.extract(carrier, self._new_trace()) if is_request else None,
            kind=self._server if is_request else self._internal,
            attributes=span.fields,
            record_exception=False,
            set_status_on_exception=False,
        ) as started:
            try:
                yield
            except BaseException:
                span.has_failed = True
                raise
            finally:
                started.set_attributes(span.fields)
                if span.has_failed:
                    started.set_status(self._error)

    def close(self) -> None:
        """Send the spans that wait."""
        self._provider.shutdown()


_sender: _SpanSender | None = None


def start_tracing(environment: Mapping[str, str] = os.environ) -> None:
    """Send the spans of this process from now on, if the variables ask for it; log why if it cannot."""
    global _sender  # noqa: PLW0603 - see the module's docstring
    if not _is_wanted(environment):
        return
    try:
        reason = _find_obstacle(environment)
        if reason is None:
            _sender = _SpanSender(environment)
    except ImportError as error:
        reason = f"{error.name} is not installed: pip install 'outcrop[otel]'"
    except (OSError, ValueError) as error:
        reason = f"a variable OTEL_* has a wrong value: {type(error).__name__}"
    if reason is not None:
        log.warning("traces_not_sent", reason=reason)


def stop_tracing() -> None:
    """Record nothing from now on, and send the spans that wait; give up on a receiver that is too slow."""
    global _sender
    sender, _sender = _sender, None
    if sender is not None:
        closing = threading.Thread(target=sender.close, daemon=True)
        closing.start()
        closing.join(TRACE_FLUSH_SECONDS)


def is_tracing() -> bool:
    """Whether this process sends spans."""
    return _sender is not None


@contextmanager
def record_span(
    name: str, fields: Mapping[str, str | int], *, is_request: bool = False, traceparent: str | None = None
) -> Iterator[TraceSpan]:
    """Record the body as a span; yield what the span says. `traceparent` is that header of a request."""
    span = TraceSpan(dict(fields))
    if _sender is None:
        yield span
        return
    with _sender.record(name, span, is_request=is_request, traceparent=traceparent):
        yield span


def _is_wanted(environment: Mapping[str, str]) -> bool:
    """Whether OTEL_TRACES_EXPORTER or an endpoint asks for traces, unless OTEL_SDK_DISABLED forbids it."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if exporters := _list("OTEL_TRACES_EXPORTER", environment):
        return "none" not in exporters
    return bool(_first(_ENDPOINTS, environment))


def _find_obstacle(environment: Mapping[str, str]) -> str | None:
    """Return why the variables cannot be followed, without their values; None if they can be."""
    if any(name != "otlp" for name in _list("OTEL_TRACES_EXPORTER", environment)):
        return "OTEL_TRACES_EXPORTER: must be otlp or none"
    if _first(_PROTOCOLS, environment) not in {"", _PROTOCOL}:
        return f"OTEL_EXPORTER_OTLP_PROTOCOL: must be {_PROTOCOL}"
    if endpoint := _first(_ENDPOINTS, environment):
        parts = urlsplit(endpoint)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            return "OTEL_EXPORTER_OTLP_ENDPOINT: must begin with http:// or https://"
    return None


def _list(name: str, environment: Mapping[str, str]) -> list[str]:
    """Return the parts of a variable that is a list with commas."""
    parts = [part.strip().lower() for part in environment.get(name, "").split(",")]
    return [part for part in parts if part]


def _first(names: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """Return the first of these variables that is set; an empty text if none is."""
    return next((value for name in names if (value := environment.get(name, "").strip())), "")
