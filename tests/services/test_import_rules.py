"""Test that findings of reports are as good as our own: rule, parts, score, validation, audit and events."""

import json
import random
import string
from typing import Any

import pytest

from outcrop.domain.secret import reveal
from outcrop.services.exchange.formats import ImportFormat
from outcrop.store.findings.verdicts import NEVER_CHECKED
from tests.services.test_import_formats import (
    VALUE,
    as_lines,
    gitleaks,
    import_report,
    kingfisher,
    result,
    sarif,
    trufflehog,
)
from tests.services.test_import_tools import defectdojo
from tests.support.backend import Backend, Tenant
from tests.support.rulesets import ruleset

RANDOM = random.Random(41)


def random_text(length: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(RANDOM.choice(alphabet) for _ in range(length))


KEY_ID, KEY = "AKIA" + random_text(16, string.ascii_uppercase + "234567"), random_text(40)
SENDGRID = f"SG.{random_text(22)}.{random_text(43)}"
PEM = "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *["Mz8Kq2Lw" * 8] * 12, "-----END RSA PRIVATE KEY-----"])


def import_with_rules(backend: Backend, tenant: Tenant, data: bytes, **options: Any) -> Any:
    return import_report(backend, tenant, data, load_rules=ruleset, **options)


def stored(backend: Backend, tenant: Tenant) -> list[tuple[Any, ...]]:
    """Return rule, type, credential and parts of each finding."""
    rows = backend.sql(
        "SELECT id, rule, pattern_secret_type, secret_box FROM findings WHERE account_id = %s ORDER BY rule",
        tenant.account.id,
    )
    found = []
    for id_, rule, type_, box in rows:
        secret, parts = backend.keys.open_with_companions(box, tenant.account.id, id_, mask_all=True)
        found.append((rule, type_, reveal(secret), {name: reveal(part) for name, part in parts.items()}))
    return found


@pytest.mark.parametrize(
    "report",
    [
        as_lines(trufflehog(DetectorName="AWS", Raw=KEY_ID, RawV2=f"{KEY_ID}:{KEY}")),
        as_lines(trufflehog(DetectorName="AWS", Raw=KEY_ID, RawV2=f"{KEY_ID}{KEY}")),
        as_lines(kingfisher(snippet=KEY_ID, dependent_captures={"AWS_SECRET_ACCESS_KEY": KEY})),
    ],
)
def test_a_credential_of_two_parts_is_the_one_that_a_run_finds(backend: Backend, report: bytes) -> None:
    tenant = backend.tenant()
    import_with_rules(backend, tenant, report)
    (rule, _, secret, parts) = stored(backend, tenant)[0]
    assert (rule, secret, parts) == ("aws_access_key", KEY, {"access_key_id": KEY_ID})


@pytest.mark.parametrize("value", [PEM, PEM + "\n", PEM.replace("\n", "\r\n")])
def test_a_private_key_is_one_finding_whatever_its_line_ends_are(backend: Backend, value: str) -> None:
    tenant = backend.tenant()
    import_with_rules(backend, tenant, as_lines(trufflehog(DetectorName="PrivateKey", Raw=PEM)))
    summary = import_with_rules(backend, tenant, as_lines(trufflehog(DetectorName="PrivateKey", Raw=value)))
    assert (summary.new, summary.updated) == (0, 1)
    assert [row[0] for row in stored(backend, tenant)] == ["private_key"]


def test_our_rule_names_type_and_impact_and_the_credential_becomes_due(backend: Backend) -> None:
    tenant = backend.tenant()
    report = as_lines(trufflehog(Raw=SENDGRID, Verified=True))
    import_with_rules(backend, tenant, report)
    (found,) = tenant.get("/findings").json()["data"]
    rule = ruleset().rules.get("sendgrid_api_key")
    assert rule is not None
    assert found["pattern"] == {"name": rule.name, "secret_type": rule.secret_type}
    assert found["validation_status"] == "valid"
    (detail,) = backend.sql("SELECT score_detail FROM findings WHERE id = %s", found["id"])[0]
    assert (detail["strength"], detail["impact"]) == ("prefix", rule.impact)
    assert found["composite_score"] == sum(detail["parts"].values()) > 60
    due = "SELECT status, checked_at FROM verdicts WHERE account_id = %s"
    assert backend.sql(due, tenant.account.id) == [("unvalidated", NEVER_CHECKED)]
    jobs = "SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'validate_due' AND status = 'todo'"
    assert backend.sql(jobs) == [(1,)]
    backend.sql(
        "UPDATE verdicts SET checked_at = now(), status = 'invalid' WHERE account_id = %s", tenant.account.id
    )
    import_with_rules(backend, tenant, report)
    assert backend.sql("SELECT status FROM verdicts WHERE account_id = %s", tenant.account.id) == [
        ("invalid",)
    ]


def test_a_snippet_of_sarif_gives_the_credential_if_a_rule_knows_it(backend: Backend) -> None:
    tenant = backend.tenant()
    log = sarif(result(), result(ruleId="other"))
    for entry in log["runs"][0]["results"]:
        entry["locations"][0]["physicalLocation"]["region"]["snippet"]["text"] = f'key = "{SENDGRID}"'
    import_with_rules(backend, tenant, json.dumps(log).encode())
    assert [row[0] for row in stored(backend, tenant)] == ["sendgrid_api_key"], "two reports of one leak"


def test_a_description_of_defectdojo_gives_the_credential_if_a_rule_knows_it(backend: Backend) -> None:
    tenant = backend.tenant()
    report = defectdojo(description=f"Found {SENDGRID} in **src/a.py**")
    import_with_rules(backend, tenant, json.dumps(report).encode())
    ((rule, _type, secret, _parts),) = stored(backend, tenant)
    assert (rule, secret) == ("sendgrid_api_key", SENDGRID)


def test_a_title_is_masked(backend: Backend) -> None:
    tenant = backend.tenant()
    import_with_rules(backend, tenant, json.dumps(defectdojo(title=f"Token {SENDGRID} found")).encode())
    (found,) = tenant.get("/findings").json()["data"]
    assert SENDGRID not in json.dumps(found)
    assert found["pattern"]["name"].startswith("Token SG.")


def test_a_generic_value_needs_its_context(backend: Backend) -> None:
    tenant = backend.tenant()
    value = "q8Zr4TnW1xLv7KpY3mBd9HsJ"
    records = [
        gitleaks(Secret=value, Match=f'db_password = "{value}"', File="a.py"),
        gitleaks(Secret=value, Match=value, File="b.py"),
    ]
    import_with_rules(backend, tenant, json.dumps(records).encode())
    types = (
        "SELECT file_path, rule IS NULL, pattern_secret_type FROM findings WHERE account_id = %s ORDER BY 1"
    )
    (first, second) = backend.sql(types, tenant.account.id)
    assert first[1] is False
    assert second[1:] == (True, "generic-api-key")


@pytest.mark.parametrize("sends_events", [True, False])
def test_new_findings_have_audit_lines_and_events_on_request(backend: Backend, *, sends_events: bool) -> None:
    tenant = backend.tenant()
    report = as_lines(trufflehog(), trufflehog(Raw=SENDGRID))
    for _ in range(2):
        import_with_rules(backend, tenant, report, sends_events=sends_events)
    lines = backend.sql(
        "SELECT action, target, actor FROM audit WHERE account_id = %s AND action LIKE 'finding%%' ORDER BY id",
        tenant.account.id,
    )
    ids = {f["id"] for f in tenant.get("/findings").json()["data"]}
    assert {target for action, target, _ in lines if action == "finding.new"} == ids
    assert [action for action, _, _ in lines].count("finding.new") == 2
    assert [action for action, _, _ in lines].count("findings.import") == 2
    events = backend.sql(
        "SELECT event, finding_id::text FROM outbox WHERE account_id = %s", tenant.account.id
    )
    assert {id_ for _, id_ in events} == (ids if sends_events else set())
    assert len(events) == (2 if sends_events else 0)


def test_our_own_scan_output_is_a_report(backend: Backend) -> None:
    tenant = backend.tenant()
    line = {"fingerprint": "a.py:abcde:1", "matched_text": "********", "file_path": "a.py", "line_number": 3}
    array = json.dumps([line, line | {"fingerprint": "a.py:abcdf:1", "secret": SENDGRID}]).encode()
    assert import_with_rules(backend, tenant, array, repo="https://github.com/acme/shop").new == 2
    lines = b"\n".join(json.dumps(entry).encode() for entry in json.loads(array))
    summary = import_with_rules(
        backend, tenant, lines, format_=ImportFormat.AUTO, repo="git@github.com:acme/shop.git"
    )
    assert (summary.new, summary.updated) == (0, 2)


def test_the_text_around_a_credential_is_stored_nowhere(backend: Backend) -> None:
    tenant = backend.tenant()
    import_with_rules(backend, tenant, json.dumps([gitleaks()]).encode())
    stored = "SELECT 1 FROM findings f WHERE account_id = %s AND strpos(f::text, %s) > 0"
    assert backend.sql(stored, tenant.account.id, VALUE) == []
    assert tenant.get("/findings").json()["meta"]["total"] == 1
