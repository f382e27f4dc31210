"""Receive the deliveries of push hooks: authenticate the sender, then store its push and queue the job.

1. `find_hook` looks the hook up by the token in the address.
2. `open_check` checks what the headers show, before the body is read; its result checks the body.
3. `read_delivery` parses the authenticated body.
4. `accept_delivery` counts it, and stores its pushes in one transaction with their jobs.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from outcrop.domain.push import HookHost, ReportedPush, encode_push
from outcrop.domain.secret import Secret
from outcrop.lazy_logger import get_logger
from outcrop.limits import HOOK_DELIVERIES
from outcrop.services.hooks.manage import digest_token
from outcrop.services.hooks.payload import TooManyValuesError, read_payload
from outcrop.sources.hooks.delivery import BodyCheck, UnreadablePushError
from outcrop.sources.hooks.registry import PROTOCOLS
from outcrop.store import hooks
from outcrop.store.db import Connection
from outcrop.store.hooks import StoredPush
from outcrop.store.keyring import Keyring
from outcrop.store.runs import jobs

START_PUSHED_TASK = "start_pushed_runs"  # the name is stored in queued jobs, so it does not change

log = get_logger()


@dataclass(frozen=True, slots=True)
class KnownHook:
    """The hook whose token a sender knows."""

    account_id: int
    id: UUID
    host: HookHost
    secret: Secret
    moment: datetime  # by the database's clock


@dataclass(frozen=True, slots=True)
class HookDelivery:
    """What an authenticated delivery says."""

    id: str | None
    pushes: tuple[ReportedPush, ...]
    is_complete: bool = True  # False if it may be about pushes that could not be read


async def find_hook(db: Connection, keys: Keyring, host: HookHost, token: str) -> KnownHook | None:
    """Return the hook of a host whose address has this token; None if there is none."""
    digest = digest_token(token)
    owner = None if digest is None else await hooks.select_owner(db, host, digest)
    if owner is None:
        return None
    secret = keys.open(owner.secret_box, owner.account_id, owner.hook_id, mask_all=True)
    return KnownHook(owner.account_id, owner.hook_id, host, secret, owner.moment)


def open_check(hook: KnownHook, headers: Mapping[str, str]) -> BodyCheck | None:
    """Return the check of the body; None if the headers show that the sender is not the host."""
    return PROTOCOLS[hook.host].check(headers, hook.secret, hook.moment.timestamp())


def read_delivery(hook: KnownHook, headers: Mapping[str, str], body: bytes | bytearray) -> HookDelivery:
    """Return what an authenticated body says. Raise BadInputError if it is not a JSON object."""
    protocol = PROTOCOLS[hook.host]
    try:
        payload = read_payload(body, headers.get("content-type", ""))
    except TooManyValuesError:
        log.warning("push_too_complex", hook=str(hook.id))
        return HookDelivery(None, (), is_complete=False)
    id_ = protocol.delivery_id(headers, payload)
    try:
        return HookDelivery(id_, tuple(protocol.read_pushes(headers, payload)))
    except UnreadablePushError:
        log.warning("push_without_repository", hook=str(hook.id))
        return HookDelivery(id_, ())


async def accept_delivery(
    db: Connection, keys: Keyring, hook: KnownHook, delivery: HookDelivery, *, limit: int = HOOK_DELIVERIES
) -> int:
    """Store the pushes of a delivery, with a job for each repository; return 0.

    A repeated delivery starts nothing. If the hook had `limit` deliveries in this minute, store nothing but
    a mark, and return the seconds until the minute is over.
    """
    if seconds := await hooks.count_delivery(db, hook.account_id, hook.id, limit=limit):
        return seconds
    if not delivery.is_complete:
        await hooks.mark_behind(db, hook.account_id, hook.id)
    if delivery.id is not None:
        digest = hashlib.sha256(delivery.id.encode("utf-8", "surrogatepass")).digest()
        if not await hooks.insert_delivery(db, hook.account_id, hook.id, digest):
            return 0
    for push in delivery.pushes:
        await _store_push(db, keys, hook, push)
    return 0


async def _store_push(db: Connection, keys: Keyring, hook: KnownHook, push: ReportedPush) -> None:
    """Store a push, and write the job that starts its runs unless that waits already."""
    await hooks.lock_pushes(db, hook.account_id, push.repository)
    id_ = uuid4()
    stored = StoredPush(id_, hook.id, keys.seal_bytes(encode_push(push), hook.account_id, id_))
    await hooks.insert_push(db, hook.account_id, stored, push.repository)
    lock = f"push {hook.account_id} {push.repository.hex()}"
    if not await jobs.is_queued(db, lock):
        arguments = {"account_id": hook.account_id, "repository": push.repository.hex()}
        await jobs.defer_jobs(db, START_PUSHED_TASK, [(lock, arguments)], jobs.PUSHED)
