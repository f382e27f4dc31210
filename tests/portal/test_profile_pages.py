"""Security, webhook, export and key pages: what they say is true, and a slip of the hand costs nothing."""

import re

import pyotp
import pytest

from outcrop.domain.clock import now
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line
from tests.support.portal_client import PASSWORD, Person, shown_once

# --- the second factor


def pending(page: str) -> str | None:
    found = re.search(r'<code class="break">([A-Z2-7]{32})</code>', page)
    return None if found is None else found[1]


def wrong_code(secret: str) -> str:
    app, step = pyotp.TOTP(secret), int(now().timestamp()) // 30
    near = {app.generate_otp(step + drift) for drift in range(-3, 4)}
    return next(text for number in range(10) if (text := f"{number:06}") not in near)


def test_a_mistyped_code_leaves_the_same_secret_to_be_confirmed(owner: Person) -> None:
    secret = pending(owner.post("/profile/security/totp", password=PASSWORD).text)
    assert secret is not None
    for code in (wrong_code(secret), "", "abcdef"):
        second = owner.post("/profile/security/totp/confirm", code=code)
        assert second.status_code == 400
        assert "code is wrong" in second.text
        assert pending(second.text) == secret
        assert '<div class="qr"><svg' in second.text
    done = owner.post("/profile/security/totp/confirm", code=pyotp.TOTP(secret).now())
    assert (done.status_code, 'id="recovery"' in done.text) == (200, True)


def test_a_secret_that_is_confirmed_or_was_never_made_is_not_shown(owner: Person) -> None:
    never = owner.post("/profile/security/totp/confirm", code="123456")
    assert (never.status_code, pending(never.text)) == (400, None)
    secret = pending(owner.post("/profile/security/totp", password=PASSWORD).text)
    assert secret is not None
    owner.post("/profile/security/totp/confirm", code=pyotp.TOTP(secret).now())
    after = owner.post("/profile/security/totp/confirm", code="123456")
    assert (after.status_code, secret in after.text) == (400, False)
    assert secret not in owner.page("/profile/security")


# --- the webhook


