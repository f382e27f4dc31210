"""Test that an import of a scanner's report changes no decision of a person, and that a restore replaces all."""

import json
from typing import Any

import pytest

from outcrop.domain.clock import now
from outcrop.domain.errors import BadInputError
from outcrop.services.exchange.exporter import ExportFormat
from outcrop.services.exchange.formats import ImportFormat
from outcrop.services.exchange.importer import ImportSummary
from outcrop.store.findings import bulk
from tests.services.test_export import export_account
from tests.services.test_import_formats import (
    OTHER,
    VALUE,
    as_lines,
    gitleaks,
    import_report,
    kingfisher,
    result,
    sarif,
    trufflehog,
)
from tests.support.backend import Backend, Tenant
from tests.support.calls import before_call, recorded_calls
from tests.support.factories import make_line, without_computed

LATER = "2027-05-06T07:08:09+00:00"


def scan_line(**fields: Any) -> dict[str, Any]:
    """Return a finding as `outcrop scan --format jsonl --reveal` prints it."""
    return (
        make_line()
        | {
            "fingerprint": "config/settings.py:abcde:1",
            "secret": VALUE,
            "rule": "aws",
            "confidence": "high",
            "column": 3,
            "commit": "0123abcd" * 5,
            "author": "Ada",
        }
        | fields
    )


def redacted_scan_line(**fields: Any) -> dict[str, Any]:
    """Return a finding as `outcrop scan --format jsonl` prints it: without the credential."""
    line = scan_line(**fields)
    del line["secret"]
    return line


REPORTS = {
    "gitleaks": json.dumps([gitleaks()]).encode(),
    "gitleaks, redacted": json.dumps([gitleaks(Secret="REDACTED", Match="REDACTED")]).encode(),
    "trufflehog": as_lines(trufflehog()),
    "kingfisher": as_lines(kingfisher()),
    "kingfisher, redacted": as_lines(kingfisher(snippet="[REDACTED]")),
    "sarif": json.dumps(sarif(result())).encode(),
    "outcrop scan": as_lines(redacted_scan_line()),
    "outcrop scan --reveal": as_lines(scan_line()),
    "a line without id": as_lines({"secret": VALUE, "repo_full_name": "acme/shop", "file_path": "a.py"}),
}


def only_finding(tenant: Tenant) -> dict[str, Any]:
    """Return the account's one finding."""
    (found,) = tenant.get("/findings").json()["data"]
    return dict(found)


@pytest.mark.parametrize("action", ["resolve", "restrict", "false_positive", "suppress"])
@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_the_same_report_again_leaves_a_triaged_finding_as_it_is(
    backend: Backend, report: bytes, action: str
) -> None:
    tenant = backend.tenant()
    assert import_report(backend, tenant, report) == ImportSummary(1, 1, 0)
    id_ = only_finding(tenant)["id"]
    backend.sql("UPDATE findings SET seen_count = 7, composite_score = 33 WHERE id = %s", id_)
    note = {} if action == "suppress" else {"note": "rotated"}
    tenant.post(f"/findings/{id_}/{action}", **note).raise_for_status()
    before = only_finding(tenant)
    assert import_report(backend, tenant, report) == ImportSummary(1, 0, 1)
    assert only_finding(tenant) == before


def test_a_report_sets_place_and_time_of_a_finding_and_nothing_else(backend: Backend) -> None:
    tenant = backend.tenant()
    import_report(backend, tenant, as_lines(scan_line(validation_status="unvalidated")))
    before = only_finding(tenant)
    changed = scan_line(
        id=make_line()["id"],
        status="resolved",
        resolution_note="gone",
        resolved_at=LATER,
        suppressed_at=LATER,
        first_seen_at="2020-01-01T00:00:00Z",
        last_seen_at=LATER,
        seen_count=99,
        composite_score=1.5,
        pattern={"name": "Other", "secret_type": "other"},
        line_number=77,
        commit="fedc" * 10,
        author="Jo <jo@example.com>",
        validation_status="unvalidated",
    )
    assert import_report(backend, tenant, as_lines(changed)) == ImportSummary(1, 0, 1)
    place = {
        "line_number": 77,
        "lines": [77],
        "commit": "fedc" * 10,
        "author": "Jo <jo@example.com>",
        "committed_at": None,
    }
    assert without_computed(only_finding(tenant)) == without_computed(
        before | {"last_seen_at": LATER} | place
    )
    earlier = changed | {"last_seen_at": "2021-01-01T00:00:00Z"}
    import_report(backend, tenant, as_lines(earlier))
    assert only_finding(tenant)["last_seen_at"] == LATER


