"""Check stored credentials again: daily for active findings, and when a user asks for it."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from outcrop.domain.errors import BadInputError, NotFoundError, OperatorError, OutcropError
from outcrop.domain.finding import Finding, Validation
from outcrop.domain.secret import is_password, reveal
from outcrop.lazy_logger import get_logger
from outcrop.services.pipeline.context import ACTOR, ValidationContext
from outcrop.services.pipeline.enqueue import REVALIDATE_ACTION, get_stored_credential
from outcrop.services.pipeline.validate import RETRY_AFTER, apply_verdict, to_stored_verdict
from outcrop.store import audit
from outcrop.store.db import Connection, current_time
from outcrop.store.findings import table, verdicts
from outcrop.store.findings.verdicts import DueCredential, StoredCredential
from outcrop.store.keyring import DamagedValueError
from outcrop.validation.batch import Credential, check_all
from outcrop.validation.engine import ValidationMode
from outcrop.validation.verdict import Verdict

REVALIDATE_EVERY = timedelta(days=1)
_BATCH_SIZE = 200  # credentials that are decrypted and checked together

log = get_logger()


async def revalidate_due(context: ValidationContext) -> int:
    """Check the credentials of active findings that are due; return how many were checked.

    A credential is due REVALIDATE_EVERY after its last check, or RETRY_AFTER if that check was undecided. Do
    nothing and return 0 if another worker does so already, or validation is off.
    """
    if context.validator.mode is ValidationMode.OFF:
        return 0
    async with context.pool.connection() as lock_holder:
        if not await verdicts.try_lock_revalidation(lock_holder):
            return 0
        try:
            return await _check_all_due(context)
        finally:
            await verdicts.unlock_revalidation(lock_holder)


async def _check_all_due(context: ValidationContext) -> int:
    """Check the due credentials in batches, the longest unchecked first; return how many were checked."""
    async with context.pool.connection() as db:
        moment = await current_time(db)
    checked = 0
    last: DueCredential | None = None
    while True:
        async with context.pool.connection() as db:
            batch = await verdicts.select_due(
                db,
                before=moment - REVALIDATE_EVERY,
                undecided_before=moment - RETRY_AFTER,
                after=last,
                limit=_BATCH_SIZE,
            )
        if not batch:
            return checked
        last = batch[-1]
        checked += await _check_batch(context, batch)


@dataclass(frozen=True, slots=True)
class _OpenedCredential:
    """A stored credential, decrypted, and the key of the verdict on it."""

    stored: StoredCredential
    verdict_key: bytes
    credential: Credential


async def _check_batch(context: ValidationContext, batch: Sequence[DueCredential]) -> int:
    """Check a batch of stored credentials; return how many were checked.

    Each verdict is stored with all findings of its credential. A credential whose rule no longer exists, or
    that cannot be decrypted, is skipped and not counted.
    """
    opened = []
    for due in batch:
        try:
            if (found := _open_credential(context, due)) is not None:
                opened.append((due, found))
        except DamagedValueError:
            log.error(  # noqa: TRY400 - there is nothing to see in the traceback
                "credential_damaged", account=due.account_id, finding=str(due.finding_id)
            )
    results: dict[int, Verdict] = {}
    await check_all(context.validator, [found.credential for _, found in opened], results.__setitem__)
    for number, (due, found) in enumerate(opened):
        async with context.pool.connection() as db, db.transaction():
            # A credential that could not be checked before and cannot be now has no new verdict.
            is_news = not results[number].status is due.status is Validation.UNVALIDATED
            await _store_verdict(db, context, found, results[number], by=ACTOR if is_news else None)
    return len(opened)


def _open_credential(context: ValidationContext, stored: StoredCredential) -> _OpenedCredential | None:
    """Return a stored credential decrypted, with its rule; None if its rule no longer exists.

    Raise DamagedValueError if it cannot be decrypted.
    """
    rule = context.ruleset.rules.get(stored.rule or "")
    if rule is None:
        return None
    secret, parts = context.keys.open_with_companions(
        stored.box, stored.account_id, stored.finding_id, mask_all=is_password(stored.secret_type)
    )
    verdict_key = context.keys.compute_verdict_key(stored.fingerprint, parts)
    credential = Credential(rule, reveal(secret), {name: reveal(part) for name, part in parts.items()})
    return _OpenedCredential(stored, verdict_key, credential)


async def _store_verdict(
    db: Connection, context: ValidationContext, opened: _OpenedCredential, result: Verdict, *, by: str | None
) -> None:
    """Store the verdict on a credential; with an actor `by`, also with all findings of the value."""
    stored, moment = opened.stored, await current_time(db)
    if stored.verdict_key != opened.verdict_key:
        await _add_verdict_keys(db, context, stored)
    await verdicts.save(db, stored.account_id, {opened.verdict_key: to_stored_verdict(result, moment)})
    if by is not None:
        await apply_verdict(db, stored.account_id, opened.verdict_key, by=by, moment=moment)


async def _add_verdict_keys(db: Connection, context: ValidationContext, stored: StoredCredential) -> None:
    """Save the verdict keys of a credential's findings that were stored before there were such keys."""
    found = {}
    for finding_id, box in await verdicts.select_without_key(db, stored.account_id, stored.fingerprint):
        with suppress(DamagedValueError):
            _, parts = context.keys.open_with_companions(box, stored.account_id, finding_id, mask_all=True)
            found[finding_id] = context.keys.compute_verdict_key(stored.fingerprint, parts)
    await verdicts.set_keys(db, stored.account_id, found)


