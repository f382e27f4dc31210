"""Test that the service does what `/openapi.json` describes.

Schemathesis generates thousands of requests from it and applies every check that it has to the answers.
"""

import json
import re
import time
import zlib
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import schemathesis
from schemathesis.checks import CHECKS
from schemathesis.config import SchemathesisConfig
from schemathesis.core.failures import Failure
from schemathesis.core.transport import Response
from schemathesis.engine import Status, events, from_schema
from schemathesis.hooks import HookContext
from schemathesis.openapi.checks import RejectedPositiveData

from outcrop.domain.finding import SourceType, Validation
from outcrop.domain.finding import Status as FindingStatus
from outcrop.domain.scan import Gap, ScanStatus, ScanType, Trigger
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line, make_scan
from tests.support.openapi import allow_only_described_fields

LONGEST_RUN = 1500.0  # seconds; a run takes half a minute where nothing else runs
SLOWEST_ANSWER = 60.0  # seconds; the service itself answers after 4.5
OPERATIONS = {
    "GET /api/v1/findings",
    "GET /api/v1/findings/{finding_id}",
    "POST /api/v1/findings/{finding_id}/suppress",
    "POST /api/v1/findings/{finding_id}/resolve",
    "POST /api/v1/findings/{finding_id}/restrict",
    "POST /api/v1/findings/{finding_id}/false_positive",
    "GET /api/v1/scans",
    "GET /api/v1/scans/{scan_id}",
}
# A finding's state is not in its address, so no description of a parameter can rule these answers out.
REFUSING = {"POST /api/v1/findings/{finding_id}/resolve", "POST /api/v1/findings/{finding_id}/restrict"}
WELL_FORMED = {
    "finding_id": re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    "incident_id": re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    "scan_id": re.compile(".+", re.DOTALL),
}

FEW_OF_EVERYTHING = {
    "generation": {"max-examples": 8},
    "phases": {"coverage": {"generate-duplicate-query-parameters": True}},
}
MANY_PARAMETERS = {  # the key is always right, so that every case gets as far as its parameters
    "generation": {"max-examples": 30, "with-security-parameters": False},
    "phases": {
        "examples": {"enabled": False},
        "coverage": {"enabled": False},
        "stateful": {"enabled": False},
        "fuzzing": {
            "extra-data-sources": {"responses": False}
        },  # it would ask for the same two ids over and over
    },
}


@dataclass
class Report:
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def statuses(self, operation: str) -> set[int]:
        return {status for label, status in self.answers if label == operation}


@pytest.mark.parametrize("options", [FEW_OF_EVERYTHING, MANY_PARAMETERS], ids=["everything", "parameters"])
def test_the_service_holds_to_its_description(
    backend: Backend, tmp_path: Path, options: dict[str, Any]
) -> None:
    owner, stranger = backend.tenant(), backend.tenant()
    _fill(backend, owner)
    backend.import_(stranger.account, make_line())

    report = _run(backend, owner, _config(backend, tmp_path, owner, stranger, options))

    assert not report.failures, "\n\n".join(report.failures)
    assert set(report.checks) >= {check.__name__ for check in CHECKS.get_all()} | {"max_response_time"}
    for operation in OPERATIONS:
        assert 200 in report.statuses(operation), f"{operation} was never asked with real ids"
    if options is FEW_OF_EVERYTHING:
        assert all({401, 405} <= report.statuses(operation) for operation in OPERATIONS)
        assert all(
            422 in report.statuses(operation) for operation in OPERATIONS - {"GET /api/v1/scans/{scan_id}"}
        )
        assert backend.sql("SELECT used FROM rate_windows WHERE key_id = %s", UUID(stranger.key_id)), (
            "the stranger never tried"
        )
    else:
        assert all(400 in report.statuses(operation) for operation in REFUSING)
        assert all(404 in report.statuses(operation) for operation in OPERATIONS if "_id}" in operation)


