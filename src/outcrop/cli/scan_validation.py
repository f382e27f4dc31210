"""Validate the findings of `outcrop scan` without an account. Imported only if there are findings."""

import asyncio
from collections.abc import Callable

from outcrop.limits import ISSUER_CHECKS, ISSUER_CONNECTIONS
from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.services.local_scan import ScanReport, with_verdict
from outcrop.services.validation import validate_hits
from outcrop.settings import Settings
from outcrop.validation.engine import ValidationMode, Validator
from outcrop.validation.verdict import Verdict


def validate_findings(report: ScanReport, settings: Settings, progress: Callable[[int, int], None]) -> None:
    """Add a verdict to every finding of a report. `progress` gets the number done and the total."""
    egress = Egress.from_settings(settings)

    async def main() -> list[Verdict]:
        async with open_http(egress, connections=ISSUER_CONNECTIONS, per_host=ISSUER_CHECKS) as http:
            return await validate_hits(
                Validator(http, ValidationMode(settings.validate_)),
                [finding.hit for finding in report.findings],
                progress,
            )

    verdicts = asyncio.run(main())
    report.findings = [
        with_verdict(finding, verdict) for finding, verdict in zip(report.findings, verdicts, strict=True)
    ]
