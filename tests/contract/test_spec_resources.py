"""The specification's part "Resources and their fields", sentence by sentence."""

import json
import re
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid4

import pytest
from psycopg import sql

from outcrop.domain.clock import now
from outcrop.domain.scan import Gap, ScanStatus, ScanType, Trigger
from outcrop.store.keyring import Keyring
from tests.support.backend import Backend, Tenant, running_server
from tests.support.factories import (
    COMPUTED_FIELDS,
    additive_defaults,
    complete,
    make_line,
    make_scan,
    without_computed,
)

UUID_FORM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME_FORM = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\+00:00")

FINDING_FIELDS = {
    *(
        "id",
        "status",
        "validation_status",
        "validation_confidence",
        "validation_detail",
        "composite_score",
        "source_type",
    ),
    *(
        "source_visibility",
        "source_url",
        "repo_full_name",
        "file_path",
        "line_number",
        "matched_text",
        "pattern",
        "first_seen_at",
    ),
    *("last_seen_at", "seen_count", "resolved_at", "resolution_note", "resolution_evidence"),
}
ADDITIVE_FIELDS = additive_defaults().keys()
SCAN_FIELDS = {
    *(
        "id",
        "type",
        "status",
        "trigger",
        "target",
        "created_at",
        "started_at",
        "finished_at",
        "progress",
        "findings_new",
    ),
    *("findings_seen", "findings_resolved", "coverage_gaps", "error", "waiting", "host", "push"),
}
MASK = "*" * 8


def imported(stage: Backend, tenant: Tenant, line: dict[str, Any]) -> dict[str, Any]:
    """Import one line (with an id) and read it back."""
    line = {"id": str(uuid4())} | line
    stage.import_(tenant.account, line)
    return tenant.finding(line["id"])


# --- Conventions


def test_ids_are_uuids_in_their_36_character_form(backend: Backend) -> None:
    # "IDs are UUIDs (RFC 4122), 36-character hexadecimal strings with dashes."
    tenant = backend.tenant()
    backend.import_(tenant.account, *({"secret": f"made-up-value-{n}"} for n in range(3)))
    backend.scan(tenant.account, make_scan())
    listed = tenant.get("/findings").json()["data"]
    ids = [finding["id"] for finding in listed] + [run["id"] for run in tenant.get("/scans").json()["data"]]
    ids.append(tenant.post(f"/findings/{ids[0]}/suppress").json()["data"]["id"])
    assert len(ids) == 5
    assert all(UUID_FORM.fullmatch(id_) for id_ in ids)


def test_made_ids_are_random_and_so_not_ordered_by_creation_time(backend: Backend) -> None:
    # "They are not ordered by creation time; use `first_seen_at` or `created_at` for chronology."
    tenant = backend.tenant()
    lines = ({"file_path": f"{n:02}", "secret": f"made-up-value-{n}"} for n in range(20))
    backend.import_(tenant.account, *lines)
    by_path = sorted(tenant.get("/findings").json()["data"], key=lambda finding: finding["file_path"])
    ids = [finding["id"] for finding in by_path]
    assert {UUID(id_).version for id_ in ids} == {4}
    assert ids != sorted(ids)


def test_an_id_is_found_in_either_case_and_shown_in_lower_case(stage: Backend, tenant: Tenant) -> None:
    id_ = "abcdefab-cdef-4abc-8def-abcdefabcdef"
    stage.import_(tenant.account, make_line(id=id_.upper()))
    assert tenant.finding(id_) == tenant.finding(id_.upper())
    assert tenant.finding(id_.upper())["id"] == id_


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("2026-01-02T03:04:05+00:00", "2026-01-02T03:04:05+00:00"),
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05+00:00"),
        ("2026-01-02T03:04:05", "2026-01-02T03:04:05+00:00"),
        ("2026-01-02T05:34:05.999999+02:30", "2026-01-02T03:04:05+00:00"),
        ("2025-12-31T23:59:59.5-05:00", "2026-01-01T04:59:59+00:00"),
    ],
)
def test_times_are_utc_in_whole_seconds(stage: Backend, tenant: Tenant, given: str, shown: str) -> None:
    # "Timestamps are ISO 8601 with a UTC offset, never local time (form `YYYY-MM-DDTHH:MM:SS+00:00`)."
    fields = ("first_seen_at", "last_seen_at", "resolved_at", "suppressed_at")
    finding = imported(stage, tenant, make_line(status="resolved", **dict.fromkeys(fields, given)))
    assert {name: finding[name] for name in fields} == dict.fromkeys(fields, shown)


