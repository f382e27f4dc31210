"""Test that a leak is one finding if one report has its credential and another one leaves it out."""

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from outcrop.domain.clock import now
from outcrop.domain.secret import MASK, Secret
from outcrop.services.exchange.formats import ImportFormat
from outcrop.services.exchange.importer import ImportSummary
from outcrop.services.exchange.merged_report import merge_reports
from tests.services.test_import_again import only_finding, redacted_scan_line, scan_line
from tests.services.test_import_formats import OTHER, VALUE, as_lines, gitleaks, import_report, kingfisher
from tests.services.test_import_tools import REPO, ggshield, github
from tests.support.backend import Backend, Tenant
from tests.support.imports import generated_token
from tests.support.rulesets import ruleset

TOKEN = generated_token("redacted")
HIDDEN = {"Secret": "REDACTED", "Match": "REDACTED"}


def leaks(*records: dict[str, Any]) -> bytes:
    return json.dumps([gitleaks(**record) for record in records]).encode()


# A report with the credential, and the same one without it.
PAIRS: dict[str, tuple[Callable[[], bytes], Callable[[], bytes]]] = {
    "gitleaks": (lambda: leaks({"Secret": TOKEN}), lambda: leaks(HIDDEN)),
    "gitleaks, no place": (
        lambda: leaks({"Secret": TOKEN, "Link": "", "Commit": ""}),
        lambda: leaks(HIDDEN | {"Link": "", "Commit": ""}),
    ),
    "a value of no rule": (lambda: leaks({}), lambda: leaks(HIDDEN)),
    "kingfisher": (
        lambda: as_lines(kingfisher(snippet=TOKEN)),
        lambda: as_lines(kingfisher(snippet="[REDACTED]")),
    ),
    "ggshield": (
        lambda: json.dumps(ggshield(("apikey", TOKEN))).encode(),
        lambda: json.dumps(ggshield(("apikey", f"ghp{'*' * 20}abc"))).encode(),
    ),
    "github": (
        lambda: json.dumps([github(secret=TOKEN)]).encode(),
        lambda: json.dumps([github(secret=None)]).encode(),
    ),
    "outcrop scan": (lambda: as_lines(scan_line()), lambda: as_lines(redacted_scan_line())),
}


def import_(backend: Backend, tenant: Tenant, data: bytes, **options: Any) -> ImportSummary:
    return import_report(backend, tenant, data, load_rules=ruleset, **options)


def has_credential(backend: Backend, tenant: Tenant) -> bool:
    """Whether the account's one finding has its credential, and one can decrypt it."""
    ((id_, fingerprint, box),) = backend.sql(
        "SELECT id, fingerprint, secret_box FROM findings WHERE account_id = %s", tenant.account.id
    )
    if box is None:
        return False
    secret = backend.keys.open(box, tenant.account.id, id_, mask_all=True)
    return bool(backend.keys.compute_fingerprint(secret) == fingerprint)


@pytest.mark.parametrize("redacted_first", [True, False])
@pytest.mark.parametrize("name", PAIRS)
def test_a_credential_and_its_redacted_report_are_one_finding(
    backend: Backend, name: str, *, redacted_first: bool
) -> None:
    full, redacted = (make() for make in PAIRS[name])
    tenant, alone = backend.tenant(), backend.tenant()
    place = {"repo": REPO} if "no place" not in name else {}
    import_(backend, alone, full, **place)
    first, second = (redacted, full) if redacted_first else (full, redacted)
    assert import_(backend, tenant, first, **place) == ImportSummary(1, 1, 0)
    id_ = only_finding(tenant)["id"]
    assert import_(backend, tenant, second, **place) == ImportSummary(1, 0, 1)
    found = only_finding(tenant)
    assert found["id"] == id_
    assert has_credential(backend, tenant)
    for data in (first, second):
        assert import_(backend, tenant, data, **place) == ImportSummary(1, 0, 1)
        assert only_finding(tenant) == found, "nothing is new"
    same = ("matched_text", "pattern", "rule", "composite_score", "validation_status", "file_path", "lines")
    expected = only_finding(alone)
    assert {key: found[key] for key in same} == {key: expected[key] for key in same}


@pytest.mark.parametrize("action", ["resolve", "restrict", "false_positive", "suppress"])
def test_the_credential_of_a_closed_finding_changes_no_decision(backend: Backend, action: str) -> None:
    tenant = backend.tenant()
    import_(backend, tenant, leaks(HIDDEN))
    before = only_finding(tenant)
    note = {} if action == "suppress" else {"note": f"was {VALUE}"}
    tenant.post(f"/findings/{before['id']}/{action}", **note).raise_for_status()
    before = only_finding(tenant)
    import_(backend, tenant, leaks({}))
    found = only_finding(tenant)
    decided = ("id", "status", "resolved_at", "suppressed_at", "first_seen_at", "seen_count")
    assert {key: found[key] for key in decided} == {key: before[key] for key in decided}
    assert found["matched_text"] == Secret(VALUE).masked()
    assert has_credential(backend, tenant) == (action == "suppress"), "a closed finding stores none"
    if action != "suppress":
        assert VALUE not in (found["resolution_note"] or ""), "it is masked in the note too"


