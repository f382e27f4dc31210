"""Test imports of other scanners' reports: detected formats, bounded memory, errors with the record."""

import io
import json
import tracemalloc
from collections.abc import Callable
from typing import Any, BinaryIO

import pytest

from outcrop.domain.clock import now
from outcrop.domain.errors import BadInputError
from outcrop.domain.secret import Secret
from outcrop.services.exchange.exporter import ExportFormat
from outcrop.services.exchange.formats import ImportFormat
from outcrop.services.exchange.importer import ImportSummary, import_findings
from outcrop.services.exchange.json_array import ITEM, read_elements
from tests.services.test_export import export_account
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line

VALUE, OTHER = "made-up-" + "Lm3" * 10, "made-up-" + "Vb8" * 10


def gitleaks(**fields: Any) -> dict[str, Any]:
    """Return a finding as gitleaks reports it."""
    return {
        "RuleID": "generic-api-key",
        "Description": "Generic API Key",
        "StartLine": 7,
        "EndLine": 7,
        "StartColumn": 3,
        "EndColumn": 40,
        "Match": f"key={VALUE}",
        "Secret": VALUE,
        "File": "src/a.py",
        "SymlinkFile": "",
        "Commit": "0123abcd" * 5,
        "Entropy": 4.1,
        "Author": "Ada",
        "Email": "ada@example.org",
        "Date": "2026-01-01T00:00:00Z",
        "Message": 'a "quoted" [note] {x}',
        "Tags": [],
        "Link": "https://github.com/acme/shop/blob/0123abcd/src/a.py#L7",
        "Fingerprint": "0123abcd:src/a.py:generic-api-key:7",
    } | fields


def trufflehog(**fields: Any) -> dict[str, Any]:
    """Return a finding as TruffleHog reports it."""
    place = {
        "commit": "0123abcd" * 5,
        "file": "src/a.py",
        "repository": "https://github.com/acme/shop.git",
        "line": 7,
    }
    return {
        "SourceMetadata": {"Data": {"Git": place}},
        "SourceID": 1,
        "SourceType": 16,
        "DetectorType": 2,
        "DetectorName": "SendGrid",
        "DecoderName": "PLAIN",
        "Verified": True,
        "Raw": VALUE,
        "RawV2": "",
        "Redacted": "",
        "ExtraData": None,
        "StructuredData": None,
    } | fields


def kingfisher(**fields: Any) -> dict[str, Any]:
    """Return a finding as Kingfisher reports it."""
    git = {
        "repository_url": "https://github.com/acme/shop",
        "commit": {"id": "0123abcd", "committer": {"name": "Ada"}},
        "file": {"path": "src/a.py", "url": "https://github.com/acme/shop/blob/0123abcd/src/a.py#L7"},
    }
    found = {
        "snippet": VALUE,
        "fingerprint": "123",
        "confidence": "medium",
        "entropy": "4.10",
        "language": "Python",
        "line": 7,
        "column_start": 3,
        "column_end": 40,
        "path": "/tmp/x/src/a.py",
        "git_metadata": git,
        "validation": {"status": "Active Credential", "response": "{}"},
    }
    return {"rule": {"name": "SendGrid", "id": "kingfisher.sendgrid.1"}, "finding": found | fields}


def sarif(*results: dict[str, Any]) -> dict[str, Any]:
    """Return a SARIF log with these results."""
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": {"name": "other", "rules": []}}, "results": list(results)}],
    }


def result(**fields: Any) -> dict[str, Any]:
    """Return a SARIF result."""
    region = {"startLine": 7, "startColumn": 3, "snippet": {"text": VALUE}}
    place = {"artifactLocation": {"uri": "src/a%20b.py", "uriBaseId": "%SRCROOT%"}, "region": region}
    return {
        "ruleId": "aws-key",
        "message": {"text": f"found {VALUE}"},
        "locations": [{"physicalLocation": place}],
    } | fields


def as_lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def import_report(
    backend: Backend,
    tenant: Tenant,
    data: bytes | BinaryIO,
    format_: ImportFormat = ImportFormat.AUTO,
    *,
    restore: bool = False,
    **options: Any,
) -> ImportSummary:
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    return backend.run(
        lambda db: import_findings(
            db,
            backend.keys,
            tenant.account,
            file,
            by="test",
            now=now(),
            progress=lambda _: None,
            format_=format_,
            restore=restore,
            **options,
        ),
        transaction=False,
    )


