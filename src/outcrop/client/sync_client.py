"""The client for programs without an event loop."""

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from outcrop.client import calls
from outcrop.client.answers import (
    MAX_ANSWER_BYTES,
    Answer,
    check_key,
    describe_failure,
    parse_address,
    read_answer,
    retry_after,
)
from outcrop.client.calls import ApiCall
from outcrop.client.errors import TransportError
from outcrop.client.types import (
    BulkActionName,
    BulkResult,
    CommentFields,
    FindingFields,
    ImportFields,
    IncidentFields,
    IncidentOutcomeFields,
    ResultPage,
    ScanFields,
    ScoreFields,
    StatusFields,
)

T = TypeVar("T")


class Client:
    """A client of one account. It may be used by several threads: each call has its own connection.

    A call takes at most `timeout` seconds. After 429 it waits as long as the service says, at most `max_wait`
    seconds in all, and is sent again. `ca_file` has certificates that are trusted besides the system's.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeout: float = 30.0,
        max_wait: float = 120.0,
        ca_file: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._address, self._key = parse_address(url), check_key(key)
        self._timeout, self._max_wait, self._ca_file, self._sleep = timeout, max_wait, ca_file, sleep
        self._tls: ssl.SSLContext | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def __repr__(self) -> str:
        return f"Client({self._address.url!r})"

    # --- version 1

    def list_findings(self, **filters: Any) -> ResultPage[FindingFields]:
        """Return one page of findings. The filters are the parameters of the list."""
        return self._call(calls.list_findings(filters))

    def iterate_findings(self, **filters: Any) -> Iterator[FindingFields]:
        """Yield all findings that match, page by page, each once."""
        return self._iterate(calls.list_findings({"per_page": calls.MAX_PER_PAGE} | filters))

    def get_finding(self, finding_id: str) -> FindingFields:
        """Return one finding."""
        return self._call(calls.get_finding(finding_id))

    def get_score(self, finding_id: str) -> ScoreFields:
        """Return the score of a finding, part by part."""
        return self._call(calls.get_score(finding_id))

    def suppress(self, finding_id: str) -> StatusFields:
        """Hide a finding from the active view."""
        return self._call(calls.triage(finding_id, "suppress"))

    def resolve(self, finding_id: str, note: str | None = None) -> StatusFields:
        """Mark the credential as rotated or removed."""
        return self._call(calls.triage(finding_id, "resolve", note))

    def restrict(self, finding_id: str, note: str | None = None) -> StatusFields:
        """Close a finding whose exposure is acknowledged."""
        return self._call(calls.triage(finding_id, "restrict", note))

    def mark_false_positive(self, finding_id: str, note: str | None = None) -> StatusFields:
        """Mark a finding as not a credential."""
        return self._call(calls.triage(finding_id, "false_positive", note))

    def list_incidents(self, **filters: Any) -> ResultPage[IncidentFields]:
        """Return one page of incidents. The filters are the parameters of the list."""
        return self._call(calls.list_incidents(filters))

    def iterate_incidents(self, **filters: Any) -> Iterator[IncidentFields]:
        """Yield all incidents that match, page by page, each once."""
        return self._iterate(calls.list_incidents({"per_page": calls.MAX_PER_PAGE} | filters))

    def get_incident(self, incident_id: str) -> IncidentFields:
        """Return one incident."""
        return self._call(calls.get_incident(incident_id))

    def triage_incident(
        self, incident_id: str, action: BulkActionName, note: str | None = None
    ) -> IncidentOutcomeFields:
        """Apply an action to all places of an incident."""
        return self._call(calls.triage_incident(incident_id, action, note))

    def assign_incident(self, incident_id: str, assignee: str | None) -> IncidentFields:
        """Assign an incident to the member with this address, or to nobody."""
        return self._call(calls.assign_incident(incident_id, assignee))

    def list_comments(self, incident_id: str, **filters: Any) -> ResultPage[CommentFields]:
        """Return one page of the comments on an incident, newest first."""
        return self._call(calls.list_comments(incident_id, filters))

    def add_comment(self, incident_id: str, text: str) -> CommentFields:
        """Comment on an incident."""
        return self._call(calls.add_comment(incident_id, text))

    def list_scans(self, **filters: Any) -> ResultPage[ScanFields]:
        """Return one page of scan runs, newest first."""
        return self._call(calls.list_scans(filters))

    def iterate_scans(self, **filters: Any) -> Iterator[ScanFields]:
        """Yield all scan runs, newest first."""
        return self._iterate(calls.list_scans({"limit": calls.MAX_SCANS} | filters))

    def get_scan(self, scan_id: str) -> ScanFields:
        """Return one scan run."""
        return self._call(calls.get_scan(scan_id))

    # --- version 2

    def change_findings(
        self,
        action: BulkActionName,
        *,
        ids: Iterable[str] | None = None,
        filters: Mapping[str, Any] | None = None,
        expected_total: int | None = None,
        note: str | None = None,
    ) -> BulkResult:
        """Apply one action to many findings: to those with these ids, or to those that match the filters."""
        return self._call(
            calls.change_findings(action, ids=ids, filters=filters, expected_total=expected_total, note=note)
        )

    def send_report(
        self, report: bytes, *, idempotency_key: str | None = None, **parameters: Any
    ) -> StatusFields:
        """Send a scanner's report; return the id and the status of its import."""
        return self._call(calls.send_report(report, parameters, idempotency_key=idempotency_key))

    def list_imports(self, **filters: Any) -> ResultPage[ImportFields]:
        """Return one page of imports, newest first."""
        return self._call(calls.list_imports(filters))

    def iterate_imports(self, **filters: Any) -> Iterator[ImportFields]:
        """Yield all imports, newest first."""
        return self._iterate(calls.list_imports({"per_page": calls.MAX_PER_PAGE} | filters))

    def get_import(self, import_id: str) -> ImportFields:
        """Return one import."""
        return self._call(calls.get_import(import_id))

    # --- sending

    def _iterate(self, call: ApiCall[ResultPage[Any]]) -> Iterator[Any]:
        """Yield the entries of all pages; one that moved to a later page meanwhile is yielded once."""
        seen: set[str] = set()
        number, pages = int(call.query.get("page", "1")), 1
        while number <= pages or not seen:
            page = self._call(calls.page_call(call, number))
            for entry in page.data:
                if entry["id"] not in seen:
                    seen.add(entry["id"])
                    yield entry
            number, pages = number + 1, page.pages
            if not page.data:
                return

    def _call(self, call: ApiCall[T]) -> T:
        """Send a call, again after each 429 that leaves time to wait; return what it asked for."""
        left = self._max_wait
        while True:
            answer = self._send(call)
            wait = (retry_after(answer) or 1.0) if answer.status == 429 else None
            if wait is None or wait > left:
                return read_answer(call, answer, self._key)
            left -= wait
            self._sleep(wait)

    def _send(self, call: ApiCall[Any]) -> Answer:
        """Send a request once and return the complete answer."""
        address = self._address
        connection = self._connect()
        opened: list[socket.socket] = []
        expired = threading.Event()

        def expire() -> None:
            """End the connection: a server that sends a byte now and then would never time out."""
            expired.set()
            for sock in opened:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(self._timeout, expire)
        timer.daemon = True
        timer.start()
        headers = {"Authorization": f"Bearer {self._key}", "Accept": "application/json"} | dict(call.headers)
        try:
            connection.connect()
            opened.append(connection.sock)  # the connection forgets it when the answer says that it ends
            connection.request(call.method, address.prefix + call.target, body=call.body, headers=headers)
            with connection.getresponse() as response:
                body = response.read(MAX_ANSWER_BYTES + 1)
                if response.length:  # the announced rest did not come
                    raise http.client.IncompleteRead(body)
                named = {name.lower(): value for name, value in response.getheaders()}
                answer = Answer(response.status, named, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise TransportError(self._explain(error, is_late=expired.is_set())) from None
        finally:
            timer.cancel()
            connection.close()
        if expired.is_set():
            raise TransportError(self._explain(TimeoutError(), is_late=True))
        if len(answer.body) > MAX_ANSWER_BYTES:
            raise TransportError(f"{address.url} sends too much")
        return answer

    def _connect(self) -> http.client.HTTPConnection:
        """Return a connection that is not open yet."""
        address = self._address
        if not address.is_https:
            return http.client.HTTPConnection(address.host, address.port, timeout=self._timeout)
        if self._tls is None:
            try:
                self._tls = ssl.create_default_context()
                if self._ca_file is not None:
                    self._tls.load_verify_locations(self._ca_file)
            except OSError:
                raise TransportError("the file of trusted certificates cannot be read") from None
        return http.client.HTTPSConnection(
            address.host, address.port, timeout=self._timeout, context=self._tls
        )

    def _explain(self, error: Exception, *, is_late: bool) -> str:
        """Return why no answer arrived, in one line."""
        url = self._address.url
        if is_late or isinstance(error, TimeoutError):
            return f"{url} did not answer within {self._timeout:g} seconds"
        if isinstance(error, ssl.SSLError):
            return f"{url} has no certificate that this machine trusts, or does not speak TLS"
        if isinstance(error, http.client.IncompleteRead):
            return f"{url} ended its answer early"
        closed = isinstance(error, http.client.RemoteDisconnected)
        if isinstance(error, http.client.HTTPException | ValueError) and not closed:
            return f"what {url} answers is not HTTP"
        return f"{url} cannot be reached: {describe_failure(error)}"