def test_times_made_by_the_service_have_the_same_form(stage: Backend, tenant: Tenant) -> None:
    before = now()
    finding = imported(stage, tenant, {"matched_text": "*" * 8})
    tenant.post(f"/findings/{finding['id']}/resolve")
    tenant.post(f"/findings/{finding['id']}/suppress")
    finding = tenant.finding(finding["id"])
    stage.scan(tenant.account, run := make_scan(started_at=before, finished_at=before))
    run_shown = tenant.get(f"/scans/{run.id}").json()["data"]
    times = [finding[name] for name in ("first_seen_at", "last_seen_at", "resolved_at", "suppressed_at")]
    times += [run_shown[name] for name in ("created_at", "started_at", "finished_at")]
    assert all(TIME_FORM.fullmatch(time) for time in times)
    assert all(
        before.isoformat() <= finding[name] <= now().isoformat()
        for name in ("resolved_at", "suppressed_at", "first_seen_at")
    )


def test_times_are_utc_whatever_zone_the_database_keeps(backend: Backend, keys: Keyring) -> None:
    tenant = backend.tenant()
    line = make_line()
    backend.import_(tenant.account, line)
    ((database,),) = backend.sql("SELECT current_database()")
    name = sql.Identifier(database).as_string(None)
    backend.sql(f"ALTER DATABASE {name} SET timezone = 'Asia/Kolkata'")
    try:
        with (
            running_server(backend.settings, rate_limit=0) as server,
            Backend(backend.settings, keys, server.base_url) as other,
        ):
            client = other.client(tenant.key)
            assert client.post(f"/api/v1/findings/{line['id']}/resolve").status_code == 200
            shown = client.get(f"/api/v1/findings/{line['id']}").json()["data"]
            day = client.get(
                "/api/v1/findings", params={"date_from": "2026-01-02", "date_to": "2026-01-02"}
            ).json()["meta"]["total"]
    finally:
        backend.sql(f"ALTER DATABASE {name} RESET timezone")
    assert shown["first_seen_at"] == line["first_seen_at"]
    assert TIME_FORM.fullmatch(shown["resolved_at"])
    assert day == 1


def test_a_list_has_the_list_envelope(stage: Backend) -> None:
    # List: {"data": [...], "meta": {"total": int, "page": int, "per_page": int, "pages": int}}
    tenant = stage.tenant()
    stage.import_(tenant.account, *(make_line() for _ in range(3)))
    stage.scan(tenant.account, make_scan())
    findings = tenant.get("/findings", per_page=2).json()
    scans = tenant.get("/scans", limit=2).json()
    assert findings.keys() == scans.keys() == {"data", "meta"}
    assert findings["meta"] == {"total": 3, "page": 1, "per_page": 2, "pages": 2}
    assert scans["meta"] == {"total": 1, "page": 1, "per_page": 2, "pages": 1}
    assert (len(findings["data"]), len(scans["data"])) == (2, 1)
    assert all(type(value) is int for value in (*findings["meta"].values(), *scans["meta"].values()))


def test_a_single_resource_is_alone_under_data(stage: Backend, tenant: Tenant) -> None:
    # Single resource: {"data": {<resource>}}
    line = make_line()
    stage.import_(tenant.account, line)
    stage.scan(tenant.account, run := make_scan())
    assert tenant.get(f"/findings/{line['id']}").json().keys() == {"data"}
    assert tenant.get(f"/scans/{run.id}").json().keys() == {"data"}


@pytest.mark.parametrize("action", ["suppress", "resolve", "restrict", "false_positive"])
def test_a_mutation_answers_with_id_and_status_only(stage: Backend, tenant: Tenant, action: str) -> None:
    # Mutation: {"data": {"id": <uuid>, "status": <string>}}
    line = make_line()
    stage.import_(tenant.account, line)
    status = {
        "suppress": "active",
        "resolve": "resolved",
        "restrict": "customer_restricted",
        "false_positive": "false_positive",
    }[action]
    assert tenant.post(f"/findings/{line['id']}/{action}").json() == {
        "data": {"id": line["id"], "status": status}
    }


# --- Finding


