"""The form of a target: what was chosen stays chosen after an error, and its words are the portal's."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from outcrop.domain.scan import FailureKind
from outcrop.portal import labels
from outcrop.services.access import AccessCheck
from outcrop.settings import Settings
from outcrop.store.keyring import Keyring
from tests.support.backend import Backend, Tenant, running_server
from tests.support.code_hosts.gitlab import gitlab
from tests.support.code_hosts.stand_in import StandIn, answer_json, run_stand_in
from tests.support.portal_client import Person, sign_in

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
    given = {"target": "gitea:acme", "host_url": "https://git.example.com/", "anyway": "1"}
    assert owner.post("/targets", given, schedule="off").status_code == 303
    rows = backend.sql("SELECT kind, name FROM targets WHERE account_id = %s", tenant.account.id)
    assert rows == [("owner", "gitea:acme https://git.example.com")]
    assert "exists already" in owner.post("/targets", given | {"target": "gitea:Acme"}, schedule="off").text


def test_a_test_of_access_stores_nothing_and_never_shows_the_token(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    for target in ("https://www.example.com/", "gitlab:acme"):
        page = owner.post("/targets", target=target, schedule="off", credential="a-token", test="1")
        assert page.status_code == 200
        assert "Access can be tested for" in page.text
        assert "a-token" not in page.text
        assert "Enter the credential again" in page.text
    assert backend.sql("SELECT id FROM targets WHERE account_id = %s", tenant.account.id) == []


@pytest.fixture
def at_host(settings: Settings, keys: Keyring, tmp_path: Path) -> Iterator[tuple[Backend, StandIn]]:
    """Yield a server whose connections to gitlab.com lead to a stand-in."""
    with run_stand_in(gitlab(), tmp_path / "tls") as host:
        assert host.server is not None
        host.add("acme/shop")
        access = AccessCheck(host.server.egress, "https://api.github.com")
        with (
            running_server(settings, rate_limit=0, access=access) as server,
            Backend(settings, keys, server.base_url) as backend,
        ):
            yield backend, host


def test_access_is_tested_before_a_target_is_saved(at_host: tuple[Backend, StandIn]) -> None:
    backend, host = at_host
    owner = sign_in(backend, tenant := backend.tenant())
    names = "SELECT name FROM targets WHERE account_id = %s ORDER BY name"
    given = {"target": "gitlab:acme", "schedule": "off"}

    host.always["/api/v4"] = answer_json({"message": "401 Unauthorized"}, 401)
    refused = owner.post("/targets", given, credential="glpat-made-up")
    assert refused.status_code == 400
    assert "The test of access failed." in refused.text
    assert labels.FAILURE_ADVICE[FailureKind.UNAUTHORISED] in unescape(refused.text)
    assert 'name="anyway"' in refused.text
    assert 'value="gitlab:acme"' in refused.text
    assert "glpat-made-up" not in refused.text
    assert backend.sql(names, tenant.account.id) == []
    assert owner.post("/targets", given, anyway="1").status_code == 303

    host.always.clear()
    lacking = owner.post(
        "/targets", given | {"target": "https://gitlab.com/acme/shop"}, credential="glpat-made-up"
    )
    assert "lacks: read_repository" in lacking.text  # as the stand-in says of every token
    assert owner.post("/targets", given | {"target": "https://gitlab.com/acme/shop"}).status_code == 303
    assert len(backend.sql(names, tenant.account.id)) == 2


def test_a_new_credential_of_a_target_is_tested_too(at_host: tuple[Backend, StandIn]) -> None:
    backend, host = at_host
    owner = sign_in(backend, tenant := backend.tenant())
    assert owner.post("/targets", target="gitlab:acme", schedule="off", anyway="1").status_code == 303
    ((id_,),) = backend.sql("SELECT id FROM targets WHERE account_id = %s", tenant.account.id)
    host.always["/api/v4"] = answer_json({"message": "404"}, 404)
    assert owner.post(f"/targets/{id_}", schedule="weekly").status_code == 303
    refused = owner.post(f"/targets/{id_}", schedule="weekly", credential="glpat-x")
    assert refused.status_code == 400
    assert "Save it anyway" in refused.text
    has_credential = "SELECT credential_box IS NOT NULL FROM targets WHERE id = %s"
    assert backend.sql(has_credential, id_) == [(False,)]
    saved = owner.post(f"/targets/{id_}", schedule="weekly", credential="glpat-x", anyway="1")
    assert saved.status_code == 303
    assert backend.sql(has_credential, id_) == [(True,)]


def test_the_script_gets_the_problem_alone_or_where_to_go(owner: Person) -> None:
    script = {"X-Part": "access"}
    refused = owner.post("/targets", BAD, headers=script)
    assert refused.status_code == 400
    assert refused.text.strip().startswith('<p class="wrong"')
    added = owner.post("/targets", target="https://www.example.org/", schedule="off", headers=script)
    assert (added.status_code, added.headers["x-location"]) == (204, "/targets")
    assert "location" not in added.headers
    assert "Target added." in owner.page("/targets")
