"""The page of push hooks shows a secret once, and a run's page shows the push with foreign text escaped."""

from dataclasses import replace

import pytest

from outcrop.domain.account import Role
from outcrop.domain.push import HookHost, RunPush
from outcrop.domain.scan import Trigger
from outcrop.portal.labels import HOOK_HOST
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_scan
from tests.support.portal_client import Person, shown_once, sign_in


@pytest.mark.parametrize("host", list(HookHost))
def test_a_hook_is_created_with_its_steps_and_works(
    backend: Backend, tenant: Tenant, owner: Person, host: HookHost
) -> None:
    page = owner.post("/profile/hooks", host=host).text
    url, secret = shown_once(page, "new-url"), shown_once(page, "new-secret")
    assert f"/hooks/{host}/" in url
    assert f"What to do at {HOOK_HOST[host]}" in page
    later = owner.page("/profile/hooks")
    assert HOOK_HOST[host] in later
    assert secret not in later
    assert url.rpartition("/")[2] not in later
    ((hook_id,),) = backend.sql("SELECT id FROM hooks WHERE account_id = %s", tenant.account.id)
    assert owner.post(f"/profile/hooks/{hook_id}/remove").status_code == 303
    assert backend.sql("SELECT 1 FROM hooks WHERE account_id = %s", tenant.account.id) == []


def test_wrong_forms_and_other_accounts_change_nothing(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    answer = owner.post("/profile/hooks", host="<script>")
    assert (answer.status_code, "Choose a code host" in answer.text) == (400, True)
    assert owner.post("/profile/hooks").status_code == 400
    owner.post("/profile/hooks", host="github")
    ((hook_id,),) = backend.sql("SELECT id FROM hooks WHERE account_id = %s", tenant.account.id)
    stranger = sign_in(backend, backend.tenant())
    member = sign_in(backend, tenant, Role.MEMBER)
    assert stranger.post(f"/profile/hooks/{hook_id}/remove").status_code == 404
    assert member.post(f"/profile/hooks/{hook_id}/remove").status_code == 403
    assert owner.post("/profile/hooks/x/remove").status_code == 404
    assert backend.sql("SELECT 1 FROM hooks WHERE account_id = %s", tenant.account.id) == [(1,)]


def test_the_page_of_a_run_shows_push_branch_and_author(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    push = RunPush(
        *(HookHost.GITEA, "https://git.example/acme/shop", "main", "<b>Ada</b>", "c0ffee" * 6),
        *(("main", "fix\u202e1"), 1_234),
    )
    run = replace(make_scan(), trigger=Trigger.PUSH, push=push)
    backend.scan(tenant.account, run)
    page = owner.page(f"/scans/{run.id}")
    for text in ("1,234 pushes", "Gitea or Forgejo", "<code>c0ffeec0ffee</code>", "&lt;b&gt;Ada&lt;/b&gt;"):
        assert text in page
    assert "\u202e" not in page
    assert "<b>Ada" not in page
    assert "&lt;b&gt;Ada" in owner.page("/scans")
    record = tenant.get(f"/scans/{run.id}").json()["data"]
    assert record["trigger"] == "push"
    assert record["push"] == {
        "host": "gitea",
        "repository": "https://git.example/acme/shop",
        "branch": "main",
        "author": "<b>Ada</b>",
        "commit": "c0ffee" * 6,
        "branches": ["main", "fix\u202e1"],
        "pushes": 1_234,
    }
    compared = replace(make_scan(), trigger=Trigger.PUSH)
    backend.scan(tenant.account, compared)
    assert "all repositories are compared" in owner.page(f"/scans/{compared.id}")
    assert tenant.get(f"/scans/{compared.id}").json()["data"]["push"] is None
