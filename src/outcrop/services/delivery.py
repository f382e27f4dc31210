"""Send webhook events, each at most once.

1. Claim waiting events and commit the claim (`_claim`).
2. Send each event in a task of its own (`_deliver`).
3. Write the outcomes, many in one transaction (`_write_results`).

A claimed event is never claimed again, even if the worker dies before it is sent. This alone guarantees
"at most once". The class gets the connection pool, because it sends requests between its transactions.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from secrets import randbits
from typing import Any, Protocol

from outcrop import metrics
from outcrop.domain.account import WEBHOOK_PLANS
from outcrop.domain.clock import now
from outcrop.domain.secret import reveal
from outcrop.domain.slots import DeliverySlots
from outcrop.domain.webhook import (
    WAIT,
    DeliveryOutcome,
    is_success,
    write_body,
)
from outcrop.lazy_logger import get_logger
from outcrop.limits import WEBHOOK_LOGGED_BYTES, WEBHOOK_RESPONSE_BYTES
from outcrop.net.post import PostError, PostResponse
from outcrop.store import outbox, webhooks
from outcrop.store.db import UNAVAILABLE, Connection, Pool
from outcrop.store.keyring import Keyring
from outcrop.store.outbox import ClaimedEvent, DeliveryResult
from outcrop.webhooks import USER_AGENT, sign

SLOTS = 400  # concurrent deliveries of one worker
# Seconds after which a dead worker's events count as unknown: the longest request, and time for a worker that
# lost its database connection to write its results.
ORPHANED_AFTER = 15.0
_IDLE_PAUSE = 0.5  # seconds between two rounds when no event waits
_BUSY_PAUSE = 0.02  # seconds between two rounds otherwise, so that a round handles several events
_SWEEP_EVERY = 5.0  # seconds between two searches for events of dead workers
_RECONNECT_PAUSE = 2.0  # seconds
_STOP_TIMEOUT = 4.0  # seconds in which running deliveries may end when the worker is stopped
_WRITE_TIMEOUT = 2.0  # seconds for writing their results

log = get_logger()


class PostFunction(Protocol):
    """A function that sends one POST request, without retries."""

    def __call__(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        seconds: float,
        max_bytes: int,
        max_body: int,
    ) -> Coroutine[Any, Any, PostResponse]: ...


class DeliveryWorker:
    """Delivers the webhook events of all accounts. Several workers share the events through their claims."""

    def __init__(
        self,
        pool: Pool,
        keys: Keyring,
        post: PostFunction,
        *,
        clock: Callable[[], datetime] = now,
        slots: int = SLOTS,
    ) -> None:
        """Create a worker that signs with `keys` and sends with `post`, at most `slots` requests at once."""
        self._pool = pool
        self._keys = keys
        self._post = post
        self.now = clock
        self._slots = DeliverySlots(slots)
        self._accounts_per_round = slots
        self._running: set[asyncio.Task[None]] = set()
        self._results: list[DeliveryResult] = []  # not written yet
        self._wake = asyncio.Event()  # set when a delivery has ended
        self._last_account = 0  # the next round begins with the account after this one
        self._swept_at = -_SWEEP_EVERY

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver events until `stop` is set; while the database is unavailable, wait for it."""
        waking = asyncio.create_task(self._wake_at(stop))
        while not stop.is_set():
            try:
                await self._deliver_rounds(stop)
            except UNAVAILABLE as error:
                log.warning("database_unavailable", error=type(error).__name__)
            except Exception as error:  # running deliveries go on
                log.exception("delivery_failed", error=type(error).__name__)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _RECONNECT_PAUSE)
        await waking
        await self._finish()

    async def _wake_at(self, stop: asyncio.Event) -> None:
        """End the pause between two rounds when `stop` is set."""
        await stop.wait()
        self._wake.set()

    async def _deliver_rounds(self, stop: asyncio.Event) -> None:
        """Claim, send and write results in rounds, on one connection, until `stop` is set.

        An advisory lock on the connection shows that this claimer is alive. A new connection gets a new
        claimer number: events that the broken connection may have claimed are not sent by anybody.
        """
        claimer = randbits(63)
        async with self._pool.connection() as db:
            await outbox.lock_claimer(db, claimer)
            try:
                while not stop.is_set():
                    await self._write_results(db)
                    await self._sweep(db, claimer)
                    events = await self._claim(db, claimer)
                    for event in events:
                        self._send(event)
                    await self._pause(_BUSY_PAUSE if events else _IDLE_PAUSE)
            finally:
                if not db.closed:
                    await outbox.unlock_claimer(db, claimer)

    async def _pause(self, seconds: float) -> None:
        """Wait until a delivery ends, at most `seconds`, then a moment longer for others that end with it."""
        if seconds > _BUSY_PAUSE:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), seconds)
        if self._running or self._results:
            await asyncio.sleep(_BUSY_PAUSE)
        self._wake.clear()

    async def _claim(self, db: Connection, claimer: int) -> list[ClaimedEvent]:
        """Claim events for the free slots; return those to send. Events without a webhook end as dropped."""
        if not self._slots.free:
            return []
        accounts = await outbox.select_waiting_accounts(
            db, after=self._last_account, limit=self._accounts_per_round
        )
        self._last_account = accounts[-1] if len(accounts) == self._accounts_per_round else 0
        if not (slots_by_account := self._slots.share_free_slots(accounts)):
            return []
        async with db.transaction():
            events = await outbox.claim_events(db, claimer, slots_by_account, WEBHOOK_PLANS)
            dropped = [result for event in events if (result := _drop_without_webhook(event))]
            if dropped:
                await outbox.save_results(db, dropped, now=self.now())
        if dropped:
            _count(dropped)
            self._wake.set()
        dropped_ids = {result.id for result in dropped}
        return [event for event in events if event.id not in dropped_ids]

    def _send(self, event: ClaimedEvent) -> None:
        """Start the delivery of an event in a task."""
        self._slots.take(event.account_id)
        task = asyncio.create_task(self._deliver(event))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _deliver(self, event: ClaimedEvent) -> None:
        """Send an event once, keep its result for `_write_results`, and free its slot. Never raises."""
        started = time.monotonic()
        status, reason, body, outcome = None, None, b"", DeliveryOutcome.FAILED
        now = self.now()
        try:
            url, headers, payload = self._build_request(event, now)
            response = await self._post(
                url,
                headers,
                payload,
                seconds=WAIT,
                max_bytes=WEBHOOK_RESPONSE_BYTES,
                max_body=WEBHOOK_LOGGED_BYTES,
            )
            status, body = response.status, response.body
            outcome = DeliveryOutcome.OK if is_success(status) else DeliveryOutcome.FAILED
        except PostError as error:
            status, reason, body = error.status, error.reason, error.body
        except asyncio.CancelledError:
            outcome, reason = DeliveryOutcome.UNKNOWN, "the worker was stopped before a response arrived"
        except Exception as error:  # noqa: BLE001 - the exception's text may contain the webhook's secret
            log.error("delivery_failed", delivery=str(event.id), error=type(error).__name__)  # noqa: TRY400
            outcome, reason = DeliveryOutcome.UNKNOWN, f"sending failed ({type(error).__name__})"
        seconds = time.monotonic() - started
        self._results.append(
            DeliveryResult(event.id, outcome, status, reason, round(seconds * 1000), body or None, now)
        )
        self._slots.release(event.account_id, seconds)
        self._wake.set()

    def _build_request(self, event: ClaimedEvent, now: datetime) -> tuple[str, dict[str, str], bytes]:
        """Return URL, headers and body of the request; the signature is over exactly these body bytes."""
        assert event.secret_box is not None and event.webhook_id is not None  # noqa: S101, PT018
        url = event.url
        if event.url_box is not None and not url:
            url = self._keys.open_url(event.url_box, event.account_id, event.webhook_id)
        secret, *others = [
            reveal(self._keys.open(box, event.account_id, event.webhook_id, mask_all=True))
            for box in (event.secret_box, *event.other_boxes)
        ]
        body = write_body(event.event, now, event.slug, event.finding)
        signature = sign(body, secret, id_=str(event.id), timestamp=int(now.timestamp()), others=others)
        headers = {"Content-Type": "application/json", "User-Agent": USER_AGENT} | signature
        return url, headers, body

    async def _write_results(self, db: Connection) -> None:
        """Write the results of all ended deliveries, with their audit lines, in one transaction."""
        if not (results := self._results[:]):
            return
        await outbox.save_results(db, results, now=self.now())
        del self._results[: len(results)]
        _count(results)

    async def _sweep(self, db: Connection, claimer: int) -> None:
        """Every few seconds, do what is due: for dead workers, secrets that change, URLs in clear text."""
        if time.monotonic() - self._swept_at < _SWEEP_EVERY:
            return
        self._swept_at = time.monotonic()
        async with db.transaction():
            await end_orphaned_deliveries(db, own=claimer, now=self.now())
            await webhooks.switch_due(db)
            await webhooks.encrypt_urls(db, self._keys)

    async def _finish(self) -> None:
        """Wait a few seconds for running deliveries, cancel the rest, and write all results."""
        if self._running:
            await asyncio.wait(self._running, timeout=_STOP_TIMEOUT)
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        try:
            async with asyncio.timeout(_WRITE_TIMEOUT), self._pool.connection() as db:
                await self._write_results(db)
        except (TimeoutError, *UNAVAILABLE) as error:  # another worker will write them as unknown
            log.warning("database_unavailable", error=type(error).__name__)