def test_a_finding_shows_every_field_as_it_is_known(stage: Backend, tenant: Tenant) -> None:
    line = make_line(
        status="resolved",
        resolved_at="2026-03-04T05:06:07+00:00",
        resolution_note="rotated on Monday",
        resolution_evidence={"auto_resolved": True, "resolved_by": None},
        suppressed_at="2026-03-05T05:06:07+00:00",
        current_line=14,
        allowed_in_source=True,
        validation_detail={
            "enabled_services": ["aws", "aws_s3"],
            "account": "1234",
            "nested": {"deep": [1, None, True]},
        },
    )
    assert without_computed(imported(stage, tenant, line)) == complete(line)


def test_a_finding_has_all_fields_of_the_specification_in_list_and_single_form(stage: Backend) -> None:
    # "Shape of the finding in list and single responses beyond the fields above: not shown"
    # -> the same object, additive fields only
    tenant = stage.tenant()
    lines = {"matched_text": "*" * 8}, make_line(), make_line(status="resolved"), make_line(secret="x" * 40)
    stage.import_(tenant.account, *lines)
    listed = tenant.get("/findings").json()["data"]
    assert len(listed) == 4
    for finding in listed:
        assert finding.keys() == FINDING_FIELDS | ADDITIVE_FIELDS | COMPUTED_FIELDS
        assert finding == tenant.finding(finding["id"])


def test_what_is_not_known_is_null_and_its_key_is_there(stage: Backend, tenant: Tenant) -> None:
    finding = imported(stage, tenant, {"matched_text": "*" * 8})
    assert {name for name in FINDING_FIELDS if finding[name] is None} == {
        *("source_url", "repo_full_name", "file_path", "line_number"),
        *("resolved_at", "resolution_note", "resolution_evidence"),
    }
    assert {name: finding[name] for name in ADDITIVE_FIELDS} == additive_defaults()
    assert finding["validation_detail"] == {"enabled_services": []}


def test_every_field_has_its_type(stage: Backend, tenant: Tenant) -> None:
    line = make_line(
        status="resolved",
        resolution_note="n",
        resolution_evidence={"auto_resolved": False, "resolved_by": "a@example.com"},
    )
    finding = imported(stage, tenant, line)
    types = {
        str: (
            *(
                "id",
                "status",
                "validation_status",
                "validation_confidence",
                "source_type",
                "source_visibility",
                "source_url",
            ),
            *(
                "repo_full_name",
                "file_path",
                "matched_text",
                "first_seen_at",
                "last_seen_at",
                "resolved_at",
                "resolution_note",
            ),
        ),
        int: ("line_number", "seen_count"),
        float: ("composite_score",),
        dict: ("validation_detail", "pattern", "resolution_evidence"),
    }
    for type_, names in types.items():
        for name in names:
            assert type(finding[name]) is type_, name
    assert finding["pattern"].keys() == {"name", "secret_type"}
    assert all(type(value) is str for value in finding["pattern"].values())
    assert finding["resolution_evidence"] == {"auto_resolved": False, "resolved_by": "a@example.com"}
    assert finding["validation_detail"]["enabled_services"] == ["aws", "aws_s3"]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("status", ["active", "resolved", "false_positive", "customer_restricted", "stale"]),
        ("validation_status", ["valid", "invalid", "unvalidated", "error", "unreachable"]),
        ("validation_confidence", ["high", "medium", "low"]),
        ("source_type", ["repo", "gist", "commit", "endpoint", "js_bundle"]),
        ("source_visibility", ["public", "internal", "private", "unknown"]),
    ],
)
def test_every_value_of_an_enumeration_is_shown_as_it_is(
    stage: Backend, tenant: Tenant, field: str, values: list[str]
) -> None:
    lines = [make_line(**{field: value}) for value in values]
    stage.import_(tenant.account, *lines)
    assert [tenant.finding(line["id"])[field] for line in lines] == values


@pytest.mark.parametrize("score", [0, 0.1, 33.333333333333336, 99.99, 100])
def test_a_composite_score_is_a_number_from_0_to_100(stage: Backend, tenant: Tenant, score: float) -> None:
    finding = imported(stage, tenant, make_line(composite_score=score))
    assert finding["composite_score"] == score
    assert 0 <= finding["composite_score"] <= 100


