"""Events go out, each at most once: claimed and committed, then sent, then written how it ended.

Handed the pool, since it talks to the outside between writes. At most once is the claim's doing alone: whatever dies after it, nobody
claims the event again. Outcomes are therefore written many at a time.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from secrets import randbits
from typing import Any, Protocol

import orjson
import structlog

from outcrop.domain.account import WEBHOOK_PLANS
from outcrop.domain.secret import reveal
from outcrop.domain.slots import DeliverySlots
from outcrop.domain.webhook import (
    MAX_LOGGED_BODY_BYTES,
    MAX_RESPONSE_BYTES,
    WAIT,
    DeliveryOutcome,
    is_success,
)
from outcrop.net.post import PostError, PostResponse
from outcrop.store import outbox
from outcrop.store.db import UNAVAILABLE, Connection, Pool
from outcrop.store.keyring import Keyring
from outcrop.store.outbox import ClaimedEvent, DeliveryResult
from outcrop.webhooks import USER_AGENT, sign

SLOTS = 400  # deliveries under way at once
ORPHANED_AFTER = (
    15.0  # seconds: the wait, and time for a worker that lost its database to write what it knows
)
_POLL = 0.5  # seconds between two looks when nothing waits
_PACE = 0.02  # seconds between two rounds when something does: claims and outcomes gather meanwhile
_SWEEP_EVERY = 5.0
_PAUSE = 2.0
_PATIENCE = 4.0  # seconds that what is under way gets to end when the worker is told to stop
_GRACE = 2.0  # seconds for writing how it ended

log = structlog.get_logger()


class PostFunction(Protocol):
    """Sends one request, once."""

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


def _clock() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


class DeliveryWorker:
    """One worker's deliveries."""

    def __init__(
        self,
        pool: Pool,
        keys: Keyring,
        post: PostFunction,
        *,
        clock: Callable[[], datetime] = _clock,
        slots: int = SLOTS,
    ) -> None:
        self._pool = pool
        self._keys = keys
        self._post = post
        self._clock = clock
        self._slots = DeliverySlots(slots)
        self._at_a_time = slots  # accounts that are looked at
        self._under_way: set[asyncio.Task[None]] = set()
        self._ended: list[DeliveryResult] = []  # not written yet
        self._wake = asyncio.Event()
        self._last = 0  # the account after which the next ones are looked for
        self._swept = -_SWEEP_EVERY

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until told to stop; a database that is away is waited for."""
        waking = asyncio.create_task(self._wake_at(stop))
        while not stop.is_set():
            try:
                await self._serve(stop)
            except UNAVAILABLE as error:
                log.warning("database_unavailable", error=type(error).__name__)
            except Exception as error:  # what is under way goes on
                log.exception("delivery_failed", error=type(error).__name__)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _PAUSE)
        await waking
        await self._finish()

    async def _wake_at(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()

    async def _serve(self, stop: asyncio.Event) -> None:
        """Claim, send and write in rounds, on one connection. Its lock and its claims live and die together.

        Another connection is another claimer: what a commit may have claimed as the connection broke is nobody's then.
        """
        claimer = randbits(63)
        async with self._pool.connection() as db:
            await outbox.lock_claimer(db, claimer)
            try:
                while not stop.is_set():
                    await self._write(db)
                    await self._sweep(db, claimer)
                    claimed = await self._claim(db, claimer)
                    for one in claimed:
                        self._send(one)
                    await self._pause(_PACE if claimed else _POLL)
            finally:
                if not db.closed:
                    await outbox.unlock_claimer(db, claimer)

    async def _pause(self, seconds: float) -> None:
        """Wait for what ends, at most so long; then a moment more, for others that end with it."""
        if seconds > _PACE:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), seconds)
        if self._under_way or self._ended:
            await asyncio.sleep(_PACE)
        self._wake.clear()

    async def _claim(self, db: Connection, claimer: int) -> list[ClaimedEvent]:
        """Claim what can be sent at once. What has nowhere to go ends here."""
        if not self._slots.free:
            return []
        waiting = await outbox.select_waiting_accounts(db, after=self._last, limit=self._at_a_time)
        self._last = waiting[-1] if len(waiting) == self._at_a_time else 0
        if not (rooms := self._slots.share_free_slots(waiting)):
            return []
        async with db.transaction():
            claimed = await outbox.claim_events(db, claimer, rooms, WEBHOOK_PLANS)
            dropped = [ended for one in claimed if (ended := _dropped(one))]
            if dropped:
                await outbox.save_results(db, dropped, now=self._clock())
        gone = {ended.id for ended in dropped}
        if dropped:
            self._wake.set()
        return [one for one in claimed if one.id not in gone]

    def _send(self, claimed: ClaimedEvent) -> None:
        self._slots.take(claimed.account_id)
        task = asyncio.create_task(self._deliver(claimed))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _deliver(self, claimed: ClaimedEvent) -> None:
        began = time.monotonic()
        status, reason, answer, outcome = None, None, b"", DeliveryOutcome.FAILED
        try:
            url, headers, body = self._request(claimed)
            reply = await self._post(
                url, headers, body, seconds=WAIT, max_bytes=MAX_RESPONSE_BYTES, max_body=MAX_LOGGED_BODY_BYTES
            )
            status, answer = reply.status, reply.body
            outcome = DeliveryOutcome.OK if is_success(status) else DeliveryOutcome.FAILED
        except PostError as error:
            status, reason, answer = error.status, error.reason, error.body
        except asyncio.CancelledError:
            outcome, reason = DeliveryOutcome.UNKNOWN, "the worker was stopped before there was an answer"
        except Exception as error:  # noqa: BLE001 - its text could hold the secret
            log.error("delivery_failed", delivery=str(claimed.id), error=type(error).__name__)  # noqa: TRY400
            outcome, reason = DeliveryOutcome.UNKNOWN, f"sending failed ({type(error).__name__})"
        took = time.monotonic() - began
        self._ended.append(
            DeliveryResult(claimed.id, outcome, status, reason, round(took * 1000), answer or None)
        )
        self._slots.release(claimed.account_id, took)
        self._wake.set()

    def _request(self, claimed: ClaimedEvent) -> tuple[str, dict[str, str], bytes]:
        """Give what is sent: serialised once, and those bytes signed."""
        assert claimed.url is not None and claimed.secret_box is not None and claimed.webhook_id is not None  # noqa: S101, PT018
        secret = reveal(
            self._keys.open(claimed.secret_box, claimed.account_id, claimed.webhook_id, mask_all=True)
        )
        now = self._clock()
        envelope = {
            "event": claimed.event,
            "delivered_at": now,
            "client_slug": claimed.slug,
            "finding": orjson.Fragment(claimed.finding),
        }
        body = orjson.dumps(envelope)
        headers = {"Content-Type": "application/json", "User-Agent": USER_AGENT}
        return (
            claimed.url,
            headers | sign(body, secret, id_=str(claimed.id), timestamp=int(now.timestamp())),
            body,
        )

    async def _write(self, db: Connection) -> None:
        """Write how deliveries ended, all that have, with their audit lines, in one transaction."""
        if not (ended := self._ended[:]):
            return
        await outbox.save_results(db, ended, now=self._clock())
        del self._ended[: len(ended)]

    async def _sweep(self, db: Connection, claimer: int) -> None:
        """End what other claimers have left open when they died."""
        if time.monotonic() - self._swept < _SWEEP_EVERY:
            return
        self._swept = time.monotonic()
        async with db.transaction():
            await give_up_orphans(db, own=claimer, now=self._clock())

    async def _finish(self) -> None:
        """Let what is under way end, for a while, and write it; what is cut off is unknown."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=_PATIENCE)
        for task in list(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        try:
            async with asyncio.timeout(_GRACE), self._pool.connection() as db:
                await self._write(db)
        except (TimeoutError, *UNAVAILABLE) as error:  # another worker will call them unknown
            log.warning("database_unavailable", error=type(error).__name__)


async def give_up_orphans(db: Connection, *, own: int, now: datetime, after: float = ORPHANED_AFTER) -> int:
    """Write "unknown" for what a worker that died had claimed and nobody will send again; give how many."""
    given_up = await outbox.end_abandoned_deliveries(
        db, own=own, after=after, reason="the worker died before there was an answer", now=now
    )
    if given_up:
        log.warning("deliveries_unknown", count=given_up)
    return given_up


def _dropped(claimed: ClaimedEvent) -> DeliveryResult | None:
    if claimed.url is None:
        return DeliveryResult(claimed.id, DeliveryOutcome.DROPPED, reason="the account has no webhook")
    if claimed.plan not in WEBHOOK_PLANS:
        return DeliveryResult(
            claimed.id, DeliveryOutcome.DROPPED, reason=f"the plan {claimed.plan} has no webhook"
        )
    return None
