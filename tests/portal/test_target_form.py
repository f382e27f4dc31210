"""The form of a target: what was chosen stays chosen after an error, and its words are the portal's."""

import re

import pytest

from tests.support.backend import Backend, Tenant
from tests.support.portal_client import Person

BAD = {"target": "not a target at all"}


def ticked(page: str) -> set[str]:
    return set(re.findall(r'<input type="checkbox" name="([\w.]+)" checked', page))


def shown(page: str) -> dict[str, str]:
    """Return the hidden fields that name the check boxes of the form."""
    return dict.fromkeys(re.findall(r'name="([\w.]+\.shown)"', page), "1")


def test_what_was_ticked_and_typed_is_there_after_an_error(owner: Person) -> None:
    form = owner.page("/targets/new")
    assert ticked(form) == {"owner.archived", "owner.wikis", "repository.wikis", "site.robots", "page.robots"}
    chosen = {
        "owner.forks": "on",
        "owner.wikis": "on",
        "site.leak_places": "on",
        "site.depth": "7",
        "site.pages": "",
    }
    refused = owner.post(
        "/targets", BAD | shown(form) | chosen, kind="owner", schedule="weekly", include="*.py", exclude=""
    )
    assert refused.status_code == 400
    assert ticked(refused.text) == {"owner.forks", "owner.wikis", "site.leak_places"}
    assert 'name="site.depth" value="7"' in refused.text
    assert '<option value="owner" selected>' in refused.text
    assert '<option value="weekly" selected>' in refused.text
    assert '<textarea name="include" rows="2">*.py</textarea>' in refused.text


def test_what_was_changed_of_a_target_is_there_after_an_error(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    given = {
        "target": "https://www.example.com/",
        "kind": "site",
        "include": "/a*",
        "credential": "a-token-of-theirs",
    }
    assert owner.post("/targets", given, schedule="off").status_code == 303
    target = backend.sql("SELECT id FROM targets WHERE account_id = %s", tenant.account.id)[0][0]
    form = owner.page(f"/targets/{target}")
    assert ticked(form) == {"site.robots"}
    changed = {
        "site.leak_places": "on",
        "site.depth": "999",
        "include": "",
        "schedule": "hourly",
        "forget": "on",
        "credential": "another",
    }
    refused = owner.post(f"/targets/{target}", shown(form) | changed)
    assert refused.status_code == 400
    assert ticked(refused.text) == {"site.leak_places", "forget"}
    assert 'name="site.depth" value="999"' in refused.text
    assert '<textarea name="include" rows="2"></textarea>' in refused.text
    assert "another" not in refused.text
    assert "a-token-of-theirs" not in refused.text


def test_each_legend_says_what_is_below_it(owner: Person) -> None:
    legends = re.findall("<legend>([^<]+)</legend>", owner.page("/targets/new"))
    assert legends == [
        "Organisation, group or user: also scan",
        "Repository: also scan",
        "Web site: options",
        "Single page: options",
    ]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("https://me:hunter2@git.example.com/a/b.git", "enter the credential in its field below"),
        ("https://github.com/about/careers/all", "the kind “Single page” for the page itself"),
        ("https://gitlab.com/explore", "the kind “Single page” for the page itself"),
        ("https://gitlab.example.com/acme", "the field “Address of the code host”"),
        ("gitea:acme", "the field “Address of the code host”"),
    ],
)
def test_an_error_speaks_of_the_form_not_of_the_command_line(owner: Person, target: str, said: str) -> None:
    refused = owner.post("/targets", target=target, schedule="off")
    reported = re.search('<p class="wrong" role="alert">([^<]+)</p>', refused.text)
    assert refused.status_code == 400
    assert reported is not None
    assert said in reported[1]
    assert "--" not in reported[1]
    assert "hunter2" not in reported[1]


def test_a_group_of_a_self_hosted_code_host_is_added(backend: Backend, tenant: Tenant, owner: Person) -> None:
    given = {"target": "gitea:acme", "host_url": "https://git.example.com/"}
    assert owner.post("/targets", given, schedule="off").status_code == 303
    rows = backend.sql("SELECT kind, name FROM targets WHERE account_id = %s", tenant.account.id)
    assert rows == [("owner", "gitea:acme https://git.example.com")]
    assert "exists already" in owner.post("/targets", given | {"target": "gitea:Acme"}, schedule="off").text


def test_a_test_of_access_stores_nothing_and_never_shows_the_token(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    for target in ("https://www.example.com/", "gitlab:acme"):
        page = owner.post("/targets", target=target, schedule="off", credential="a-token", test="1")
        assert page.status_code == 400
        assert "a-token" not in page.text
    assert backend.sql("SELECT id FROM targets WHERE account_id = %s", tenant.account.id) == []
