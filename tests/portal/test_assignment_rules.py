"""Assignment rules: what they assign and what they leave, in the portal and on the command line."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from outcrop.cli.commands import tree
from outcrop.domain.account import Role
from outcrop.domain.clock import now
from outcrop.domain.errors import BadInputError
from outcrop.services.findings import assignment_rules
from outcrop.services.findings.assignment_rules import checked_scope
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line
from tests.support.portal_client import Person, make_person, sign_in


@pytest.mark.parametrize("path", ["x" * 301, "a\nb", "\u202e", " "])
def test_a_scope_that_cannot_be_used_is_refused(path: str) -> None:
    with pytest.raises(BadInputError):
        checked_scope(None, path, None)
    with pytest.raises(BadInputError):
        checked_scope(None, None, None)


def add(backend: Backend, tenant: Tenant, assignee: str, **scope: str) -> Any:
    checked = checked_scope(scope.get("repo"), scope.get("path"), scope.get("author"))
    return backend.run(
        lambda db: assignment_rules.add_rule(
            db, tenant.account, checked, assignee=assignee, by="test", now=now()
        )
    )


def bring(backend: Backend, tenant: Tenant, **fields: Any) -> str:
    """Import a finding and return the id of its incident."""
    backend.import_(tenant.account, line := make_line(**fields))
    tenant.get("/incidents").raise_for_status()
    found: str = tenant.finding(str(line["id"]))["incident_id"]
    return found


def assignee(tenant: Tenant, incident: str) -> str | None:
    found: str | None = tenant.get(f"/incidents/{incident}").json()["data"]["assignee"]
    return found


def test_new_incidents_are_assigned_by_repository_path_and_author(backend: Backend, tenant: Tenant) -> None:
    ada, bob = (make_person(backend, tenant, Role.MEMBER, f"{name}-{tenant.account.slug}@example.com")
                for name in ("ada", "bob"))  # fmt: skip
    before = bring(backend, tenant, repo_full_name="acme/shop", file_path="payments/a.py")
    rule = add(backend, tenant, ada, repo="ACME/*", path="payments/*")
    add(backend, tenant, bob, author="*@SHOP.example.com")
    add(backend, tenant, bob, repo="acme/*")
    wanted = {
        ada: {"repo_full_name": "acme/shop", "file_path": "payments/b.py"},
        bob: {"repo_full_name": "other/x", "author": "Jo Doe <jo@shop.example.com>"},
        None: {
            "repo_full_name": "other/x",
            "file_path": "payments/b.py",
            "author": "jo@shop.example.com.evil",
        },
    }
    found = {member: bring(backend, tenant, **fields) for member, fields in wanted.items()}
    for member, incident in found.items():
        assert assignee(tenant, incident) == member
    assert assignee(tenant, bring(backend, tenant, repo_full_name="acme/x")) == bob
    assert assignee(tenant, before) is None
    (finding,) = tenant.get("/findings", incident_id=found[ada]).json()["data"]
    assert finding["assignee"] == ada
    lines = backend.sql(
        "SELECT actor, detail ->> 'to', detail ->> 'rule' FROM audit WHERE target = %s", found[ada]
    )
    assert lines == [("assignment", ada, str(rule.id))]
    assert tenant.get("/findings", assignee=ada).json()["meta"]["total"] == 1


def test_what_a_person_has_assigned_stays_and_a_former_member_gets_nothing(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    ada = make_person(backend, tenant, Role.MEMBER)
    add(backend, tenant, ada, repo="acme/*")
    incident = bring(backend, tenant, repo_full_name="acme/shop", file_path="a.py")
    assert assignee(tenant, incident) == ada
    for chosen in (owner.email, ""):
        assert owner.post(f"/incidents/{incident}/assign", assignee=chosen).status_code == 303
        (finding,) = tenant.get("/findings", incident_id=incident).json()["data"]
        owner.post(f"/findings/{finding['id']}/resolve")
        owner.post(f"/findings/{finding['id']}/reopen")
        tenant.get("/incidents").raise_for_status()
        assert assignee(tenant, incident) == (chosen or None)
    backend.sql("DELETE FROM members WHERE email = %s", ada)
    assert assignee(tenant, bring(backend, tenant, repo_full_name="acme/shop", file_path="b.py")) is None
    assert "No longer a member" in owner.page("/assignment-rules")


def test_the_page_previews_adds_and_removes_a_rule(backend: Backend, tenant: Tenant, owner: Person) -> None:
    incident = bring(backend, tenant, repo_full_name="acme/shop", file_path="a.py")
    bring(backend, tenant, repo_full_name="other/shop", file_path="a.py")
    assert 'href="/assignment-rules"' in owner.page("/incidents")
    fields = {"repo": "acme/*", "assignee": owner.email}
    preview = owner.post("/assignment-rules", fields)
    assert preview.status_code == 200
    assert "<strong>1</strong> open incident matches, 1 of them without an assignee" in preview.text
    assert f'href="/incidents/{incident}"' in preview.text
    nothing = owner.post("/assignment-rules", fields | {"repo": "nobody/*"}).text
    assert "<strong>0</strong> open incidents match" in nothing
    assert "No rule." in owner.page("/assignment-rules")
    assert owner.post("/assignment-rules", fields | {"add": "1"}).status_code == 303
    member = sign_in(backend, tenant, Role.MEMBER)
    assert "acme/*" in member.page("/assignment-rules")
    assert member.post("/assignment-rules", fields).status_code == 403
    for wrong in ({"repo": ""}, {"assignee": "x@y.example"}, {"assignee": ""}, {"path": "x" * 301}):
        assert owner.post("/assignment-rules", fields | wrong).status_code == 400, wrong
    ((rule_id,),) = backend.sql("SELECT id FROM assignment_rules WHERE account_id = %s", tenant.account.id)
    stranger = sign_in(backend, backend.tenant())
    assert stranger.post(f"/assignment-rules/{rule_id}/remove").status_code == 404
    assert owner.post(f"/assignment-rules/{rule_id}/remove").status_code == 303
    assert owner.post(f"/assignment-rules/{rule_id}/remove").status_code == 404
    assert assignee(tenant, incident) is None


def test_the_command_adds_lists_and_removes_rules(
    backend: Backend, tenant: Tenant, owner: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring(backend, tenant, repo_full_name="acme/shop", file_path="a.py")
    monkeypatch.setenv("OUTCROP_DATABASE_URL", str(backend.settings.database_url))
    key = backend.settings.secret_key
    monkeypatch.setenv("OUTCROP_SECRET_KEY", str(key and key.get_secret_value()))
    slug = ["--account", tenant.account.slug, "--json"]

    def call(*arguments: str) -> Any:
        done = CliRunner().invoke(tree("assignment"), ["assignment", *arguments])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    rule = ("--repo", "acme/*", "--assignee", owner.email.upper())
    dry = call("add", *slug, *rule, "--dry-run")
    assert (dry["matching"], dry["unassigned"], len(dry["examples"])) == (1, 1, 1)
    assert call("list", *slug) == []
    added = call("add", *slug, *rule)
    assert (added["repo"], added["assignee"], added["is_member"]) == ("acme/*", owner.email, True)
    assert call("list", *slug) == [added]
    assert call("remove", *slug, added["id"]) == {"id": added["id"], "removed": True}
    assert call("list", *slug) == []