def _fill(backend: Backend, tenant: Tenant) -> None:
    """Create some dozens of findings, and a scan run in every state.

    The ids are fixed, so that each test run sends the same requests.
    """
    start = datetime(2026, 1, 1, 23, 59, 59, tzinfo=UTC)
    lines = []
    for n, (status, source, validation) in enumerate(
        product(FindingStatus, SourceType, list(Validation)[::2])
    ):
        seen = start + timedelta(hours=7 * n)
        line = make_line(
            id=str(UUID(int=n * 2**64 + n, version=4)),
            status=status,
            source_type=source,
            validation_status=validation,
            composite_score=float(n % 101),
            first_seen_at=seen.isoformat(),
            last_seen_at=(seen + timedelta(days=n % 5)).isoformat(),
            suppressed_at=seen.isoformat() if n % 4 == 0 else None,
            validation_detail={
                "enabled_services": ["aws", f"aws_{n % 3}"][: n % 3],
                "checked": {"by": "test"},
            },
        )
        if n % 10 == 0:
            line |= {
                "source_url": None,
                "repo_full_name": None,
                "file_path": "ünï/çødé 100%_\\.py",
                "line_number": None,
            }
        lines.append(line)
    backend.import_(tenant.account, *lines)
    for n, (type_, status, trigger) in enumerate(product(ScanType, ScanStatus, Trigger)):  # type: ignore[assignment]
        created = start + timedelta(minutes=n)
        started = status is not ScanStatus.QUEUED
        ended = status in {ScanStatus.COMPLETED, ScanStatus.FAILED}
        run = make_scan(
            id=UUID(int=2**100 + n, version=4),
            type=type_,
            status=status,
            trigger=trigger,
            created_at=created,
            started_at=created + timedelta(seconds=1) if started else None,
            finished_at=created + timedelta(seconds=9) if ended else None,
            coverage_gaps=(Gap("big.bin", "larger than the limit"),) if ended else (),
            error="the source could not be reached" if status is ScanStatus.FAILED else None,
        )
        backend.scan(tenant.account, run)


def _config(
    backend: Backend, folder: Path, owner: Tenant, stranger: Tenant, options: dict[str, Any]
) -> SchemathesisConfig:
    people = folder / "people.json"  # two accounts that must not see each other's findings
    headers = {
        name: [{"name": "Authorization", "value": f"Bearer {tenant.key}"}]
        for name, tenant in (("a", owner), ("b", stranger))
    }
    people.write_text(
        json.dumps({"auth": [{"name": name, "fixedHeaders": header} for name, header in headers.items()]})
    )
    return SchemathesisConfig.from_dict(
        {
            "seed": 1,
            "base-url": backend.base_url,
            "auth": {"wfc": {"path": str(people), "user": "a", "peers": ["a", "b"]}},
            "checks": {"enabled": True, "max_response_time": SLOWEST_ANSWER},
            "request-timeout": 30.0,
            "continue-on-failure": True,
            "phases": options["phases"],
            "generation": {"mode": "all", "deterministic": True, "no-shrink": True} | options["generation"],
        }
    )


def _run(backend: Backend, owner: Tenant, config: SchemathesisConfig) -> Report:
    document = backend.client().get("/openapi.json").raise_for_status().json()
    schema = schemathesis.openapi.from_dict(allow_only_described_fields(document), config=config)

    ids = {
        name: [
            str(id_)
            for (id_,) in backend.sql(
                f"SELECT id FROM {table} WHERE account_id = %s ORDER BY id", owner.account.id
            )
        ]
        for name, table in (("finding_id", "findings"), ("incident_id", "incidents"), ("scan_id", "scans"))
    }

    @schema.hook
    def map_path_parameters(
        context: HookContext, path_parameters: dict[str, Any] | None
    ) -> dict[str, Any] | None:
        """Ask for something that is there in three cases out of four; the generated value decides which."""
        for name, value in (path_parameters or {}).items():
            number = zlib.crc32(str(value).encode())
            if number % 4 and WELL_FORMED[name].fullmatch(str(value)):
                path_parameters[name] = ids[name][number // 4 % len(ids[name])]
        return path_parameters

    @schema.hook
    def filter_failure(
        context: HookContext, failure: Failure, case: schemathesis.Case, response: Response
    ) -> bool:
        refused = (
            response.status_code == 400
            and response.json()["error"] == "invalid_transition"
            and case.operation.label in REFUSING
        )
        # Only members can be assigned, and no description of a parameter can list them.
        no_member = case.operation.label.endswith("/assign") and response.status_code == 422
        return not (isinstance(failure, RejectedPositiveData) and (refused or no_member))

    report = Report()
    stream = from_schema(schema).execute()
    began = time.monotonic()
    for event in stream:
        if isinstance(event, events.FatalError):
            raise event.exception
        if isinstance(event, events.NonFatalError):
            report.failures.append(f"{event.label}: {event.info.format()}")
        if isinstance(event, events.ScenarioFinished):
            _note(event, report)
        if time.monotonic() - began > LONGEST_RUN:
            stream.stop()
            pytest.fail(f"the run took more than {LONGEST_RUN:.0f} s")
    return report


def _note(event: events.ScenarioFinished, report: Report) -> None:
    recorder = event.recorder
    for case_id, interaction in recorder.interactions.items():
        if interaction.response is not None and case_id in recorder.cases:
            report.answers[
                recorder.cases[case_id].value.operation.label, interaction.response.status_code
            ] += 1
    for checks in recorder.checks.values():
        for check in checks:
            report.checks[check.name] += 1
            if check.status is not Status.SUCCESS:
                reported = check.failure_info
                report.failures.append(
                    f"{event.phase.value}: {check.name}: "
                    + (
                        f"{reported.failure.title}\n{reported.failure.message}\n{reported.code_sample}"
                        if reported
                        else "crashed"
                    )
                )
