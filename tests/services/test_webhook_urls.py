"""URLs of webhooks are encrypted, also those that an older release has saved, and also during an upgrade."""

from collections.abc import Iterator
from typing import Any

import pytest

from outcrop.domain.clock import now
from outcrop.services import webhooks
from tests.support.databases import migrated_database
from tests.support.deliveries import HOST, Customer, DeliveryTestbed, open_testbed, receiver
from tests.support.fake_https import FakeServer

URL = f"https://{HOST}/in/T0KEN?key=5ECRET"
# What an older release does: it reads the URL in clear text in the statement that claims events.
CLAIM_OF_AN_OLDER_RELEASE = """
    UPDATE outbox o SET claimed_at = clock_timestamp(), claimer = 1, webhook_id = w.id FROM webhooks w
    WHERE w.account_id = o.account_id AND o.account_id = %s AND o.claimed_at IS NULL RETURNING w.url
"""
SAVE_OF_AN_OLDER_RELEASE = "UPDATE webhooks SET url = %s WHERE account_id = %s"


@pytest.fixture(scope="module")
def testbed(
    cluster: str, worker_id: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DeliveryTestbed]:
    url = migrated_database(cluster, f"webhook_urls_{worker_id}")
    with open_testbed(url, tmp_path_factory.mktemp("testbed")) as opened:
        yield opened


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with receiver(tmp_path_factory.mktemp("receiver")) as opened:
        yield opened


def rows(testbed: DeliveryTestbed, customer: Customer) -> tuple[Any, ...]:
    """Return the columns `url` and `url_box` of an account's webhook."""
    (row,) = testbed.backend.sql(
        "SELECT url, url_box FROM webhooks WHERE account_id = %s", customer.account.id
    )
    return row


def read_url(testbed: DeliveryTestbed, customer: Customer) -> str:
    keys = testbed.backend.keys
    found = testbed.backend.run(lambda db: webhooks.get_webhook(db, keys, customer.account.id))
    assert found is not None
    return found.url


def test_a_url_is_stored_encrypted_and_an_older_release_leaves_its_events_alone(
    testbed: DeliveryTestbed, hooks: FakeServer
) -> None:
    customer = testbed.customer(URL)
    clear, box = rows(testbed, customer)
    assert clear == ""
    assert b"T0KEN" not in box
    assert read_url(testbed, customer) == URL
    testbed.event(customer)
    assert testbed.backend.sql(CLAIM_OF_AN_OLDER_RELEASE, customer.account.id) == []
    hooks.requests.clear()
    testbed.deliver(hooks.egress)
    assert [(request.path, request.query) for request in hooks.requests] == [("/in/T0KEN", "key=5ECRET")]
    assert testbed.outcomes(customer) == [("ok", 200, None)]


def test_a_worker_encrypts_the_url_that_an_older_release_has_saved(
    testbed: DeliveryTestbed, hooks: FakeServer
) -> None:
    customer = testbed.customer("https://replaced.example/")
    testbed.backend.sql(SAVE_OF_AN_OLDER_RELEASE, URL, customer.account.id)
    testbed.event(customer)
    assert read_url(testbed, customer) == URL
    assert testbed.backend.sql(CLAIM_OF_AN_OLDER_RELEASE, customer.account.id) == [(URL,)]
    testbed.backend.sql("UPDATE outbox SET outcome = 'ok' WHERE account_id = %s", customer.account.id)
    testbed.event(customer)
    testbed.deliver(hooks.egress)
    assert testbed.outcomes(customer)[1:] == [("ok", 200, None)]
    assert rows(testbed, customer)[0] == ""
    assert read_url(testbed, customer) == URL


def test_a_damaged_url_is_shown_as_an_empty_one_and_can_be_replaced_and_removed(
    testbed: DeliveryTestbed,
) -> None:
    customer, backend = testbed.customer(URL), testbed.backend
    # The box of the secret belongs to the same webhook, and must not open as its URL.
    backend.sql("UPDATE webhooks SET url_box = secret_box WHERE account_id = %s", customer.account.id)
    assert read_url(testbed, customer) == ""
    backend.run(lambda db: webhooks.remove_webhook(db, backend.keys, customer.account, by="test", now=now()))
    backend.run(
        lambda db: webhooks.save_webhook(
            db, backend.keys, customer.account, "https://other.example", by="test", now=now()
        )
    )
    assert backend.sql(
        "SELECT action, target FROM audit WHERE account_id = %s AND action LIKE 'webhook.%%' ORDER BY id",
        customer.account.id,
    ) == [("webhook.save", HOST), ("webhook.remove", None), ("webhook.save", "other.example")]
