"""Check the health of the service, rotate the operator's key, and set which credentials are stored."""

import os
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from outcrop.domain.clock import MAX_CLOCK_ERROR
from outcrop.domain.errors import OperatorError
from outcrop.domain.secret import KeepSecrets
from outcrop.scanner.risk.score import VERSION
from outcrop.scanner.risk.stored_score import score_stored
from outcrop.store import audit, boxes, disk, operator_key, schema, secret_policy
from outcrop.store import db as database
from outcrop.store.db import Connection
from outcrop.store.findings import rollups, scores
from outcrop.store.incidents import pending
from outcrop.store.keyring import Keyring
from outcrop.store.operator_key import OperatorKey

_SAMPLE_SIZE = 1000  # scores and incidents that are computed again


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The result of one check."""

    name: str
    ok: bool
    detail: str


async def run_health_checks(
    db: Connection, operator: OperatorKey, keep_secrets: KeepSecrets | None, *, now: datetime | None = None
) -> list[HealthCheck]:
    """Check database, schema, key, settings and counts, and recompute a sample of the scores and incidents.

    The checks that a pending migration or a newer schema makes impossible are skipped. `keep_secrets` is what
    the settings state. With `now`, the time of this machine, its clock is compared with the database's.
    """
    checks = [
        HealthCheck("database", ok=True, detail=await database.describe_server(db)),
        await _check_schema(db),
    ]
    surroundings = [] if now is None else [await _check_clock(db, now), await _check_room(db)]
    if not checks[-1].ok:
        return checks + surroundings
    try:
        keys = await operator_key.unlock_keyring(db, operator, os.urandom(80))
        checks.append(HealthCheck("secret key", ok=True, detail="fits"))
        checks.append(await _check_encrypted_values(db, keys))
    except OperatorError as error:
        checks.append(HealthCheck("secret key", ok=False, detail=error.message))
    try:
        await secret_policy.check(db, keep_secrets)
        kept = await secret_policy.select(db) or KeepSecrets.ACTIVE
        checks.append(HealthCheck("kept secrets", ok=True, detail=kept))
    except OperatorError as error:
        checks.append(HealthCheck("kept secrets", ok=False, detail=error.message))
    wrong = await rollups.find_mismatches(db)
    detail = f"{len(wrong)} cells differ from a recount" if wrong else "equal to a recount"
    checks.append(HealthCheck("counts", not wrong, detail))
    checks.append(await _check_incidents(db))
    checks.append(await _check_scores(db))
    return checks + surroundings


async def _check_clock(db: Connection, now: datetime) -> HealthCheck:
    """Check that the clock of this machine agrees with the database's; otherwise workers delete nothing."""
    difference = now - await database.current_time(db)
    detail = f"{difference.total_seconds():+.0f} s from the database's"
    return HealthCheck("clock", ok=abs(difference) <= MAX_CLOCK_ERROR, detail=detail)


async def _check_room(db: Connection) -> HealthCheck:
    """Check that the database can write."""
    error = await disk.find_write_error(db)
    detail = "can write" if error is None else f"cannot write ({error})"
    return HealthCheck("database disk", ok=error is None, detail=detail)


async def _check_incidents(db: Connection) -> HealthCheck:
    """Compute a sample of the incidents again and compare them with the stored ones."""
    counted, wrong = await pending.find_mismatches(db, _SAMPLE_SIZE)
    if not wrong:
        return HealthCheck("incidents", ok=True, detail=f"{counted} computed again, all equal")
    account_id, incident_id = wrong[0]
    example = f"{incident_id} of account {account_id}"
    detail = f"{len(wrong)} of {counted} differ when computed again, such as {example}"
    return HealthCheck("incidents", ok=False, detail=detail)


async def _check_scores(db: Connection) -> HealthCheck:
    """Compute a sample of the scores again and compare them with the stored ones."""
    compute = partial(score_stored, moment=await database.current_time(db))
    sample = await scores.select_sample(db, VERSION, _SAMPLE_SIZE)
    wrong = []
    for finding, detail, places in sample:
        recomputed, new_detail = compute(finding, detail, places)
        if (recomputed.composite_score, new_detail) != (finding.composite_score, detail):
            wrong.append(finding.id)
    if not wrong:
        return HealthCheck("scores", ok=True, detail=f"{len(sample)} computed again, all equal")
    detail_text = f"{len(wrong)} of {len(sample)} differ when computed again, such as that of {min(wrong)}"
    return HealthCheck("scores", ok=False, detail=detail_text)


async def _check_schema(db: Connection) -> HealthCheck:
    """Check that the schema is that of this program."""
    if await schema.is_newer(db):
        version, own = await schema.select_version(db), schema.newest_version()
        detail = f"newer than this version of Outcrop: {version:04d}, and this version knows {own:04d}"
        return HealthCheck("schema", ok=False, detail=detail)
    pending = await schema.pending_migrations(db)
    detail = f"to be applied: {', '.join(pending)}" if pending else "up to date"
    return HealthCheck("schema", not pending, detail)


async def keep_secrets(db: Connection, value: KeepSecrets, *, by: str, now: datetime) -> None:
    """Set which credentials the processes of this database store; a worker erases the others."""
    async with db.transaction():
        before = await secret_policy.select(db)
        await secret_policy.save(db, value)
        detail = {"from": before, "to": value}
        await audit.append(db, None, audit.AuditLine(now, by, "secrets.keep", detail=detail))


async def _check_encrypted_values(db: Connection, keys: Keyring) -> HealthCheck:
    """Decrypt all encrypted values, and name the first of each column that is damaged."""
    counts = await boxes.count_damaged(db, keys)
    damaged = [
        f"{count.damaged:,} of {count.total:,} in {count.column.name} damaged, such as of {count.example}"
        for count in counts
        if count.damaged
    ]
    if keys.previous_data_key is not None:
        damaged.append("the data key is being replaced: finish `outcrop secrets rotate --data-key`")
    fine = f"all {sum(count.total for count in counts):,} can be decrypted"
    return HealthCheck("encrypted values", not damaged, "; ".join(damaged) or fine)


@dataclass(frozen=True, slots=True)
class DataKeyRotation:
    """How many values there are, and how many of them are damaged, and so keep the old key."""

    values: int
    damaged: int


async def rotate_data_key(
    db: Connection,
    operator: OperatorKey,
    new: bytes,
    *,
    by: str,
    now: datetime,
) -> DataKeyRotation:
    """Encrypt all stored values with a new data key; after an interruption, continue with the earlier one.

    Raise OperatorError if another program is connected.
    """
    keys = await operator_key.begin_data_key_rotation(db, operator, new)
    counts = await boxes.reencrypt_all(db, keys)
    result = DataKeyRotation(sum(count.total for count in counts), sum(count.damaged for count in counts))
    async with db.transaction():
        await operator_key.end_data_key_rotation(db)
        detail = {"data_key": True, "values": result.values, "damaged": result.damaged}
        await audit.append(db, None, audit.AuditLine(now, by, "secrets.rotate", detail=detail))
    return result


async def rotate_key(db: Connection, operator: OperatorKey, new: str, *, by: str, now: datetime) -> None:
    """Encrypt the keyring with the operator's new key instead of the old one."""
    await operator_key.rotate_operator_key(db, operator, new, os.urandom(16))
    await audit.append(db, None, audit.AuditLine(now, by, "secrets.rotate"))
