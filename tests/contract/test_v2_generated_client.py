"""Test that a client generated from `/api/v2/openapi.json` works."""

import gzip
from pathlib import Path

from tests.support.backend import Backend
from tests.support.factories import make_line
from tests.support.generated_client import generate_client, run_program
from tests.support.imports import gitleaks_report, merge_queued

SEND = """
import json, sys
from io import BytesIO
from pathlib import Path
from outcrop_client import AuthenticatedClient
from outcrop_client.api.imports import create_import
from outcrop_client.models import ConflictErrorShape, CreateImportContentEncoding, CreateImportFormat
from outcrop_client.models import ParameterErrorShape, ReportErrorShape
from outcrop_client.types import File

base_url, key = sys.argv[1:]
report, packed = Path("report.json").read_bytes(), Path("report.json.gz").read_bytes()

def send(body, **parameters):
    return create_import.sync(client=client, body=File(payload=BytesIO(body)), **parameters)

with AuthenticatedClient(base_url=base_url, token=key, httpx_args={"trust_env": False}) as client:
    place = {"repo": "https://git.example.com/acme/shop", "commit": "c0ffee1", "idempotency_key": "build-7"}
    first = send(report, format_=CreateImportFormat.GITLEAKS, events=False, **place).data
    again = send(packed, format_=CreateImportFormat.GITLEAKS, events=False, \\
content_encoding=CreateImportContentEncoding.GZIP, **place).data
    other = send(b"[]", **place)
    bad = send(b"[{", format_=CreateImportFormat.GITLEAKS)
    wrong = send(b"[]", commit="main")
print(json.dumps({
    "id": str(first.id),
    "status": first.status,
    "again": again.id == first.id,
    "other": [isinstance(other, ConflictErrorShape), other.error],
    "bad": [isinstance(bad, ReportErrorShape), bad.error, bad.record],
    "wrong": [isinstance(wrong, ParameterErrorShape), wrong.detail[0].loc],
}, default=str))
"""

READ = """
import json, sys
from uuid import UUID
from outcrop_client import AuthenticatedClient
from outcrop_client.api.findings import change_findings
from outcrop_client.api.imports import get_import, list_imports
from outcrop_client.models import BulkConflictShape, ChangeFindingsBodyType0, ChangeFindingsBodyType0Action
from outcrop_client.models import ChangeFindingsBodyType1, ChangeFindingsBodyType1Action
from outcrop_client.models import ChangeFindingsBodyType1Filter, NotFoundShape

base_url, key, id_, first = sys.argv[1:]
by_ids = ChangeFindingsBodyType0(
    action=ChangeFindingsBodyType0Action.RESOLVE, note="rotated & gone", ids=[UUID(first), UUID(int=1)])
match = ChangeFindingsBodyType1Filter.from_dict({"repo": "acme/shop"})
by_filter = ChangeFindingsBodyType1(
    action=ChangeFindingsBodyType1Action.SUPPRESS, filter_=match, expected_total=2)
with AuthenticatedClient(base_url=base_url, token=key, httpx_args={"trust_env": False}) as client:
    done = get_import.sync(UUID(id_), client=client).data
    missing = get_import.sync(UUID(int=1), client=client)
    page = list_imports.sync(client=client, per_page=1)
    changed = change_findings.sync(client=client, body=by_ids)
    filtered = change_findings.sync(client=client, body=by_filter)
    by_filter.expected_total = 9
    conflict = change_findings.sync(client=client, body=by_filter)
print(json.dumps({
    "import": [done.status, done.findings_new, done.records, done.repo, done.error],
    "missing": isinstance(missing, NotFoundShape),
    "list": [page.meta.total, [str(entry.id) for entry in page.data]],
    "ids": [[entry.outcome for entry in changed.data], changed.meta.changed, changed.meta.not_found],
    "filter": [filtered.meta.matched, filtered.meta.changed],
    "conflict": [isinstance(conflict, BulkConflictShape), conflict.error],
}, default=str))
"""


def test_a_client_generated_from_it_works(backend: Backend, tmp_path: Path) -> None:
    tenant, line = backend.tenant(), make_line(repo_full_name="acme/other")
    backend.import_(tenant.account, line)
    generate_client(backend.client().get("/api/v2/openapi.json").json(), tmp_path)
    (tmp_path / "report.json").write_bytes(gitleaks_report(1, 2))
    (tmp_path / "report.json.gz").write_bytes(gzip.compress(gitleaks_report(1, 2)))
    sent = run_program(SEND, backend.base_url, tenant.key, folder=tmp_path)
    assert sent == {
        "id": sent["id"],
        "status": "queued",
        "again": True,
        "other": [True, "idempotency_conflict"],
        "bad": [True, "bad_report", 1],
        "wrong": [True, ["query", "commit"]],
    }
    merge_queued(backend, tenant)
    assert run_program(READ, backend.base_url, tenant.key, sent["id"], line["id"], folder=tmp_path) == {
        "import": ["completed", 2, 2, "https://git.example.com/acme/shop", None],
        "missing": True,
        "list": [1, [sent["id"]]],
        "ids": [["changed", "not_found"], 1, 1],
        "filter": [2, 2],
        "conflict": [True, "conflict"],
    }
    assert tenant.finding(line["id"])["resolution_note"] == "rotated & gone"
