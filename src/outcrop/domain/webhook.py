"""An account's webhook and the log of its deliveries."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

import orjson

WAIT = 10.0  # seconds for the whole delivery: DNS, TLS, request, response
OLD_SECRET_SIGNS = timedelta(hours=24)  # after a switch to the next secret
LATEST_SWITCH = timedelta(days=30)  # from now
KEPT_DAYS = 30  # deliveries are deleted from the log after this time; their audit lines stay


class DeliveryOutcome(StrEnum):
    """Result of a delivery."""

    OK = "ok"  # any 2xx
    FAILED = "failed"
    UNKNOWN = "unknown"  # the worker died while sending; the event is never sent again
    DROPPED = "dropped"  # the account had no webhook, or its plan does not include it


class DeliveryState(StrEnum):
    """Progress of a delivery; ends in one of the outcomes."""

    WAITING = "waiting"
    SENDING = "sending"
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Health:
    last_success_at: datetime | None
    failures_in_a_row: int  # since the last success, among the last thousand deliveries
    unknown_in_a_row: int = 0  # failures among them whose worker died before the response


@dataclass(frozen=True, slots=True)
class Webhook:
    url: str  # empty if the stored one is damaged
    created_at: datetime
    health: Health
    has_next: bool = False  # a next secret is prepared
    switch_at: datetime | None = None  # when it becomes the secret
    old_until: datetime | None = None  # until then the last secret signs too


@dataclass(frozen=True, slots=True)
class Delivery:
    id: UUID
    event: str
    finding_id: UUID
    state: DeliveryState
    created_at: datetime
    sent_at: datetime | None
    status: int | None
    reason: str | None
    ms: int | None
    answer: str | None  # first 2 kB of the response body
    again_of: UUID | None  # id of the earlier delivery that a user repeated


@dataclass(frozen=True, slots=True)
class DeliveryFilter:
    """Conditions for deliveries in the log; a delivery must meet every condition that is not None."""

    event: str | None = None
    state: DeliveryState | None = None
    finding_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None  # exclusive


def write_body(event: str, delivered_at: datetime, slug: str, finding: str) -> bytes:
    """Return the body of a delivery; `finding` is JSON. The same arguments give the same bytes."""
    return orjson.dumps(
        {
            "event": event,
            "delivered_at": delivered_at,
            "client_slug": slug,
            "finding": orjson.Fragment(finding),
        }
    )


def is_success(status: int) -> bool:
    return 200 <= status <= 299
