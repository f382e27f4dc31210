"""Test the specification's part "Events" as a receiver sees it.

The tests check the configuration, the envelope, the content, the headers and the times of events.
"""

import hashlib
import hmac
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from outcrop.domain.clock import now
from outcrop.domain.events import EventType, event_about
from outcrop.domain.finding import Validation
from outcrop.services import findings, webhooks
from outcrop.store import outbox
from outcrop.store.db import Connection
from tests.support.backend import Backend, Tenant
from tests.support.deliveries import HOST, Customer, DeliveryTestbed, parse_event, receiver
from tests.support.factories import make_line
from tests.support.fake_https import FakeResponse, FakeServer, ReceivedRequest

NEW = {
    *(
        "id",
        "status",
        "validation_status",
        "validation_confidence",
        "composite_score",
        "source_type",
        "source_visibility",
        "source_url",
    ),
    *(
        "repo_full_name",
        "file_path",
        "line_number",
        "matched_text",
        "pattern",
        "first_seen_at",
        "last_seen_at",
        "seen_count",
    ),
}
RESOLVED = {
    *(
        "id",
        "status",
        "resolved_at",
        "resolution_note",
        "resolution_evidence",
        "validation_status",
        "composite_score",
        "source_url",
    ),
    *("matched_text", "pattern"),
}
FALSE_POSITIVE = {"id", "status", "source_url", "pattern"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\+00:00|Z)")


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with receiver(tmp_path_factory.mktemp("receiver")) as made:
        yield made


class Customs:
    """An account with a webhook, and what was sent to it."""

    def __init__(self, stage: Backend, tenant: Tenant, hooks: FakeServer) -> None:
        self.stage, self.tenant, self.hooks = stage, tenant, hooks
        self.testbed = DeliveryTestbed(stage)
        self.customer = Customer(tenant.account, self.save())

    def save(self, url: str = f"https://{HOST}/in") -> str:
        return self.stage.run(
            lambda db: webhooks.save_webhook(
                db, self.stage.keys, self.tenant.account, url, by="jo@acme.example", now=now()
            )
        )

    def finding(self, **given: Any) -> str:
        line = make_line(**given)
        self.stage.import_(self.tenant.account, line)
        return str(line["id"])

    def sent(self) -> list[ReceivedRequest]:
        self.hooks.requests.clear()
        self.testbed.deliver(self.hooks.egress)
        return list(self.hooks.requests)


@pytest.fixture
def customs(stage: Backend, hooks: FakeServer) -> Customs:
    hooks.respond = lambda _: FakeResponse()
    return Customs(stage, stage.tenant(), hooks)


def test_the_secret_has_32_bytes_and_changes_with_every_save(customs: Customs) -> None:
    # "the service generates a 32-byte secret and shows it once";
    # "Saving the URL again regenerates the secret"
    secrets = {customs.customer.secret, customs.save(), customs.save()}
    assert len(secrets) == 3
    assert all(len(bytes.fromhex(secret)) == 32 for secret in secrets)


def test_removing_clears_both_and_there_is_no_pause(customs: Customs) -> None:
    # "Removing the webhook clears both URL and secret; there is no paused state."
    customs.stage.run(
        lambda db: webhooks.remove_webhook(
            db, customs.stage.keys, customs.tenant.account, by="jo@acme.example", now=now()
        )
    )
    assert (
        customs.stage.run(lambda db: webhooks.get_webhook(db, customs.stage.keys, customs.tenant.account.id))
        is None
    )
    assert customs.stage.sql("SELECT * FROM webhooks WHERE account_id = %s", customs.tenant.account.id) == []
    customs.tenant.post(f"/findings/{customs.finding()}/resolve")
    assert customs.sent() == []
    customs.save()
    assert customs.sent() == [], "what happened meanwhile was dropped"


