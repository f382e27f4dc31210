"""The client for programs with an event loop."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
from yarl import URL

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


class AsyncClient:
    """A client of one account, for `async with`. The arguments and methods are those of `Client`."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeout: float = 30.0,
        max_wait: float = 120.0,
        ca_file: str | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._address, self._key = parse_address(url), check_key(key)
        self._timeout, self._max_wait, self._ca_file, self._sleep = timeout, max_wait, ca_file, sleep
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncClient({self._address.url!r})"

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    # --- version 1

    async def list_findings(self, **filters: Any) -> ResultPage[FindingFields]:
        """Return one page of findings. The filters are the parameters of the list."""
        return await self._call(calls.list_findings(filters))

    def iterate_findings(self, **filters: Any) -> AsyncIterator[FindingFields]:
        """Yield all findings that match, page by page, each once."""
        return self._iterate(calls.list_findings({"per_page": calls.MAX_PER_PAGE} | filters))

    async def get_finding(self, finding_id: str) -> FindingFields:
        """Return one finding."""
        return await self._call(calls.get_finding(finding_id))

    async def get_score(self, finding_id: str) -> ScoreFields:
        """Return the score of a finding, part by part."""
        return await self._call(calls.get_score(finding_id))

    async def suppress(self, finding_id: str) -> StatusFields:
        """Hide a finding from the active view."""
        return await self._call(calls.triage(finding_id, "suppress"))

    async def resolve(self, finding_id: str, note: str | None = None) -> StatusFields:
        """Mark the credential as rotated or removed."""
        return await self._call(calls.triage(finding_id, "resolve", note))

    async def restrict(self, finding_id: str, note: str | None = None) -> StatusFields:
        """Close a finding whose exposure is acknowledged."""
        return await self._call(calls.triage(finding_id, "restrict", note))

    async def mark_false_positive(self, finding_id: str, note: str | None = None) -> StatusFields:
        """Mark a finding as not a credential."""
        return await self._call(calls.triage(finding_id, "false_positive", note))

    async def list_incidents(self, **filters: Any) -> ResultPage[IncidentFields]:
        """Return one page of incidents. The filters are the parameters of the list."""
        return await self._call(calls.list_incidents(filters))

    def iterate_incidents(self, **filters: Any) -> AsyncIterator[IncidentFields]:
        """Yield all incidents that match, page by page, each once."""
        return self._iterate(calls.list_incidents({"per_page": calls.MAX_PER_PAGE} | filters))

    async def get_incident(self, incident_id: str) -> IncidentFields:
        """Return one incident."""
        return await self._call(calls.get_incident(incident_id))

    async def triage_incident(
        self, incident_id: str, action: BulkActionName, note: str | None = None
    ) -> IncidentOutcomeFields:
        """Apply an action to all places of an incident."""
        return await self._call(calls.triage_incident(incident_id, action, note))

    async def assign_incident(self, incident_id: str, assignee: str | None) -> IncidentFields:
        """Assign an incident to the member with this address, or to nobody."""
        return await self._call(calls.assign_incident(incident_id, assignee))

    async def list_comments(self, incident_id: str, **filters: Any) -> ResultPage[CommentFields]:
        """Return one page of the comments on an incident, newest first."""
        return await self._call(calls.list_comments(incident_id, filters))

    async def add_comment(self, incident_id: str, text: str) -> CommentFields:
        """Comment on an incident."""
        return await self._call(calls.add_comment(incident_id, text))

    async def list_scans(self, **filters: Any) -> ResultPage[ScanFields]:
        """Return one page of scan runs, newest first."""
        return await self._call(calls.list_scans(filters))

    def iterate_scans(self, **filters: Any) -> AsyncIterator[ScanFields]:
        """Yield all scan runs, newest first."""
        return self._iterate(calls.list_scans({"limit": calls.MAX_SCANS} | filters))

    async def get_scan(self, scan_id: str) -> ScanFields:
        """Return one scan run."""
        return await self._call(calls.get_scan(scan_id))

    # --- version 2

    async def change_findings(
        self,
        action: BulkActionName,
        *,
        ids: Iterable[str] | None = None,
        filters: Mapping[str, Any] | None = None,
        expected_total: int | None = None,
        note: str | None = None,
    ) -> BulkResult:
        """Apply one action to many findings: to those with these ids, or to those that match the filters."""
        return await self._call(
            calls.change_findings(action, ids=ids, filters=filters, expected_total=expected_total, note=note)
        )

    async def send_report(
        self, report: bytes, *, idempotency_key: str | None = None, **parameters: Any
    ) -> StatusFields:
        """Send a scanner's report; return the id and the status of its import."""
        return await self._call(calls.send_report(report, parameters, idempotency_key=idempotency_key))

    async def list_imports(self, **filters: Any) -> ResultPage[ImportFields]:
        """Return one page of imports, newest first."""
        return await self._call(calls.list_imports(filters))

    def iterate_imports(self, **filters: Any) -> AsyncIterator[ImportFields]:
        """Yield all imports, newest first."""
        return self._iterate(calls.list_imports({"per_page": calls.MAX_PER_PAGE} | filters))

    async def get_import(self, import_id: str) -> ImportFields:
        """Return one import."""
        return await self._call(calls.get_import(import_id))

    # --- sending

    async def _iterate(self, call: ApiCall[ResultPage[Any]]) -> AsyncIterator[Any]:
        """Yield the entries of all pages; one that moved to a later page meanwhile is yielded once."""
        seen: set[str] = set()
        number, pages = int(call.query.get("page", "1")), 1
        while number <= pages or not seen:
            page = await self._call(calls.page_call(call, number))
            for entry in page.data:
                if entry["id"] not in seen:
                    seen.add(entry["id"])
                    yield entry
            number, pages = number + 1, page.pages
            if not page.data:
                return

    async def _call(self, call: ApiCall[T]) -> T:
        """Send a call, again after each 429 that leaves time to wait; return what it asked for."""
        left = self._max_wait
        while True:
            answer = await self._send(call)
            wait = (retry_after(answer) or 1.0) if answer.status == 429 else None
            if wait is None or wait > left:
                return read_answer(call, answer, self._key)
            left -= wait
            await self._sleep(wait)

    async def _send(self, call: ApiCall[Any]) -> Answer:
        """Send a request once and return the complete answer."""
        address = self._address
        url = URL(address.url + address.prefix + call.target, encoded=True)
        headers = {"Authorization": f"Bearer {self._key}", "Accept": "application/json"} | dict(call.headers)
        body = bytearray()
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._open_session().request(
                    call.method, url, data=call.body, headers=headers, allow_redirects=False
                ) as response,
            ):
                async for part in response.content.iter_chunked(1 << 16):
                    body += part
                    if len(body) > MAX_ANSWER_BYTES:
                        raise TransportError(f"{address.url} sends too much")
                named = {name.lower(): value for name, value in response.headers.items()}
                return Answer(response.status, named, bytes(body))
        except (aiohttp.ClientError, OSError, ValueError) as error:  # OSError has TimeoutError
            raise TransportError(self._explain(error)) from None

    def _open_session(self) -> aiohttp.ClientSession:
        """Return the session, which is opened at the first call."""
        if self._session is None:
            tls: ssl.SSLContext | bool = True
            if self._ca_file is not None:
                try:
                    tls = ssl.create_default_context()
                    tls.load_verify_locations(self._ca_file)
                except OSError:
                    raise TransportError("the file of trusted certificates cannot be read") from None
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=tls),
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _explain(self, error: Exception) -> str:
        """Return why no answer arrived, in one line."""
        url = self._address.url
        if isinstance(error, TimeoutError):
            return f"{url} did not answer within {self._timeout:g} seconds"
        if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
            return f"{url} has no certificate that this machine trusts, or does not speak TLS"
        if isinstance(error, aiohttp.ClientPayloadError):
            return f"{url} ended its answer early"
        if isinstance(error, aiohttp.ClientResponseError | ValueError):
            return f"what {url} answers is not HTTP"
        return f"{url} cannot be reached: {describe_failure(error)}"