async def end_orphaned_deliveries(
    db: Connection, *, own: int, now: datetime, after: float = ORPHANED_AFTER
) -> int:
    """Write the outcome "unknown" for events that dead workers had claimed; return how many.

    `own` is the caller's claimer number. Only events claimed more than `after` seconds ago are ended.
    """
    ended = await outbox.end_abandoned_deliveries(
        db, own=own, after=after, reason="the worker died before a response arrived", now=now
    )
    if ended:
        log.warning("deliveries_unknown", count=ended)
        metrics.count_deliveries(DeliveryOutcome.UNKNOWN, ended)
    return ended


def _count(results: Sequence[DeliveryResult]) -> None:
    """Count deliveries whose results are stored."""
    for result in results:
        metrics.count_deliveries(result.outcome)


def _drop_without_webhook(event: ClaimedEvent) -> DeliveryResult | None:
    """Return the outcome "dropped" if the account has no webhook or its plan includes none, else None."""
    if event.webhook_id is None:
        return DeliveryResult(event.id, DeliveryOutcome.DROPPED, reason="the account has no webhook")
    if event.plan not in WEBHOOK_PLANS:
        return DeliveryResult(
            event.id, DeliveryOutcome.DROPPED, reason=f"the plan {event.plan} has no webhook"
        )
    return None