def test_a_webhook_that_was_never_tried_is_not_called_healthy(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    backend.import_(tenant.account, make_line())  # the overview of an empty account is another one
    assert owner.post("/profile/webhook", url="https://receiver.example.com/in").status_code == 200
    pages = ("/", "/profile/webhook")
    assert [("Not tried yet" in page, "Healthy" in page) for page in map(owner.page, pages)] == [
        (True, False)
    ] * 2
    owner.post("/profile/webhook/test")
    assert [("Not tried yet" in page, "Healthy" in page) for page in map(owner.page, pages)] == [
        (True, False)
    ] * 2
    end_deliveries(backend, tenant, "ok")
    assert [("Not tried yet" in page, "Healthy" in page) for page in map(owner.page, pages)] == [
        (False, True)
    ] * 2


def test_a_webhook_whose_deliveries_are_forgotten_is_not_called_untried(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    backend.import_(tenant.account, make_line())
    owner.post("/profile/webhook", url="https://receiver.example.com/in")
    backend.sql(
        "UPDATE webhooks SET created_at = created_at - interval '32 days' WHERE account_id = %s",
        tenant.account.id,
    )
    for page in map(owner.page, ("/", "/profile/webhook")):
        assert "Nothing sent in 30 days" in page
        assert "Not tried yet" not in page
        assert "none yet" not in page


def test_the_part_that_is_asked_for_again_shows_the_health_too(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    owner.post("/profile/webhook", url="https://receiver.example.com/in")
    owner.post("/profile/webhook/test")
    end_deliveries(backend, tenant, "failed")
    part = owner.client.get("/profile/webhook", headers={"X-Part": "list"}).text
    assert "</html>" not in part
    assert "1 failed in a row" in part
    complete = owner.page("/profile/webhook")
    assert complete.count("1 failed in a row") == 1
    assert complete.index('id="list"') < complete.index("1 failed in a row")


def test_deliveries_of_which_nobody_knows_are_not_called_healthy(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    backend.import_(tenant.account, make_line())
    owner.post("/profile/webhook", url="https://receiver.example.com/in")
    for outcome in ("ok", "unknown", "unknown", "failed"):
        owner.post("/profile/webhook/test")
        end_deliveries(backend, tenant, outcome)
    for page in map(owner.page, ("/", "/profile/webhook")):
        assert "Healthy" not in page
        assert "1 failed in a row" in page
        assert "2 with an unknown outcome" in page
    owner.post("/profile/webhook/test")
    end_deliveries(backend, tenant, "ok")
    assert "Healthy" in owner.page("/profile/webhook")


def end_deliveries(backend: Backend, tenant: Tenant, outcome: str) -> None:
    """Do what a worker does when it has sent them."""
    backend.sql(
        """UPDATE outbox o SET claimed_at = now(), outcome = %s, webhook_id = w.id FROM webhooks w
           WHERE w.account_id = o.account_id AND o.account_id = %s AND o.outcome IS NULL""",
        outcome, tenant.account.id,
    )  # fmt: skip


# --- export


def test_an_export_after_the_session_ended_shows_the_sign_in_page_and_saves_nothing(owner: Person) -> None:
    page = owner.page("/profile/export")
    assert page.count('href="/export/findings.') == 6
    assert (
        " download" not in page
    )  # a browser would save whatever comes, the sign-in page too; the file itself says that it is one
    assert owner.get("/export/findings.csv").headers["Content-Disposition"].startswith("attachment; ")
    owner.post("/sign-out")
    led = owner.get("/export/findings.csv")
    assert (led.status_code, led.headers["Location"]) == (303, "/sign-in?next=/export/findings.csv")
    assert "Content-Disposition" not in led.headers


def test_a_delivery_links_to_a_finding_that_is_there_and_to_no_other(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    backend.import_(tenant.account, line := make_line())
    owner.post("/profile/webhook", url="https://receiver.example.com/in")
    owner.post("/profile/webhook/test")
    owner.post(f"/findings/{line['id']}/resolve")
    page = owner.page("/profile/webhook")
    assert "webhook.test" in page
    assert re.findall(r'href="(/findings/[^"]+)"', page) == [f"/findings/{line['id']}"]


@pytest.mark.parametrize(
    "given",
    ["status=nonsense", "validation=x", "min_score=101", "date_from=yesterday", "q=a&source_type=%00"],
)
def test_an_export_of_a_view_that_cannot_be_read_is_refused(
    backend: Backend, tenant: Tenant, owner: Person, given: str
) -> None:
    backend.import_(tenant.account, make_line())
    refused = owner.get(f"/export/findings.csv?{given}")
    assert refused.status_code == 400
    assert "are invalid" in refused.text
    assert "Content-Disposition" not in refused.headers


def test_an_export_holds_the_view_or_everything(backend: Backend, tenant: Tenant, owner: Person) -> None:
    backend.import_(tenant.account, make_line(), make_line(status="resolved"), make_line(status="resolved"))
    counts = {
        view: len(owner.page(f"/export/findings.jsonl{view}").splitlines())
        for view in ("", "?status=resolved", "?status=active")
    }
    assert counts == {"": 3, "?status=resolved": 2, "?status=active": 1}


# --- keys


def test_what_was_typed_for_a_key_is_there_after_an_error(owner: Person) -> None:
    refused = owner.post("/profile/keys", name="CI of <acme>", expires="2001-02-03")
    assert refused.status_code == 400
    assert 'value="CI of &lt;acme&gt;"' in refused.text
    assert 'value="2001-02-03"' in refused.text
    made = owner.post("/profile/keys", name="CI of <acme>")
    assert shown_once(made.text, "new-key")
    assert 'value="CI of' not in made.text  # the next key has a name of its own