def test_a_report_of_a_finding_that_a_run_recorded_keeps_its_decision(backend: Backend) -> None:
    """Lines of one file about one finding: the report does not undo the restored decision before it."""
    tenant = backend.tenant()
    restored = make_line(secret=VALUE, status="resolved", resolved_at=LATER, resolution_note="rotated")
    import_report(backend, tenant, as_lines(restored, scan_line(line_number=5)))
    found = only_finding(tenant)
    assert (found["id"], found["status"], found["resolution_note"], found["line_number"]) == (
        restored["id"],
        "resolved",
        "rotated",
        5,
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "taken"),
    [
        (("unvalidated", None), ("valid", None), True),
        (("unvalidated", None), ("error", None), True),
        (("valid", "2026-03-01T00:00:00+00:00"), ("unvalidated", LATER), False),
        (("valid", "2026-03-01T00:00:00+00:00"), ("error", LATER), False),
        (("valid", "2026-03-01T00:00:00+00:00"), ("invalid", None), False),
        (("valid", "2026-03-01T00:00:00+00:00"), ("invalid", "2026-02-01T00:00:00+00:00"), False),
        (("valid", "2026-03-01T00:00:00+00:00"), ("invalid", "2026-04-01T00:00:00+00:00"), True),
        (("valid", None), ("invalid", None), True),
    ],
)
def test_a_verdict_of_a_report_counts_if_it_is_newer(
    backend: Backend, ours: tuple[str, str | None], theirs: tuple[str, str | None], *, taken: bool
) -> None:
    def line(verdict: tuple[str, str | None], **fields: Any) -> dict[str, Any]:
        status, checked_at = verdict
        detail: dict[str, Any] = {"enabled_services": []} | (
            {} if checked_at is None else {"checked_at": checked_at}
        )
        return scan_line(validation_status=status, validation_detail=detail, **fields)

    tenant = backend.tenant()
    import_report(backend, tenant, as_lines(line(ours)))
    before = only_finding(tenant)
    import_report(backend, tenant, as_lines(line(theirs, composite_score=1)))
    after = only_finding(tenant)
    assert (after["validation_status"] == theirs[0]) == taken
    assert (after["composite_score"] != before["composite_score"]) == taken
    if not taken:
        assert after == before
    audited = backend.sql(
        "SELECT detail ->> 'from', detail ->> 'to' FROM audit "
        "WHERE account_id = %s AND action = 'finding.validate'",
        tenant.account.id,
    )
    assert audited == ([(ours[0], theirs[0])] if taken else [])


def test_the_score_of_a_new_finding_is_ours_and_is_explained(backend: Backend) -> None:
    tenant = backend.tenant()
    report = as_lines(scan_line(composite_score=99.5), scan_line(composite_score=1, file_path="b.py"))
    import_report(backend, tenant, report)
    first, second = tenant.get("/findings").json()["data"]
    # valid 40, context 9, two services 8, public repository 11, not seen for long 0, two places 2
    assert first["composite_score"] == second["composite_score"] == 70
    details = backend.sql("SELECT score_detail FROM findings WHERE account_id = %s", tenant.account.id)
    assert [sum(detail["parts"].values()) for (detail,) in details] == [70, 70]


def test_a_generic_value_has_the_score_of_a_generic_rule(backend: Backend) -> None:
    tenant = backend.tenant()
    import_report(backend, tenant, json.dumps([gitleaks()]).encode())
    # unvalidated 18, generic 4, medium 6, unknown visibility in a commit 6, seen today 4
    assert only_finding(tenant)["composite_score"] == 38


def test_an_export_restores_every_field(backend: Backend) -> None:
    tenant, other = backend.tenant(), backend.tenant()
    backend.import_(
        tenant.account,
        make_line(status="resolved", resolved_at=LATER, resolution_note="rotated", suppressed_at=LATER),
        make_line(composite_score=12.5, seen_count=40),
    )
    export = export_account(backend, tenant, ExportFormat.JSONL)
    import_report(backend, other, export)

    def shown(tenant: Tenant) -> list[dict[str, Any]]:
        return list(map(without_computed, tenant.get("/findings").json()["data"]))

    expected = shown(tenant)
    assert shown(other) == expected
    for finding in expected:
        other.post(f"/findings/{finding['id']}/false_positive", note="changed")
    assert import_report(backend, other, export) == ImportSummary(2, 0, 2)
    assert shown(other) == expected