def test_a_credential_that_becomes_known_is_validated_and_is_no_new_finding(backend: Backend) -> None:
    tenant = backend.tenant()
    import_(backend, tenant, leaks(HIDDEN | {"RuleID": "github-pat"}), sends_events=True)
    import_(backend, tenant, leaks({"RuleID": "github-pat", "Secret": TOKEN}), sends_events=True)
    due = "SELECT status FROM verdicts WHERE account_id = %s"
    assert backend.sql(due, tenant.account.id) == [("unvalidated",)]
    lines = "SELECT count(*) FROM audit WHERE account_id = %s AND action = 'finding.new'"
    assert backend.sql(lines, tenant.account.id) == [(1,)]
    assert backend.sql("SELECT count(*) FROM outbox WHERE account_id = %s", tenant.account.id) == [(1,)]


def test_the_incident_of_a_credential_that_becomes_known_keeps_its_comments(backend: Backend) -> None:
    tenant = backend.tenant()
    import_(backend, tenant, leaks(HIDDEN))
    incident = only_finding(tenant)["incident_id"]
    tenant.post(f"/incidents/{incident}/comments", text="ask Ada").raise_for_status()
    import_(backend, tenant, leaks({}))
    (found,) = tenant.get("/incidents").json()["data"]
    assert found["id"] == only_finding(tenant)["incident_id"]
    assert found["places"] == 1
    (comment,) = tenant.get(f"/incidents/{found['id']}/comments").json()["data"]
    assert comment["text"] == "ask Ada"


def test_two_credentials_with_one_fingerprint_of_the_tool_are_two_findings(backend: Backend) -> None:
    """The fingerprint of gitleaks has commit, file, rule and line: two values of one line share it."""
    tenant = backend.tenant()
    both = leaks({}, {"Secret": OTHER})
    assert import_(backend, tenant, both) == ImportSummary(2, 2, 0)
    assert import_(backend, tenant, both) == ImportSummary(2, 0, 2)
    assert import_(backend, tenant, leaks(HIDDEN, HIDDEN)) == ImportSummary(2, 0, 2)
    rows = backend.sql(
        "SELECT id, fingerprint, secret_box FROM findings WHERE account_id = %s", tenant.account.id
    )
    for id_, fingerprint, box in rows:
        secret = backend.keys.open(box, tenant.account.id, id_, mask_all=True)
        assert backend.keys.compute_fingerprint(secret) == fingerprint


def test_redacted_and_full_records_of_one_file_are_one_finding(backend: Backend) -> None:
    for records in (({}, HIDDEN), (HIDDEN, {}), (HIDDEN, {}, HIDDEN)):
        tenant = backend.tenant()
        assert import_(backend, tenant, leaks(*records)).new == 1
        assert only_finding(tenant)["matched_text"] == Secret(VALUE).masked()
        assert has_credential(backend, tenant)


def test_a_credential_of_a_second_place_counts_for_the_score_of_both(backend: Backend) -> None:
    tenant = backend.tenant()
    other = {"File": "src/b.py", "Fingerprint": "0123abcd:src/b.py:generic-api-key:7"}
    import_(backend, tenant, leaks(other, HIDDEN))
    alone = {f["file_path"]: f["composite_score"] for f in tenant.get("/findings").json()["data"]}
    import_(backend, tenant, leaks({}))
    both = {f["file_path"]: f["composite_score"] for f in tenant.get("/findings").json()["data"]}
    assert both["src/b.py"] == alone["src/b.py"] + 2
    assert both["src/a.py"] == both["src/b.py"]


@pytest.mark.parametrize("secret", ["ghp_********NXS8", "********"])
def test_a_masked_value_is_no_credential(backend: Backend, secret: str) -> None:
    for data in (leaks({"Secret": secret}), as_lines(scan_line(secret=secret)), as_lines({"secret": secret})):
        tenant = backend.tenant()
        import_(backend, tenant, data)
        assert only_finding(tenant)["matched_text"] == secret
        assert not has_credential(backend, tenant)


@pytest.mark.parametrize("redacted_first", [True, False])
@pytest.mark.parametrize("name", PAIRS)
def test_a_page_of_both_reports_has_one_finding(name: str, *, redacted_first: bool) -> None:
    full, redacted = (make() for make in PAIRS[name])
    files = [("full", io.BytesIO(full)), ("redacted", io.BytesIO(redacted))]
    (found,) = merge_reports(files[::-1] if redacted_first else files, ImportFormat.AUTO, now=now())
    assert sorted(found.sources) == ["full", "redacted"]
    assert found.finding.matched_text != MASK
    (alone,) = merge_reports([("full", io.BytesIO(full))], ImportFormat.AUTO, now=now())
    assert found.finding.composite_score == alone.finding.composite_score
