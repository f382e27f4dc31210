"""The secret of a webhook is changed in two steps; deliveries are found, shown as sent and sent again."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from outcrop.domain.account import WEBHOOK_PLANS
from outcrop.domain.clock import now
from outcrop.domain.secret import reveal
from outcrop.domain.webhook import DeliveryOutcome, write_body
from outcrop.store import outbox, webhooks
from outcrop.store.outbox import ClaimedEvent, DeliveryResult
from outcrop.webhooks import VerificationError, sign, verify
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line
from tests.support.portal_client import Person, shown_once

OLD, NEW, OTHER = "ab" * 32, "cd" * 32, "ef" * 32
BODY = orjson.dumps({"event": "finding.new", "delivered_at": "2026-05-06T07:08:09+00:00"})
NOW = datetime(2026, 5, 6, 7, 8, 9, tzinfo=UTC).timestamp()


def headers(secret: str, *others: str) -> dict[str, str]:
    return sign(BODY, secret, id_="x", timestamp=int(NOW), others=others)


def test_both_secrets_verify_while_one_is_changed() -> None:
    for sent in (headers(OLD, NEW), headers(NEW, OLD)):
        assert len(sent["webhook-signature"].split(" ")) == 2
        assert verify(BODY, sent, [OLD, NEW], now=NOW)["event"] == "finding.new"
        standard = {name: value for name, value in sent.items() if name != "X-Service-Signature"}
        for secret in (OLD, NEW):
            assert verify(BODY, standard, secret, now=NOW)
    assert verify(BODY, headers(OLD, NEW), OLD, now=NOW)
    with pytest.raises(VerificationError, match="X-Service-Signature does not match"):
        verify(BODY, headers(OLD, NEW), NEW, now=NOW)  # the plain header is that of the present secret alone
    with pytest.raises(VerificationError):
        verify(BODY, headers(OLD, NEW), OTHER, now=NOW)
    for none in ("", [], [OLD, ""]):
        with pytest.raises(VerificationError, match="empty"):
            verify(BODY, headers(OLD), none, now=NOW)


def test_the_same_arguments_give_the_same_body() -> None:
    moment = datetime(2026, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    body = write_body("finding.new", moment, "acme", '{"id":  1}')
    assert (
        body
        == b'{"event":"finding.new","delivered_at":"2026-05-06T07:08:09.123456+00:00","client_slug":"acme","finding":{"id":  1}}'
    )


def _claim(backend: Backend, tenant: Tenant) -> tuple[ClaimedEvent, list[str]]:
    """Claim an event; return it and the secrets that would sign it, the present one first."""

    async def work(db: Any) -> list[ClaimedEvent]:
        await webhooks.switch_due(db)
        return await outbox.claim_events(db, 1, {tenant.account.id: 1}, WEBHOOK_PLANS)

    (event,) = backend.run(work)
    assert event.secret_box is not None
    assert event.webhook_id is not None
    boxes = (event.secret_box, *event.other_boxes)
    return event, [
        reveal(backend.keys.open(box, tenant.account.id, event.webhook_id, mask_all=True)) for box in boxes
    ]


def _save(owner: Person) -> str:
    return shown_once(
        owner.post("/profile/webhook", url="https://receiver.example.com/in").text, "new-secret"
    )


def test_the_secret_is_changed_in_two_steps(backend: Backend, tenant: Tenant, owner: Person) -> None:
    old = _save(owner)
    assert owner.post("/profile/webhook/secret/switch", act="now").status_code == 400
    new = shown_once(owner.post("/profile/webhook/secret/prepare").text, "next-secret")
    assert new not in owner.page("/profile/webhook")
    for _ in range(4):
        owner.post("/profile/webhook/test")
    assert _claim(backend, tenant)[1] == [old, new]
    assert owner.post("/profile/webhook/secret/switch", act="now").status_code == 303
    assert _claim(backend, tenant)[1] == [new, old]
    account_id = tenant.account.id
    backend.sql("UPDATE webhooks SET old_until = now() - interval '1 s' WHERE account_id = %s", account_id)
    assert _claim(backend, tenant)[1] == [new]
    assert backend.sql("SELECT old_box, next_box FROM webhooks WHERE account_id = %s", account_id) == [
        (None, None)
    ]
    owner.post("/profile/webhook/secret/prepare")
    saved = _save(owner)  # saving the address makes a new secret at once
    assert _claim(backend, tenant)[1] == [saved]


def test_the_switch_is_made_at_the_chosen_time(backend: Backend, tenant: Tenant, owner: Person) -> None:
    old = _save(owner)
    new = shown_once(owner.post("/profile/webhook/secret/prepare").text, "next-secret")
    for at in (now() - timedelta(hours=1), now() + timedelta(days=31)):
        refused = owner.post("/profile/webhook/secret/switch", act="later", at=f"{at:%Y-%m-%dT%H:%M}")
        assert (refused.status_code, "within the next 30 days" in refused.text) == (400, True)
    for text in ("", "tomorrow", "2026-13-01T00:00", "0001-01-01T00:00"):
        refused = owner.post("/profile/webhook/secret/switch", act="later", at=text)
        assert refused.status_code == 400
        assert "Choose a " in refused.text.partition('id="rotate"')[2]
    planned = f"{now() + timedelta(days=3):%Y-%m-%dT%H:%M}"
    assert owner.post("/profile/webhook/secret/switch", act="later", at=planned).status_code == 303
    for _ in range(2):
        owner.post("/profile/webhook/test")
    assert _claim(backend, tenant)[1] == [old, new]
    backend.sql(
        "UPDATE webhooks SET switch_at = now() - interval '1 hour' WHERE account_id = %s", tenant.account.id
    )
    assert _claim(backend, tenant)[1] == [new, old]
    assert "The old secret signs too until" in owner.page("/profile/webhook")
    (actor,) = backend.sql("SELECT actor FROM audit WHERE account_id = %s AND action = 'webhook.switched'",
                           tenant.account.id)  # fmt: skip
    assert actor == ("delivery",)


def test_deliveries_are_found_shown_as_sent_and_sent_again(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    _save(owner)
    lines = [make_line(file_path=f"f{n}.py") for n in range(3)]
    backend.import_(tenant.account, *lines)
    for line in lines:
        tenant.post(f"/findings/{line['id']}/resolve").raise_for_status()
    event, _ = _claim(backend, tenant)
    moment = now()
    result = DeliveryResult(event.id, DeliveryOutcome.FAILED, 503, "busy", 12, b"<b>", moment)
    backend.run(lambda db: outbox.save_results(db, [result], now=moment))
    page = owner.page("/profile/webhook", state="failed")
    assert page.count('aria-label="Choose the delivery of') == 1
    assert "No delivery matches" in owner.page("/profile/webhook", event="finding.new")
    assert str(event.id) not in owner.page("/profile/webhook", finding=str(lines[2]["id"]))
    wrong = owner.page("/profile/webhook", state="lost", finding="1234", date_from="x")
    assert "invalid: finding “1234”, state “lost”, date “x”." in wrong
    refused = owner.post("/profile/webhook/deliveries/again", {"view": "?finding=1234", "act": "all"})
    assert (refused.status_code, "nothing was sent" in refused.text.lower()) == (400, True)
    sent = owner.page(f"/profile/webhook/deliveries/{event.id}")
    body = write_body(event.event, moment, tenant.account.slug, event.finding).decode()
    assert body.replace('"', "&#34;").replace("'", "&#39;") in sent
    assert owner.post("/profile/webhook/deliveries/again", {"view": "?state=failed"}).status_code == 400
    done = owner.post("/profile/webhook/deliveries/again", {"view": "?state=failed", "act": "all"})
    assert done.headers["Location"] == "/profile/webhook?state=failed"
    repeats = backend.sql("SELECT again_of, finding::text FROM outbox WHERE account_id = %s AND again_of IS NOT NULL",
                          tenant.account.id)  # fmt: skip
    assert repeats == [(event.id, event.finding)]
    owner.post("/profile/webhook/deliveries/again", {"id": str(event.id)})
    waiting = backend.sql(
        "SELECT id FROM outbox WHERE account_id = %s AND claimed_at IS NULL LIMIT 1", tenant.account.id
    )
    owner.post("/profile/webhook/deliveries/again", {"id": str(waiting[0][0])})  # it has not ended
    assert len(re.findall("Sent again</span>", owner.page("/profile/webhook"))) == 2
    ((count,),) = backend.sql("SELECT count(*) FROM audit WHERE account_id = %s AND action = 'webhook.again'",
                              tenant.account.id)  # fmt: skip
    assert count == 2
    other = backend.tenant()
    assert backend.run(lambda db: webhooks.select_body(db, other.account.id, event.id)) is None
