"""Suppression rules: on the command line, in the portal, for new findings, and when they end."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from outcrop.cli.commands import tree
from outcrop.domain.account import Role
from outcrop.domain.clock import now
from outcrop.domain.errors import BadInputError
from outcrop.services import suppressions
from outcrop.services.suppressions import checked_scope
from outcrop.store import db as database
from outcrop.store.findings.suppressions import to_like_pattern
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line
from tests.support.portal_client import Person, sign_in
from tests.support.rulesets import github_token


def test_a_glob_becomes_a_like_pattern() -> None:
    assert to_like_pattern("a*b?c") == "a%b_c"
    assert to_like_pattern("100%_\\x") == "100\\%\\_\\\\x"
    assert to_like_pattern(None) is None


@pytest.mark.parametrize("path", ["x" * 301, "a\nb", "\u202e", " "])
def test_a_scope_that_cannot_be_used_is_refused(path: str) -> None:
    with pytest.raises(BadInputError):
        checked_scope(path, None, None)
    with pytest.raises(BadInputError):
        checked_scope(None, None, None)


def _paths(backend: Backend, tenant: Tenant) -> dict[str, bool]:
    """Return whether each finding is hidden, by path."""
    rows = backend.sql(
        "SELECT file_path, suppressed_at IS NOT NULL FROM findings WHERE account_id = %s", tenant.account.id
    )
    return dict(rows)


def _add(backend: Backend, tenant: Tenant, **options: Any) -> Any:
    scope = checked_scope(options.get("path"), options.get("repo"), options.get("type"))
    return backend.run(
        lambda db: suppressions.add_rule(
            db, tenant.account, scope, reason="a reason",  # type: ignore[arg-type]
            expires_at=options.get("expires_at"), by="ada@example.com", now=now(),
        )
    )  # fmt: skip


def _end(backend: Backend, tenant: Tenant, rule: Any) -> None:
    backend.run(
        lambda db: suppressions.end_rule(db, tenant.account, rule.id, by="ada@example.com", now=now())
    )


def _finish(backend: Backend) -> None:
    async def main() -> None:
        assert backend.settings.database_url is not None
        async with database.open_pool(backend.settings.database_url, size=1, statement_timeout=30) as pool:
            await suppressions.run_pending(pool)

    asyncio.run(main())


def test_a_rule_hides_what_it_matches_and_new_findings_too(backend: Backend, tenant: Tenant) -> None:
    places = ["tests/a.py", "src/b.py", "tests/100%_x.py"]
    backend.import_(
        tenant.account, *(make_line(file_path=path, repo_full_name="ACME/Shop") for path in places)
    )
    rule = _add(backend, tenant, path="tests/*", repo="acme/*")
    assert _paths(backend, tenant) == {"tests/a.py": True, "src/b.py": False, "tests/100%_x.py": True}
    assert tenant.get("/findings", status="active").json()["meta"]["total"] == 1
    late = make_line(file_path="tests/late.py")
    backend.import_(tenant.account, late, make_line(file_path="src/late.py"))
    assert _paths(backend, tenant)["tests/late.py"]
    assert not _paths(backend, tenant)["src/late.py"]
    lines = backend.sql("SELECT actor, detail ->> 'rule' FROM audit WHERE action = 'finding.suppress' AND target = %s",
                        str(late["id"]))  # fmt: skip
    assert lines == [("suppression", str(rule.id))]
    assert tenant.finding(str(late["id"]))["status"] == "active"
    other = backend.tenant()
    backend.import_(other.account, make_line(file_path="tests/a.py"))
    assert _paths(backend, other) == {"tests/a.py": False}
    _end(backend, tenant, rule)
    assert not any(_paths(backend, tenant).values())


def test_a_rule_that_ends_shows_only_what_it_alone_hid(backend: Backend, tenant: Tenant) -> None:
    lines = {
        name: make_line(file_path=f"{name}.py") for name in ("person", "both", "adopted", "shown", "rule")
    }
    backend.import_(tenant.account, *lines.values())
    for name in ("person",):
        tenant.post(f"/findings/{lines[name]['id']}/suppress").raise_for_status()
    first = _add(backend, tenant, path="*.py")
    second = _add(backend, tenant, path="b*.py")
    tenant.post(
        f"/findings/{lines['adopted']['id']}/suppress"
    ).raise_for_status()  # a person wants it hidden too
    backend.sql("SELECT 1")
    _end(backend, tenant, first)
    hidden = {path.removesuffix(".py") for path, is_hidden in _paths(backend, tenant).items() if is_hidden}
    assert hidden == {"person", "both", "adopted"}
    _end(backend, tenant, second)
    hidden = {path.removesuffix(".py") for path, is_hidden in _paths(backend, tenant).items() if is_hidden}
    assert hidden == {"person", "adopted"}


def test_what_a_person_shows_again_stays_shown_and_a_rescan_hides_nothing(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    backend.import_(tenant.account, line := make_line(file_path="tests/a.py"))
    _add(backend, tenant, path="tests/*")
    owner.post(f"/findings/{line['id']}/unsuppress")
    assert _paths(backend, tenant) == {"tests/a.py": False}
    backend.import_(tenant.account, line | {"seen_count": 4})
    _finish(backend)
    assert _paths(backend, tenant) == {"tests/a.py": False}


def test_an_expired_rule_shows_its_findings_in_batches(
    backend: Backend, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suppressions, "BATCH_SIZE", 2)
    backend.import_(tenant.account, *(make_line(file_path=f"tests/{n}.py") for n in range(5)))
    rule = _add(backend, tenant, type="aws", expires_at=now() + timedelta(hours=1))
    assert sum(_paths(backend, tenant).values()) == 2
    _finish(backend)
    assert all(_paths(backend, tenant).values())
    backend.sql(
        "UPDATE suppression_rules SET expires_at = now() - interval '1 second' WHERE id = %s", rule.id
    )
    assert backend.run(lambda db: suppressions.list_rules(db, tenant.account)) == []
    _finish(backend)
    assert not any(_paths(backend, tenant).values())
    actions = backend.sql("SELECT action FROM audit WHERE target = %s ORDER BY id", str(rule.id))
    assert actions == [("suppression.add",), ("suppression.expire",)]
    with pytest.raises(BadInputError):
        _add(backend, tenant, type="aws", expires_at=now())


def test_the_page_previews_adds_and_ends_a_rule(backend: Backend, tenant: Tenant, owner: Person) -> None:
    backend.import_(tenant.account, make_line(file_path="tests/a.py"), make_line(file_path="src/b.py"))
    fields = {"path": "tests/*", "reason": "made up"}
    preview = owner.post("/suppressions", fields)
    assert preview.status_code == 200
    assert "<strong>1</strong> finding would be hidden" in preview.text
    assert not any(_paths(backend, tenant).values())
    assert owner.post("/suppressions", fields | {"add": "1"}).status_code == 303
    assert _paths(backend, tenant)["tests/a.py"]
    member = sign_in(backend, tenant, Role.MEMBER)
    assert "made up" in member.page("/suppressions")
    assert member.post("/suppressions", fields).status_code == 403
    assert owner.post("/suppressions", {"reason": "x"}).status_code == 400
    assert owner.post("/suppressions", {"path": "x"}).status_code == 400
    assert owner.post("/suppressions", fields | {"expires": "soon"}).status_code == 400
    ((rule_id,),) = backend.sql("SELECT id FROM suppression_rules WHERE account_id = %s", tenant.account.id)
    stranger = sign_in(backend, backend.tenant())
    assert stranger.post(f"/suppressions/{rule_id}/remove").status_code == 404
    assert owner.post(f"/suppressions/{rule_id}/remove").status_code == 303
    assert not any(_paths(backend, tenant).values())
    assert owner.post(f"/suppressions/{rule_id}/remove").status_code == 404


def test_the_command_adds_lists_and_removes_rules(
    backend: Backend, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.import_(tenant.account, make_line(file_path="tests/a.py"), make_line(file_path="src/b.py"))
    monkeypatch.setenv("OUTCROP_DATABASE_URL", str(backend.settings.database_url))
    monkeypatch.setenv(
        "OUTCROP_SECRET_KEY",
        str(backend.settings.secret_key and backend.settings.secret_key.get_secret_value()),
    )
    slug = ["--account", tenant.account.slug, "--json"]

    def call(*arguments: str) -> Any:
        done = CliRunner().invoke(tree("suppression"), ["suppression", *arguments])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    dry = call("add", *slug, "--path", "tests/*", "--reason", "made up", "--dry-run")
    assert (dry["matching"], dry["hidden"], len(dry["examples"])) == (1, 1, 1)
    assert not any(_paths(backend, tenant).values())
    added = call("add", *slug, "--path", "tests/*", "--type", "aws", "--reason", "made up",
                 "--expires-at", "2999-01-01T00:00:00Z")  # fmt: skip
    assert (added["hidden"], added["expires_at"]) == (1, "2999-01-01T00:00:00+00:00")
    assert _paths(backend, tenant)["tests/a.py"]
    assert call("list", *slug) == [added]
    token = github_token()
    masked = call("add", *slug, "--path", "none/*", "--reason", f"was {token}")
    assert token not in masked["reason"]
    assert masked["reason"].startswith("was ghp_********")
    call("remove", *slug, masked["id"])
    assert call("remove", *slug, added["id"])["id"] == added["id"]
    assert call("list", *slug) == []
    assert not any(_paths(backend, tenant).values())
