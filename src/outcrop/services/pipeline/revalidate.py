"""Asking again about stored credentials: once a day about those of active findings, and whenever a person wants to know."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from outcrop.domain.errors import BadInputError, NotFoundError, OperatorError, OutcropError
from outcrop.domain.finding import Finding, Validation
from outcrop.domain.secret import is_password, reveal
from outcrop.services.pipeline.context import ACTOR, ValidationContext, now
from outcrop.services.pipeline.enqueue import ASKED, stored_credential
from outcrop.services.pipeline.validate import SOON, apply, said
from outcrop.store import audit
from outcrop.store.findings import table, verdicts
from outcrop.store.findings.verdicts import DueCredential, StoredCredential
from outcrop.validation.batch import Credential, check_all
from outcrop.validation.engine import ValidationMode
from outcrop.validation.verdict import Verdict

EVERY = timedelta(days=1)
_AT_ONCE = 200


async def revalidate_due(asks: ValidationContext) -> int:
    """Ask again about what was last checked a day ago, in one worker at a time; give how many were asked about."""
    if asks.validator.mode is ValidationMode.OFF:
        return 0
    async with asks.pool.connection() as holding:
        if not await verdicts.try_lock_revalidation(holding):
            return 0
        try:
            return await _walk(asks)
        finally:
            await verdicts.unlock_revalidation(holding)


async def _walk(asks: ValidationContext) -> int:
    moment = now()
    asked = 0
    last: DueCredential | None = None
    while True:
        async with asks.pool.connection() as db:
            due = await verdicts.select_due(
                db, before=moment - EVERY, undecided_before=moment - SOON, after=last, most=_AT_ONCE
            )
        if not due:
            return asked
        last = due[-1]
        asked += await _ask_all(asks, due)


async def _ask_all(asks: ValidationContext, due: Sequence[DueCredential]) -> int:
    known = [(one, wanted) for one in due if (wanted := _wanted(asks, one)) is not None]
    told: dict[int, Verdict] = {}
    await check_all(asks.validator, [wanted for _, wanted in known], told.__setitem__)
    for number, (one, _) in enumerate(known):
        word = said(told[number])
        async with asks.pool.connection() as db, db.transaction():
            await verdicts.save(db, one.account_id, {one.fingerprint: word})
            if not word.status is one.status is Validation.UNVALIDATED:  # nobody could be asked, as before
                await apply(db, one.account_id, one.fingerprint, word, by=ACTOR)
    return len(known)


def _wanted(asks: ValidationContext, one: StoredCredential) -> Credential | None:
    """Open a stored credential; None where no rule knows any more how to ask about it."""
    rule = asks.ruleset.rules.get(one.rule or "")
    if rule is None:
        return None
    secret, parts = asks.keys.open_with_companions(
        one.box, one.account_id, one.finding_id, mask_all=is_password(one.secret_type)
    )
    return Credential(rule, reveal(secret), {name: reveal(part) for name, part in parts.items()})


# --- when a person wants to know


async def run_requested_validation(
    asks: ValidationContext, account_id: int, finding_id: UUID, *, by: str
) -> None:
    """Do what was requested; where that cannot be, the audit trail says why."""
    try:
        await _ask_now(asks, account_id, finding_id, by=by)
    except OutcropError as error:
        async with asks.pool.connection() as db, db.transaction():
            line = audit.AuditLine(now(), by, ASKED, str(finding_id), "failed", {"reason": error.message})
            await audit.append(db, account_id, line)


async def revalidate_finding(
    asks: ValidationContext, account_id: int, finding_id: UUID, *, by: str
) -> Finding:
    """Ask about a finding's credential now, whatever was said before; every finding of it has the verdict then."""
    _refuse_off(asks)
    async with asks.pool.connection() as db, db.transaction():
        await stored_credential(db, account_id, finding_id)
        await audit.append(db, account_id, audit.AuditLine(now(), by, ASKED, str(finding_id)))
    return await _ask_now(asks, account_id, finding_id, by=by)


async def _ask_now(asks: ValidationContext, account_id: int, finding_id: UUID, *, by: str) -> Finding:
    _refuse_off(asks)
    async with asks.pool.connection() as db:
        one = await stored_credential(db, account_id, finding_id)
    if (wanted := _wanted(asks, one)) is None:
        raise BadInputError("no rule says how to ask about its credential")
    word = said(await asks.validator.check(wanted.rule, wanted.secret, wanted.parts))
    async with asks.pool.connection() as db, db.transaction():
        await verdicts.save(db, account_id, {one.fingerprint: word})
        await apply(db, account_id, one.fingerprint, word, by=by)
        finding = await table.select(db, account_id, finding_id)
    if finding is None:
        raise NotFoundError("no such finding")
    return finding


def _refuse_off(asks: ValidationContext) -> None:
    if asks.validator.mode is ValidationMode.OFF:
        raise OperatorError("asking issuers is switched off: OUTCROP_VALIDATE=off")
