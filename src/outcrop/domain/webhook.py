"""An account's webhook, and what became of each event that was to be sent to it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID

WAIT = 10.0  # seconds, over everything: the name, TLS, sending, the answer
ANSWER_READ = 64 * 1024  # bytes of an answer, its head included
ANSWER_KEPT = 2048  # bytes of its body in the log
URL_LENGTH = 2000
KEPT_DAYS = 30  # a delivery stays in the log for so long; its line in the audit trail stays


class Outcome(StrEnum):
    """How a delivery ended."""

    OK = "ok"  # any 2xx
    FAILED = "failed"
    UNKNOWN = "unknown"  # nobody knows whether it arrived: it is never sent again
    DROPPED = "dropped"  # there was no webhook, or a plan without


class State(StrEnum):
    """How far a delivery has come."""

    WAITING = "waiting"
    SENDING = "sending"
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Health:
    last_success_at: datetime | None
    failures_in_a_row: int  # since then, of the last thousand deliveries
    unknown_in_a_row: int = 0  # of the same: those whose sender died before it had an answer


@dataclass(frozen=True, slots=True)
class Webhook:
    url: str
    created_at: datetime
    health: Health


@dataclass(frozen=True, slots=True)
class Delivery:
    id: UUID
    event: str
    finding_id: UUID
    state: State
    created_at: datetime
    sent_at: datetime | None
    status: int | None
    reason: str | None
    ms: int | None
    answer: str | None  # its first 2 kB
    again_of: UUID | None


def is_success(status: int) -> bool:
    return 200 <= status <= 299