async def check_unvalidated(
    context: ValidationContext, account_id: int, finding_ids: Sequence[UUID], *, by: str
) -> None:
    """Check the credentials of findings that have no verdict, unless validation is off.

    Each verdict is stored with all findings of its credential; `by` is the actor in the audit trail.
    """
    if context.validator.mode is ValidationMode.OFF:
        return
    async with context.pool.connection() as db:
        stored = await verdicts.select_unvalidated(db, account_id, finding_ids)
    opened = []
    for credential in stored:
        with suppress(DamagedValueError):
            if (found := _open_credential(context, credential)) is not None:
                opened.append(found)
    results: dict[int, Verdict] = {}
    await check_all(context.validator, [found.credential for found in opened], results.__setitem__)
    for number, found in enumerate(opened):
        async with context.pool.connection() as db, db.transaction():
            await _store_verdict(db, context, found, results[number], by=by)


# --- at a user's request


async def run_requested_validation(
    context: ValidationContext, account_id: int, finding_id: UUID, *, by: str
) -> None:
    """Check a finding's credential for the user `by`; store the verdict with all findings of the credential.

    The result gets an audit line, also if it is the verdict that was stored already. An OutcropError is not
    raised: its reason is written to the audit trail.
    """
    try:
        async with context.pool.connection() as db:
            before = await table.select(db, account_id, finding_id)
        after = await _check_finding(context, account_id, finding_id, by=by)
        if before is not None and before.validation_status is after.validation_status:
            await _audit_same_verdict(context, account_id, after, by=by)
    except OutcropError as error:
        detail = {"reason": error.message}
        async with context.pool.connection() as db, db.transaction():
            moment = await current_time(db)
            line = audit.AuditLine(moment, by, REVALIDATE_ACTION, str(finding_id), "failed", detail)
            await audit.append(db, account_id, line)


async def _audit_same_verdict(
    context: ValidationContext, account_id: int, finding: Finding, *, by: str
) -> None:
    """Write an audit line about a check that has confirmed the stored verdict."""
    verdict = finding.validation_status
    detail = {"from": verdict, "to": verdict, "reason": finding.validation_detail.get("reason", "")}
    async with context.pool.connection() as db, db.transaction():
        line = audit.AuditLine(await current_time(db), by, "finding.validate", str(finding.id), detail=detail)
        await audit.append(db, account_id, line)


async def revalidate_finding(
    context: ValidationContext, account_id: int, finding_id: UUID, *, by: str
) -> Finding:
    """Check a finding's credential now, even if its verdict is fresh; return the updated finding.

    The request gets an audit line, and the verdict is stored with all findings of the credential. `by` is the
    actor in the audit trail. Raise OperatorError if validation is off, NotFoundError if there is no such
    finding, BadInputError if its credential is not stored or its rule no longer exists.
    """
    _require_validation_on(context)
    async with context.pool.connection() as db, db.transaction():
        await get_stored_credential(db, account_id, finding_id)
        line = audit.AuditLine(await current_time(db), by, REVALIDATE_ACTION, str(finding_id))
        await audit.append(db, account_id, line)
    return await _check_finding(context, account_id, finding_id, by=by)


async def _check_finding(
    context: ValidationContext, account_id: int, finding_id: UUID, *, by: str
) -> Finding:
    """Check a finding's credential, and return the finding with the verdict.

    The verdict is stored with all findings of the credential. `by` is the actor in the audit trail. Raise the
    errors of `revalidate_finding`.
    """
    _require_validation_on(context)
    async with context.pool.connection() as db:
        stored = await get_stored_credential(db, account_id, finding_id)
    if (opened := _open_credential(context, stored)) is None:
        raise BadInputError("no rule says how to validate its credential")
    credential = opened.credential
    result = await context.validator.check(credential.rule, credential.secret, credential.parts)
    async with context.pool.connection() as db, db.transaction():
        await _store_verdict(db, context, opened, result, by=by)
        finding = await table.select(db, account_id, finding_id)
    if finding is None:
        raise NotFoundError("no such finding")
    return finding


def _require_validation_on(context: ValidationContext) -> None:
    """Raise OperatorError if validation is switched off."""
    if context.validator.mode is ValidationMode.OFF:
        raise OperatorError("validation is switched off: OUTCROP_VALIDATE=off")
