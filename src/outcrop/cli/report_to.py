"""`outcrop scan --report-to`: send what was found to a service."""

import asyncio
import sys
from dataclasses import replace
from ipaddress import ip_network
from urllib.parse import urlsplit
from uuid import uuid4

from outcrop.cli.env_file import read_settings
from outcrop.domain.errors import BadInputError, OutcropError
from outcrop.domain.line import one_line
from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.services.local_scan import ScanReport, report_lines
from outcrop.services.report_upload import Imported, Service, send_report
from outcrop.settings import is_loopback

_EVERYWHERE = (ip_network("0.0.0.0/0"), ip_network("::/0"))


class ReportTarget:
    """The service that gets the report. Its address and the API key are checked before the scan."""

    def __init__(self, url: str, *, wait: bool) -> None:
        """Raise BadInputError if the address is not https or there is no API key."""
        self._url, self._wait = _check_url(url), wait
        settings = read_settings()
        if settings.api_key is None:
            raise BadInputError("--report-to needs an API key: set OUTCROP_API_KEY")
        self._key = settings.api_key.get_secret_value()
        if not self._key.isascii() or not self._key.isprintable():
            raise BadInputError("OUTCROP_API_KEY is not an API key")
        # The user has named the address, so it may be an internal one. A proxy has another loopback.
        egress = replace(Egress.from_settings(settings), allow=_EVERYWHERE)
        on_loopback = is_loopback(urlsplit(self._url).hostname or "")
        self._egress = replace(egress, proxy=None) if on_loopback else egress

    def send(self, report: ScanReport) -> str | None:
        """Send the findings and print the result; return the reason if that fails."""
        try:
            imported = asyncio.run(self._send(report_lines(report)))
        except OutcropError as error:
            return error.message
        counts = "" if imported.new is None else f", {imported.new} new, {imported.known} known"
        print(f"reported: {one_line(imported.id)}{counts}", file=sys.stderr)
        return None

    async def _send(self, lines: bytes) -> Imported:
        async with open_http(self._egress) as http:
            return await send_report(Service(self._url, self._key, http), lines, uuid4().hex, wait=self._wait)


def _check_url(url: str) -> str:
    """Return the base address of a service; raise BadInputError if it is none."""
    try:
        parts = urlsplit(url)
        is_plain = parts.scheme == "http" and is_loopback(parts.hostname or "")
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        parts, is_plain, port_is_valid = urlsplit(""), False, False
    if not parts.hostname or not port_is_valid or parts.query or parts.fragment or "@" in parts.netloc:
        raise BadInputError("--report-to should be an address such as https://outcrop.example.com")
    if parts.scheme != "https" and not is_plain:
        raise BadInputError("--report-to sends raw credentials, so the address must be https")
    return url.rstrip("/")
