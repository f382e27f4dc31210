"""Test that the JavaScript library of Standard Webhooks accepts what the service sends, and nothing else."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.node import Node
from tests.support.databases import migrated_database
from tests.support.deliveries import HOST, open_testbed, parse_event, receiver
from tests.support.fake_https import ReceivedRequest


@pytest.fixture(scope="module")
def delivery(
    cluster: str, worker_id: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ReceivedRequest, str]]:
    """Yield a request that a delivery worker sent over TLS, and the webhook's secret as it is shown."""
    url = migrated_database(cluster, f"interop_{worker_id}")
    with (
        open_testbed(url, tmp_path_factory.mktemp("testbed")) as testbed,
        receiver(tmp_path_factory.mktemp("receiver"), HOST) as hooks,
    ):
        customer = testbed.customer()
        testbed.event(customer, file_path="ü/€ \N{MUSICAL SYMBOL G CLEF}.py")
        testbed.deliver(hooks.egress)
        (request,) = hooks.requests
        yield request, customer.secret


def _verify(node: Node, body: bytes, headers: dict[str, str], secret: str) -> dict[str, Any]:
    """Return what the library makes of a request: `event` or `refused`."""
    stdin = json.dumps({"secret": secret, "headers": headers, "body": base64.b64encode(body).decode()})
    done = node.run("verify_delivery.mjs", stdin=stdin)
    assert (done.returncode, done.stderr) == (0, "")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_real_delivery_is_accepted(node: Node, delivery: tuple[ReceivedRequest, str]) -> None:
    request, secret = delivery
    answer = _verify(node, request.body, dict(request.headers), secret)
    assert answer == {"event": parse_event(request)}
    assert answer["event"]["finding"]["file_path"] == "ü/€ \N{MUSICAL SYMBOL G CLEF}.py"


@pytest.mark.parametrize("changed", ["body", "webhook-id", "webhook-timestamp", "secret"])
def test_a_changed_delivery_is_refused(
    node: Node, delivery: tuple[ReceivedRequest, str], changed: str
) -> None:
    request, secret = delivery
    body, headers = request.body, {name.lower(): value for name, value in request.headers.items()}
    if changed == "body":
        body = body.replace(b'"finding.new"', b'"finding.old"')
        assert body != request.body
    elif changed == "secret":
        secret = base64.b64encode(bytes(32)).decode()
    elif changed == "webhook-timestamp":
        headers[changed] = str(int(headers[changed]) - 1)
    else:
        headers[changed] += "0"
    assert _verify(node, body, headers, secret) == {"refused": "No matching signature found"}
