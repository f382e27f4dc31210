"""The first steps of a new account on its overview: they go away when they are done or dismissed."""

import re

from outcrop.domain.account import Plan, Role
from outcrop.domain.clock import now
from outcrop.services import webhooks
from tests.support.backend import Backend, Tenant
from tests.support.portal_client import Person, make_person, sign_in


def _done(person: Person) -> dict[str, bool] | None:
    """Return the steps on the overview, and whether each is done; None if they are not shown."""
    page = person.page("/")
    if "First steps" not in page:
        return None
    return {
        title: "done" in item
        for item, title in re.findall(
            r'(<li[^>]*><span class="tickmark".*?<strong>([^<]+)</strong>)', page, re.DOTALL
        )
    }


def test_each_step_is_done_by_what_it_asks_for(backend: Backend, tenant: Tenant, owner: Person) -> None:
    steps = ["Add a target", "Set up a webhook", "Invite your team", "Turn on a second factor"]
    assert _done(owner) == dict.fromkeys(steps, False)
    assert owner.post("/targets", target="https://www.example.com/", schedule="off").status_code == 303
    backend.run(
        lambda db: webhooks.save_webhook(
            *(db, backend.keys, tenant.account, "https://receiver.example.com/in"), by="test", now=now()
        )
    )
    assert _done(owner) == dict(zip(steps, (True, True, False, False), strict=True))
    make_person(backend, tenant, Role.MEMBER)
    assert _done(owner) == dict(zip(steps, (True, True, True, False), strict=True))
    account = tenant.account.id
    backend.sql(
        """INSERT INTO second_factors (member_id, account_id, box, confirmed_at)
           SELECT id, account_id, '', now() FROM members WHERE account_id = %s AND email = %s""",
        *(account, owner.email),
    )
    assert _done(owner) is None


def test_steps_that_are_hidden_are_hidden_for_the_account(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    other, stranger = sign_in(backend, tenant, Role.ADMIN), sign_in(backend, backend.tenant())
    assert _done(other) is not None
    assert other.post("/first-steps/dismiss").status_code == 303
    assert _done(owner) is None
    assert _done(stranger) is not None


def test_a_member_who_could_do_no_step_is_not_asked_to(backend: Backend, tenant: Tenant) -> None:
    member = sign_in(backend, tenant, Role.MEMBER)
    assert _done(member) is None
    assert member.post("/first-steps/dismiss").status_code == 403


def test_a_plan_without_webhook_has_no_step_for_it(backend: Backend) -> None:
    owner = sign_in(backend, backend.tenant(Plan.STARTER))
    assert "Set up a webhook" not in (_done(owner) or {})
