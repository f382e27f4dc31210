"""What `outcrop scan` without an account asks of issuers about what it has found. Loaded only where something is asked."""

import asyncio
from collections.abc import Callable

from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.services.local_scan import ScanReport, with_verdict
from outcrop.services.validation import validate_hits
from outcrop.settings import Settings
from outcrop.validation.engine import ValidationMode, Validator
from outcrop.validation.issuer import MAX_CONCURRENT_CHECKS, MAX_CONNECTIONS
from outcrop.validation.verdict import Verdict


def ask_about(report: ScanReport, settings: Settings, told: Callable[[int, int], None]) -> None:
    """Put a verdict on every finding of a report."""
    egress = Egress.from_settings(settings)

    async def main() -> list[Verdict]:
        async with open_http(egress, connections=MAX_CONNECTIONS, per_host=MAX_CONCURRENT_CHECKS) as http:
            return await validate_hits(
                Validator(http, ValidationMode(settings.validate_)),
                [one.hit for one in report.findings],
                told,
            )

    verdicts = asyncio.run(main())
    report.findings = [
        with_verdict(one, verdict) for one, verdict in zip(report.findings, verdicts, strict=True)
    ]