def test_resolving_sends_the_specified_body_and_headers(customs: Customs) -> None:
    id_ = customs.finding()
    before = datetime.now(UTC).replace(microsecond=0)
    customs.tenant.post(f"/findings/{id_}/resolve", note="rotated").raise_for_status()
    (asked,) = customs.sent()
    event = parse_event(asked)
    assert set(event) == {"event", "delivered_at", "client_slug", "finding"}
    assert (event["event"], event["client_slug"]) == ("finding.resolved", customs.tenant.account.slug)
    assert TIME.fullmatch(event["delivered_at"])
    assert before <= datetime.fromisoformat(event["delivered_at"]) <= datetime.now(UTC)
    shown = customs.tenant.finding(id_)
    assert event["finding"] == {name: shown[name] for name in RESOLVED}, "the same shape as by id"
    assert event["finding"]["resolution_evidence"] == {
        "auto_resolved": False,
        "resolved_by": customs.tenant.account.email,
    }
    mac = hmac.new(customs.customer.secret.encode(), asked.body, hashlib.sha256).hexdigest()
    assert asked.headers["X-Service-Signature"] == f"sha256={mac}"
    assert asked.headers["Content-Type"] == "application/json"
    assert asked.headers["User-Agent"] == "Service-Webhook/1.0"


def test_a_false_positive_sends_its_subset(customs: Customs) -> None:
    id_ = customs.finding()
    customs.tenant.post(f"/findings/{id_}/false_positive").raise_for_status()
    (asked,) = customs.sent()
    event = parse_event(asked)
    assert event["event"] == "finding.false_positive"
    shown = customs.tenant.finding(id_)
    assert event["finding"] == {name: shown[name] for name in FALSE_POSITIVE}


@pytest.mark.parametrize("validation", Validation)
def test_a_new_finding_is_reported_with_a_validation_that_the_event_knows(
    customs: Customs, validation: Validation
) -> None:
    id_ = customs.finding(validation_status=validation)

    async def announce(db: Connection) -> None:
        found = await findings.get_finding(db, customs.tenant.account.id, UUID(id_))
        await outbox.append(
            db, customs.tenant.account.id, event_about(EventType.NEW, found), event_id=uuid4(), now=now()
        )

    customs.stage.run(announce)
    (asked,) = customs.sent()
    event = parse_event(asked)
    shown = customs.tenant.finding(id_)
    reported = "unvalidated" if validation == "error" else validation
    assert event["event"] == "finding.new"
    assert event["finding"] == {name: shown[name] for name in NEW} | {"validation_status": reported}
    assert shown["validation_status"] == validation


def test_nothing_is_sent_for_what_sends_no_event(customs: Customs) -> None:
    """Restricting, suppressing, importing, and changes that change nothing."""
    item, two, three = (
        customs.finding(),
        customs.finding(status="resolved"),
        customs.finding(status="false_positive"),
    )
    customs.tenant.post(f"/findings/{item}/restrict").raise_for_status()
    customs.tenant.post(f"/findings/{item}/restrict").raise_for_status()
    customs.tenant.post(f"/findings/{item}/suppress").raise_for_status()
    customs.tenant.post(f"/findings/{two}/resolve").raise_for_status()
    customs.tenant.post(f"/findings/{three}/false_positive").raise_for_status()
    assert customs.tenant.post(f"/findings/{three}/resolve").status_code == 400
    customs.stage.import_(customs.tenant.account, make_line(id=item, status="resolved"))
    assert customs.sent() == []
    assert customs.stage.sql("SELECT * FROM outbox WHERE account_id = %s", customs.tenant.account.id) == []


def test_a_suppressed_finding_still_sends_events(customs: Customs) -> None:
    id_ = customs.finding()
    customs.tenant.post(f"/findings/{id_}/suppress").raise_for_status()
    customs.tenant.post(f"/findings/{id_}/resolve").raise_for_status()
    assert [parse_event(asked)["event"] for asked in customs.sent()] == ["finding.resolved"]


def test_a_failure_is_not_tried_again_and_is_in_the_audit_trail_only(customs: Customs) -> None:
    # "No retries; delivery is at most once; failures are logged to an audit trail only."
    customs.hooks.respond = lambda _: FakeResponse(503)
    id_ = customs.finding()
    customs.tenant.post(f"/findings/{id_}/resolve").raise_for_status()
    assert len(customs.sent()) == 1
    assert customs.sent() == []
    ((_, outcome, detail),) = customs.testbed.trail(customs.customer)
    assert outcome == "failed"
    assert detail == {"event": "finding.resolved", "finding": id_, "status": 503, "ms": detail["ms"]}
    assert customs.tenant.finding(id_)["status"] == "resolved"