def test_a_source_url_keeps_tokens_that_are_not_the_credential(stage: Backend, tenant: Tenant) -> None:
    # "location of the exposure; may contain tokens that were part of the original URL"
    url = "https://files.example.com/a%20b?signature=0123456789abcdef&expires=99#L1"
    assert (
        imported(stage, tenant, make_line(source_url=url, secret="quite-another-credential-1234"))[
            "source_url"
        ]
        == url
    )


def test_texts_come_back_exactly_as_they_were(stage: Backend, tenant: Tenant) -> None:
    texts = {
        "source_url": "https://example.com/ü?x=\u2028",
        "repo_full_name": "ACME/Šop",
        "file_path": "a b/\t'\"\\%_/😀/é\u0301",
    }
    finding = imported(stage, tenant, make_line(**texts))
    assert {name: finding[name] for name in texts} == texts


@pytest.mark.parametrize(
    ("length", "shown"),
    [(1, 0), (7, 0), (8, 1), (15, 1), (16, 2), (23, 2), (24, 3), (31, 3), (32, 4), (40, 4), (4000, 4)],
)
def test_matched_text_shows_an_eighth_at_each_end_and_at_most_four(
    stage: Backend, tenant: Tenant, length: int, shown: int
) -> None:
    # "always masked; the raw credential is never returned"
    # -> min(4, length // 8) characters around exactly eight stars
    secret = ("0123456789abcdefghijklmnopqrstuvwxyz" * 120)[:length]
    finding = imported(stage, tenant, make_line(secret=secret, matched_text=secret[:300]))
    assert finding["matched_text"] == secret[:shown] + MASK + secret[length - shown :]


@pytest.mark.parametrize("secret_type", ["password", "database_password", "PASSWORD"])
def test_a_password_is_masked_wholly(stage: Backend, secret_type: str) -> None:
    tenant = stage.tenant()  # the same credential at the same place is one finding of an account
    line = make_line(
        secret="correct-horse-battery-staple-1234567890",
        pattern={"name": "A password", "secret_type": secret_type},
    )
    assert imported(stage, tenant, line)["matched_text"] == MASK


# Letters that a URL keeps, signs that it encodes, and letters beyond ASCII.
SECRET = "tok/en+with space&signs=é-0123456789"
MASKED = SECRET[:4] + MASK + SECRET[-4:]
WRITINGS = {
    "plainly": SECRET,
    "url-encoded": quote(SECRET, safe=""),
    "url-encoded in lower case": re.sub(r"%..", lambda match: match[0].lower(), quote(SECRET, safe="")),
    "url-encoded but for its slash": quote(SECRET, safe="/"),
    "as a form encodes it": quote(SECRET, safe=" ").replace(" ", "+"),
    "with every byte encoded": "".join(f"%{byte:02X}" for byte in SECRET.encode()),
}


@pytest.mark.parametrize("writing", WRITINGS)
def test_the_credential_is_masked_wherever_it_is_however_it_is_written(stage: Backend, writing: str) -> None:
    tenant = stage.tenant()  # the same credential at the same place is one finding of an account
    # "A detected credential of 8 characters and more is masked in every field it stands in, also URL-encoded"
    raw = WRITINGS[writing]
    line = make_line(
        secret=SECRET,
        status="resolved",
        source_url=f"https://example.com/a?token={raw}&again={raw}",
        file_path=f"dir/{raw}/file",
        resolution_note=f"was {raw}.",
        validation_detail={"enabled_services": ["aws"], "answer": {"echo": [f"<{raw}>"]}},
    )
    finding = imported(stage, tenant, line)
    assert finding["source_url"] == f"https://example.com/a?token={MASKED}&again={MASKED}"
    assert finding["file_path"] == f"dir/{MASKED}/file"
    assert finding["resolution_note"] == f"was {MASKED}."
    assert finding["validation_detail"] == {"enabled_services": ["aws"], "answer": {"echo": [f"<{MASKED}>"]}}
    assert raw not in json.dumps(finding, ensure_ascii=False)


def test_the_credential_is_masked_in_the_name_of_its_pattern_too(stage: Backend, tenant: Tenant) -> None:
    # "the raw credential is never returned"; importers of other tools' reports may find it in a rule's name
    secret = f"named-{uuid4().hex}"
    finding = imported(
        stage, tenant, make_line(secret=secret, pattern={"name": f"Token {secret}", "secret_type": "token"})
    )
    assert finding["pattern"]["name"] == f"Token {secret[:4]}{MASK}{secret[-4:]}"