def test_restore_replaces_all_fields_by_those_of_a_report(backend: Backend) -> None:
    tenant = backend.tenant()
    import_report(backend, tenant, as_lines(scan_line()))
    id_ = only_finding(tenant)["id"]
    tenant.post(f"/findings/{id_}/resolve", note="rotated").raise_for_status()
    line = scan_line(composite_score=61.5, seen_count=9, id=id_)
    import_report(backend, tenant, as_lines(line), restore=True)
    found = only_finding(tenant)
    assert (found["status"], found["resolution_note"]) == ("active", None)
    assert (found["composite_score"], found["seen_count"]) == (61.5, 9)
    assert backend.sql("SELECT score_detail FROM findings WHERE id = %s", id_) == [(None,)], (
        "the parts of the earlier score do not explain the restored one"
    )


@pytest.mark.parametrize("restore", [True, False])
@pytest.mark.parametrize(
    ("format_", "data", "message"),
    [
        ("auto", "{}", "line 1: is not a finding"),
        ("outcrop", '{"secret": "a-made-up-value"}\n\n{"id": null, "file_path": "x"}', "line 3: is not a"),
        ("outcrop", '{"matched_text": ""}', "line 1: is not a finding"),
        ("gitleaks", json.dumps([gitleaks(), {}]), "record 2: is not a finding of gitleaks"),
        ("gitleaks", json.dumps([{"RuleID": "x"}]), "record 1: is not a finding of gitleaks"),
        ("trufflehog", '{"DetectorName": "x"}', "line 1: is not a finding of trufflehog"),
        ("kingfisher", '{"rule": {"id": "x"}, "finding": {}}', "line 1: is not a finding of kingfisher"),
        ("sarif", json.dumps(sarif({"message": {}})), "record 1: is not a finding of sarif"),
    ],
)
def test_a_record_that_is_no_finding_is_refused_with_its_number(
    backend: Backend, format_: str, data: str, message: str, *, restore: bool
) -> None:
    tenant = backend.tenant()
    with pytest.raises(BadInputError, match=rf"^{message}"):
        import_report(backend, tenant, data.encode(), ImportFormat(format_), restore=restore)
    assert tenant.get("/findings").json()["meta"]["total"] == 0


def test_a_triage_between_two_batches_is_kept(backend: Backend) -> None:
    """Triage a finding after the import has read it and before the import writes it."""
    tenant = backend.tenant()
    import_report(backend, tenant, as_lines(scan_line()))
    id_ = only_finding(tenant)["id"]

    def triage(call: int) -> None:
        if call == 2:  # the first call reads the finding, the second one locks it
            tenant.post(f"/findings/{id_}/resolve", note="rotated").raise_for_status()

    with before_call(bulk.select_records, triage), recorded_calls(bulk.select_records) as calls:
        import_report(backend, tenant, as_lines(scan_line(last_seen_at=LATER)))
    assert [call.arguments["lock"] for call in calls] == [False, True]
    found = only_finding(tenant)
    assert (found["status"], found["resolution_note"], found["last_seen_at"]) == (
        "resolved",
        "rotated",
        LATER,
    )


def test_redacted_findings_of_one_report_stay_apart(backend: Backend) -> None:
    tenant = backend.tenant()
    report = json.dumps(
        [
            gitleaks(
                Secret="REDACTED", StartLine=line, Fingerprint=f"0123abcd:src/a.py:generic-api-key:{line}"
            )
            for line in (7, 8)
        ]
    ).encode()
    assert import_report(backend, tenant, report) == ImportSummary(2, 2, 0)
    assert import_report(backend, tenant, report) == ImportSummary(2, 0, 2)
    assert tenant.get("/findings").json()["meta"]["total"] == 2


def test_a_folder_that_names_no_repository_is_recognised_again(backend: Backend) -> None:
    tenant = backend.tenant()
    report = as_lines(
        *(
            scan_line(source_url=None, repo_full_name=None, secret=value, fingerprint=f"a:{value[-3:]}:1")
            for value in (VALUE, OTHER)
        )
    )
    assert import_report(backend, tenant, report) == ImportSummary(2, 2, 0)
    assert import_report(backend, tenant, report) == ImportSummary(2, 0, 2)
    assert all(f["last_seen_at"] <= now().isoformat() for f in tenant.get("/findings").json()["data"])