class Pipe(io.RawIOBase):
    """A stream that returns few bytes at a time and cannot seek."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._data.read(min(len(buffer), 5_000))
        buffer[: len(piece)] = piece
        return len(piece)


FORMS: dict[str, tuple[ImportFormat, Callable[[], bytes]]] = {
    "gitleaks": (ImportFormat.GITLEAKS, lambda: json.dumps([gitleaks()], indent=1).encode()),
    "trufflehog": (
        ImportFormat.TRUFFLEHOG,
        lambda: as_lines({"level": "info-0", "ts": "x", "msg": "running"}, trufflehog()),
    ),
    "kingfisher": (
        ImportFormat.KINGFISHER,
        lambda: as_lines({"findings": [kingfisher()], "metadata": {"findings": 1}}),
    ),
    "kingfisher, pretty": (
        ImportFormat.KINGFISHER,
        lambda: json.dumps({"findings": [kingfisher()]}, indent=2).encode(),
    ),
    "kingfisher, lines": (ImportFormat.KINGFISHER, lambda: as_lines(kingfisher(), {"access_map": []})),
}


@pytest.mark.parametrize(("format_", "data"), FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("format_given", [True, False])
def test_a_report_becomes_a_finding_with_place_and_masked_credential(
    backend: Backend, format_: ImportFormat, data: Callable[[], bytes], *, format_given: bool
) -> None:
    tenant = backend.tenant()
    assert import_report(
        backend, tenant, data(), format_ if format_given else ImportFormat.AUTO
    ) == ImportSummary(1, 1, 0)
    (found,) = tenant.get("/findings").json()["data"]
    assert found["matched_text"] == Secret(VALUE).masked()
    assert (found["repo_full_name"], found["file_path"], found["line_number"], found["source_type"]) == (
        "acme/shop",
        "src/a.py",
        7,
        "commit",
    )
    assert found["validation_status"] == ("unvalidated" if format_ is ImportFormat.GITLEAKS else "valid")
    assert found["status"] == "active"
    assert VALUE not in json.dumps(found)
    assert backend.sql("SELECT secret_box IS NOT NULL FROM findings WHERE id = %s", found["id"]) == [(True,)]
    assert import_report(backend, tenant, data()) == ImportSummary(1, 0, 1), "the same report a second time"


def test_sarif_has_the_place_but_not_the_credential(backend: Backend) -> None:
    tenant = backend.tenant()
    log = json.dumps(sarif(result(), result(ruleId="other"))).encode()
    assert import_report(backend, tenant, log) == ImportSummary(2, 2, 0)
    assert import_report(backend, tenant, log) == ImportSummary(2, 0, 2)
    found = {f["pattern"]["secret_type"]: f for f in tenant.get("/findings").json()["data"]}
    assert (
        found["aws-key"]["file_path"],
        found["aws-key"]["line_number"],
        found["aws-key"]["matched_text"],
    ) == (
        "src/a b.py",
        7,
        "********",
    )
    assert not backend.sql(
        "SELECT 1 FROM findings f WHERE account_id = %s AND strpos(f::text, %s) > 0", tenant.account.id, VALUE
    )


def test_our_own_exports_are_detected_too(backend: Backend) -> None:
    tenant, other = backend.tenant(), backend.tenant()
    backend.import_(tenant.account, make_line(), make_line())
    assert import_report(
        backend, other, export_account(backend, tenant, ExportFormat.JSONL)
    ) == ImportSummary(2, 2, 0)
    assert import_report(
        backend, backend.tenant(), export_account(backend, tenant, ExportFormat.SARIF)
    ) == ImportSummary(2, 2, 0)
    assert import_report(backend, other, b"") == ImportSummary(0, 0, 0)


def test_findings_without_a_repository_are_recognised_in_a_second_report(backend: Backend) -> None:
    tenant = backend.tenant()
    report = json.dumps([gitleaks(Commit="", Link=""), gitleaks(Commit="", Link="", Secret=OTHER)]).encode()
    assert import_report(backend, tenant, report) == ImportSummary(2, 2, 0)
    assert import_report(backend, tenant, report) == ImportSummary(2, 0, 2)


@pytest.mark.parametrize("hidden", ["REDACTED", "made-...", ""])
def test_a_redacted_value_is_not_stored_as_credential(backend: Backend, hidden: str) -> None:
    tenant = backend.tenant()
    import_report(backend, tenant, json.dumps([gitleaks(Secret=hidden, Match="x")]).encode())
    (found,) = tenant.get("/findings").json()["data"]
    assert found["matched_text"] == "********"
    assert backend.sql("SELECT secret_box, fingerprint FROM findings WHERE id = %s", found["id"]) == [
        (None, None)
    ]


@pytest.mark.parametrize(
    ("format_", "data", "message"),
    [
        ("gitleaks", json.dumps([gitleaks(), {"File": VALUE}]), "record 2: is not a finding of gitleaks"),
        (
            "gitleaks",
            json.dumps([gitleaks(), gitleaks(StartLine=VALUE)]),
            "record 2: line_number: Input should be a valid integer",
        ),
        ("gitleaks", "[{'a': 1}]", "record 1: is not JSON"),
        ("gitleaks", json.dumps([gitleaks()])[:-1], "record 2: the file ends too early"),
        ("gitleaks", '[{"a": "b', "record 1: the file ends too early"),
        ("gitleaks", "[}", "record 1: is not JSON: its brackets do not match"),
        ("gitleaks", "hello", "the file is not of this format: it has no list of findings"),
        (
            "sarif",
            '{"version": "2.1.0"}',
            "the file is not of this format: it has no list of findings",
        ),
        ("sarif", json.dumps(sarif(result(), {"ruleId": "x"})), "record 2: is not a finding of sarif"),
        (
            "trufflehog",
            as_lines(trufflehog(), {"Raw": VALUE}).decode(),
            "line 2: is not a finding of trufflehog",
        ),
        ("trufflehog", "\n\nnot json", "line 3: is not JSON"),
        (
            "kingfisher",
            json.dumps({"findings": [kingfisher(), {"rule": {}}]}),
            "record 2: is not a finding of kingfisher",
        ),
        ("auto", '[{"x": 1}]', "cannot detect the format of the report: name it with `format`"),
        ("auto", "what,where\nx,a.py\n", "cannot detect the format of the report: name it with `format`"),
        ("auto", "[" * 500, "cannot detect the format of the report: name it with `format`"),
        ("gitleaks", '[{"a":' + "[" * 500, "record 1: is nested too deeply"),
        ("outcrop", "[1]", "record 1: is not a JSON object"),
        ("gitleaks", f"[{json.dumps(gitleaks())}, 1]", "record 2: is not a JSON object"),
        ("gitleaks", f'[{json.dumps(gitleaks())}, "x"]', "record 2: is not a JSON object"),
        ("gitleaks", f"[[{json.dumps(gitleaks())}]]", "record 1: is not a JSON object"),
    ],
)
def test_the_first_bad_record_is_named_and_nothing_is_written(
    backend: Backend, format_: str, data: str, message: str
) -> None:
    tenant = backend.tenant()
    with pytest.raises(BadInputError) as raised:
        import_report(backend, tenant, data.encode(), ImportFormat(format_))
    assert raised.value.message.startswith(message)
    assert VALUE not in raised.value.message
    assert tenant.get("/findings").json()["meta"]["total"] == 0


def test_a_pipe_can_be_imported(backend: Backend) -> None:
    tenant = backend.tenant()
    report = json.dumps([gitleaks(File=f"{n}.py") for n in range(300)]).encode()
    assert import_report(backend, tenant, io.BufferedReader(Pipe(report), 4_096)).new == 300
    assert (
        import_report(
            backend,
            backend.tenant(),
            io.BufferedReader(Pipe(as_lines(*(make_line() for _ in range(300)))), 4_096),
        ).new
        == 300
    )


class GeneratedReport(io.RawIOBase):
    """A report of many megabytes that is generated while it is read."""

    def __init__(self, count: int) -> None:
        self.record = json.dumps(gitleaks(Message='"]}' * 300)).encode() + b","
        self.remaining = count

    def read(self, size: int = -1) -> bytes:
        if not self.remaining:
            return b""
        count_now = min(self.remaining, 500)
        self.remaining -= count_now
        return self.record * count_now


def test_memory_does_not_grow_with_the_report() -> None:
    class Report(GeneratedReport):
        began = False

        def read(self, size: int = -1) -> bytes:
            if not self.began:
                self.began = True
                return b"["
            return super().read(size) or (b"" if self.closing() else b"{}]")

        done = False

        def closing(self) -> bool:
            was, self.done = self.done, True
            return was

    report = Report(4_000)  # about 7 MB
    tracemalloc.start()
    try:
        count = sum(1 for _ in read_elements(report, (ITEM,)))  # type: ignore[arg-type]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 4_001
    assert peak < 4 << 20


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1_000])
def test_elements_do_not_depend_on_the_size_of_the_chunks(size: int) -> None:
    document = {
        "a": [{"x": 1}],
        "runs": [
            {"results": [{"k": 'a"]}\\'}, {"deep": {"results": [{"no": 1}]}}]},
            {"results": [{}]},
        ],
    }
    text = json.dumps(document).encode()

    class Cut(io.BytesIO):
        def read(self, _: int | None = -1, /) -> bytes:
            return super().read(size)

    found = [json.loads(element) for element, _ in read_elements(Cut(text), ("runs", ITEM, "results", ITEM))]
    assert found == [{"k": 'a"]}\\'}, {"deep": {"results": [{"no": 1}]}}, {}]


def test_an_element_that_is_too_long_is_refused() -> None:
    with pytest.raises(BadInputError, match="longer than"):
        list(read_elements(io.BytesIO(b'[{"a": "' + b"x" * (3 << 20)), (ITEM,), max_bytes=1 << 20))