def test_the_raw_credential_is_nowhere_in_the_tables_either(stage: Backend, tenant: Tenant) -> None:
    secret = f"raw-{uuid4().hex}-value"
    line = make_line(secret=secret, source_url=f"https://example.com/?k={secret}", file_path=f"x/{secret}")
    stage.import_(tenant.account, line)
    tenant.post(f"/findings/{line['id']}/resolve", note=f"it was {secret}").raise_for_status()
    assert tenant.finding(line["id"])["resolution_note"] == f"it was {secret[:4]}{MASK}{secret[-4:]}"
    for table in ("findings", "finding_search", "finding_services", "audit", "outbox"):
        assert stage.sql(f"SELECT count(*) FROM {table} t WHERE t::text LIKE %s", f"%{secret[5:30]}%") == [
            (0,)
        ], table


@pytest.mark.parametrize("writing", ["plainly", "url-encoded", "with every byte encoded"])
@pytest.mark.parametrize("action", ["resolve", "restrict", "false_positive"])
def test_a_note_given_over_the_api_is_masked_too(stage: Backend, action: str, writing: str) -> None:
    tenant = stage.tenant()  # the same credential at the same place is one finding of an account
    line = make_line(secret=SECRET)
    stage.import_(tenant.account, line)
    tenant.post(f"/findings/{line['id']}/{action}", note=f"{WRITINGS[writing]} is gone").raise_for_status()
    assert tenant.finding(line["id"])["resolution_note"] == f"{MASKED} is gone"


def test_a_password_in_a_note_is_masked_wholly(stage: Backend, tenant: Tenant) -> None:
    # "passwords wholly ... masked in every field it stands in (a URL, a path, a note)"
    password = "correct-horse-battery-staple-1234567890"
    line = make_line(
        secret=password,
        source_url=f"https://u:{password}@example.com/",
        pattern={"name": "P", "secret_type": "password"},
    )
    stage.import_(tenant.account, line)
    tenant.post(f"/findings/{line['id']}/resolve", note=f"was {password}").raise_for_status()
    finding = tenant.finding(line["id"])
    assert finding["source_url"] == f"https://u:{MASK}@example.com/"
    assert finding["resolution_note"] == f"was {MASK}"


def test_a_note_stays_within_500_characters_when_the_credential_in_it_is_masked(
    stage: Backend, tenant: Tenant
) -> None:
    # "resolution_note: optional note, maximum 500 characters"; a mask may be longer than the credential
    line = make_line(secret="8letters")
    stage.import_(tenant.account, line)
    assert tenant.post(f"/findings/{line['id']}/resolve", note="8letters" * 62).status_code == 200
    note = tenant.finding(line["id"])["resolution_note"]
    assert "8letters" not in note
    assert len(note) <= 500


def test_a_credential_is_never_masked_in_the_name_of_the_repository(stage: Backend, tenant: Tenant) -> None:
    finding = imported(
        stage,
        tenant,
        make_line(secret="acme-widgets", repo_full_name="acme-widgets/shop", file_path="acme-widgets/a"),
    )
    assert finding["repo_full_name"] == "acme-widgets/shop"
    assert finding["file_path"] == "a********s/a"


def test_a_credential_of_fewer_than_eight_characters_leaves_other_fields_alone(
    stage: Backend, tenant: Tenant
) -> None:
    path = "shorty7/shorty7"
    assert imported(stage, tenant, make_line(secret="shorty7", file_path=path))["file_path"] == path
    assert (
        imported(stage, tenant, make_line(secret="shorty_8", file_path="in/shorty_8"))["file_path"]
        == "in/s********8"
    )


def test_resolved_at_and_evidence_are_there_on_resolved_findings_only(stage: Backend, tenant: Tenant) -> None:
    # "resolved_at: present on resolved findings"
    given = {
        "resolved_at": "2026-03-04T05:06:07+00:00",
        "resolution_evidence": {"auto_resolved": True, "resolved_by": None},
    }
    for status in ("active", "stale", "customer_restricted", "false_positive"):
        finding = imported(stage, tenant, make_line(status=status, **given))
        assert (finding["resolved_at"], finding["resolution_evidence"]) == (None, None), status
    finding = imported(stage, tenant, make_line(status="resolved", **given))
    assert {name: finding[name] for name in given} == given


