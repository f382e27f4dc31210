"""The filters of the list that only the portal has, and who committed a finding and when."""

import re
from datetime import UTC, datetime
from uuid import uuid4

from outcrop.domain.target import Schedule, TargetKind
from outcrop.scanner.rules.issuers import read_type_names
from outcrop.services import targets
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line, make_scan
from tests.support.portal_client import Person

NOW = datetime(2026, 5, 6, 7, 8, 9, tzinfo=UTC)


def _rows(page: str) -> list[str]:
    return re.findall(r'data-id="([0-9a-f-]{36})"', page)


def test_every_built_in_type_has_a_rule_and_most_have_an_issuer() -> None:
    names = read_type_names()
    assert "Stripe" in names["stripe"].issuers
    assert "Stripe secret or restricted key" in names["stripe"].rules
    assert names["stripe"].contain("stripe secret")
    assert not names["stripe"].contain("paystack")
    assert len(names) > 100


def test_search_finds_types_and_issuers_and_the_api_only_places(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    def typed(secret_type: str, path: str) -> dict[str, object]:
        return make_line(
            pattern={"name": "A key", "secret_type": secret_type}, file_path=path, source_url=None
        )

    lines = [typed("stripe", "a.py"), typed("aws", "stripe/b.py"), typed("aws", "c.py")]
    backend.import_(tenant.account, *lines)
    ids = [str(line["id"]) for line in lines]
    assert set(_rows(owner.page("/findings", q="STRIPE"))) == set(ids[:2])
    assert set(_rows(owner.page("/findings", q="amazon"))) == set(ids[1:])  # the issuer of the type aws
    assert _rows(owner.page("/findings", q="stripe a.py")) == ids[:1]
    assert {found["id"] for found in tenant.get("/findings", q="stripe").json()["data"]} == {ids[1]}
    exported = owner.get("/export/findings.jsonl", q="stripe").text
    assert all(id_ in exported for id_ in ids[:2])
    assert _rows(owner.page("/findings", issuer="stripe")) == ids[:1]
    assert _rows(owner.page("/findings", issuer="nobody")) == []
    assert _rows(owner.page("/findings", secret_type="aws", q="c.py")) == ids[2:]


def test_findings_are_listed_by_target_and_by_the_run_that_reported_them(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    lines = [make_line(file_path=f"f{n}.py") for n in range(4)]
    backend.import_(tenant.account, *lines)
    ids = [str(line["id"]) for line in lines]
    target = backend.run(
        lambda db: targets.add_target(
            *(db, backend.keys, tenant.account, "github:acme"),
            kind=TargetKind.OWNER, schedule=Schedule.OFF, include=(), exclude=(), chosen={}, credential=None,
            by="test", now=NOW,
        )
    )  # fmt: skip
    backend.scan(tenant.account, run := make_scan(findings_new=2))
    account_id = tenant.account.id
    backend.sql("UPDATE scans SET target_id = %s WHERE id = %s", target.id, run.id)
    backend.sql(
        """INSERT INTO scan_sources (account_id, scan_id, source, spec, status)
           VALUES (%s, %s, 'old-name', '{}', 'done'), (%s, %s, '77', '{}', 'done')""",
        *(account_id, run.id, account_id, run.id),
    )
    backend.sql(
        "INSERT INTO source_names (account_id, source, is_numbered) VALUES (%s, '78', true)", account_id
    )
    backend.sql("INSERT INTO source_aliases VALUES (%s, 'old-name', '78')", account_id)
    for source, found in (("77", ids[:1]), ("78", ids[1:2]), ("79", ids[2:])):
        backend.sql(
            "UPDATE findings SET source = %s WHERE account_id = %s AND id = ANY(%s::uuid[])",
            source,
            account_id,
            found,
        )
    backend.sql(
        "UPDATE findings SET new_scan_id = %s WHERE account_id = %s AND id = ANY(%s::uuid[])",
        run.id,
        account_id,
        ids[:2],
    )
    assert set(_rows(owner.page("/findings", target=str(target.id)))) == set(ids[:2])
    assert _rows(owner.page("/findings", target=str(uuid4()))) == []
    assert "Ignored, because it is invalid: target" in owner.page("/findings", target="x")
    address = re.search(r'class="tile alarm" href="([^"]+)"', owner.page(f"/scans/{run.id}"))
    assert address is not None
    new = owner.page(address[1].replace("&amp;", "&"))
    assert set(_rows(new)) == set(ids[:2])
    assert "<strong>2</strong> findings" in new


def test_the_list_says_who_committed_and_when_and_is_sorted_by_its_heads(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    who = "Jo <jo@example.com>"
    line = make_line(author=who, commit="abcdef12" * 5, committed_at="2025-03-04T05:06:07+00:00")
    backend.import_(tenant.account, line, make_line(composite_score=10))
    page = owner.page("/findings")
    assert '<bdi>Jo</bdi> <code title="Commit abcdef12' in page
    assert 'datetime="2025-03-04T05:06:07+00:00"' in page
    assert _rows(owner.page("/findings", author=who)) == [str(line["id"])]
    (ascending,) = re.findall(r'class="sort" href="([^"]+)" aria-current', page)
    assert _rows(owner.page(ascending.replace("&amp;", "&")))[-1] == str(line["id"])
    detail = owner.page(f"/findings/{line['id']}")
    assert '<code title="' + "abcdef12" * 5 in detail
    assert "author=Jo+%3Cjo%40example.com%3E" in detail
    for format_ in ("csv", "jsonl"):
        exported = owner.get(f"/export/findings.{format_}").text
        assert all(text in exported for text in (who, "abcdef12" * 5, "2025-03-04T05:06:07"))


def test_findings_are_listed_by_assignee(backend: Backend, tenant: Tenant, owner: Person) -> None:
    assigned, other = make_line(file_path="mine.py"), make_line(file_path="other.py")
    backend.import_(tenant.account, assigned, other)
    incident = tenant.finding(str(assigned["id"]))["incident_id"]
    assert owner.post(f"/incidents/{incident}/assign", assignee=owner.email).status_code == 303
    for chosen in ("me", owner.email, owner.email.upper()):
        assert _rows(page := owner.page("/findings", assignee=chosen)) == [str(assigned["id"])], chosen
        assert f"Assigned to <bdi>{owner.email}" in page
    assert '<option value="me" selected>Me</option>' in owner.page("/findings", assignee="me")
    assert _rows(owner.page("/findings", assignee="none")) == [str(other["id"])]
    gone = owner.page("/findings", assignee="gone@example.com")
    assert (_rows(gone), '<option value="gone@example.com" selected>' in gone) == ([], True)
    exported = owner.get("/export/findings.jsonl", assignee="me").text
    assert (str(assigned["id"]) in exported, str(other["id"]) in exported) == (True, False)
    asked = owner.post("/findings/triage", action="restrict", view="?assignee=none", all="1").text
    assert '<dt>Assignee</dt><dd class="break"><bdi>Nobody</bdi></dd>' in asked