# --- Scan run


def test_a_scan_run_shows_all_its_fields(stage: Backend, tenant: Tenant) -> None:
    # "A scan run is either a repository-hosting scan (`github`) or a web scrape (`scrape`)."
    run = make_scan(
        type=ScanType.SCRAPE,
        status=ScanStatus.FAILED,
        trigger=Trigger.SCHEDULE,
        target="https://example.com/",
        started_at=make_scan().created_at,
        progress={"targets": 1, "pages": 7, "bytes": 3_000_000_000},
        findings_new=1,
        findings_seen=2,
        findings_resolved=3,
        coverage_gaps=(Gap("https://example.com/big.js", "too large"),),
        error="the site stopped answering",
    )
    stage.scan(tenant.account, run)
    assert tenant.get(f"/scans/{run.id}").json()["data"] == {
        "id": str(run.id),
        "type": "scrape",
        "status": "failed",
        "trigger": "schedule",
        "target": "https://example.com/",
        "created_at": "2026-03-01T00:00:00+00:00",
        "started_at": "2026-03-01T00:00:00+00:00",
        "finished_at": None,
        "progress": {"targets": 1, "commits": 0, "blobs": 0, "pages": 7, "bytes": 3_000_000_000},
        "findings_new": 1,
        "findings_seen": 2,
        "findings_resolved": 3,
        "coverage_gaps": [{"what": "https://example.com/big.js", "why": "too large"}],
        "error": "the site stopped answering",
        "waiting": None,
        "host": None,
        "push": None,
    }


@pytest.mark.parametrize("type_", list(ScanType))
@pytest.mark.parametrize("status", list(ScanStatus))
def test_a_scan_run_is_the_same_object_in_list_and_single_form(
    stage: Backend, type_: ScanType, status: ScanStatus
) -> None:
    tenant = stage.tenant()
    stage.scan(tenant.account, run := make_scan(type=type_, status=status))
    (listed,) = tenant.get("/scans").json()["data"]
    assert listed == tenant.get(f"/scans/{run.id}").json()["data"]
    assert listed.keys() == SCAN_FIELDS
    assert (listed["type"], listed["status"]) == (type_.value, status.value)


# --- Validation error body


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("/findings", {"status": "x"}),
        ("/findings", {"source_type": "x"}),
        ("/findings", {"validation": "x"}),
        ("/findings", {"suppressed": "x"}),
        ("/findings", {"min_score": "x"}),
        ("/findings", {"min_score": "101"}),
        ("/findings", {"date_from": "x"}),
        ("/findings", {"date_to": "x"}),
        ("/findings", {"q": "x" * 1001}),
        ("/findings", {"page": "0"}),
        ("/findings", {"per_page": "201"}),
        ("/findings", {"order_by": "x"}),
        ("/findings", {"order_dir": "x"}),
        ("/findings", {"status": "x", "page": "0", "order_dir": "x"}),
        ("/scans", {"type": "x"}),
        ("/scans", {"limit": "0"}),
        ("/scans", {"page": "0"}),
    ],
)
def test_a_parameter_error_names_each_parameter_once(
    tenant: Tenant, path: str, wrong: dict[str, str]
) -> None:
    # {"detail": [{"loc": [...], "msg": string, "type": string,
    #              "input": any (optional), "ctx": object (optional)}]}
    answer = tenant.get(path, **wrong)
    assert answer.status_code == 422
    assert answer.json().keys() == {"detail"}
    detail = answer.json()["detail"]
    assert sorted(entry["loc"] for entry in detail) == sorted(["query", name] for name in wrong)
    for entry in detail:
        assert {"loc", "msg", "type"} <= entry.keys() <= {"loc", "msg", "type", "input", "ctx"}
        assert entry["msg"]
        assert entry["type"]
        assert type(entry["msg"]) is type(entry["type"]) is str
        assert type(entry.get("ctx", {})) is dict


def test_a_note_that_is_too_long_is_not_sent_back(stage: Backend, tenant: Tenant) -> None:
    line = make_line()
    stage.import_(tenant.account, line)
    answer = tenant.post(f"/findings/{line['id']}/resolve", note="confidential" * 50)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["loc"] == ["query", "note"]
    assert "confidential" not in answer.text
