"""Check the health of the service, and rotate the operator's key."""

import os
from dataclasses import dataclass
from datetime import datetime

from outcrop.domain.errors import OperatorError
from outcrop.store import audit, keyring, schema
from outcrop.store import db as database
from outcrop.store.db import Connection
from outcrop.store.findings import rollups
from outcrop.store.keyring import OperatorKey


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The result of one check."""

    name: str
    ok: bool
    detail: str


async def run_health_checks(db: Connection, operator: OperatorKey) -> list[HealthCheck]:
    """Check database, schema, key and counts; skip the checks that a pending migration makes impossible."""
    checks = [HealthCheck("database", ok=True, detail=await database.describe_server(db))]
    pending = await schema.pending_migrations(db)
    detail = f"to be applied: {', '.join(pending)}" if pending else "up to date"
    checks.append(HealthCheck("schema", not pending, detail))
    if pending:
        return checks
    try:
        await keyring.unlock_keyring(db, operator, os.urandom(80))
        checks.append(HealthCheck("secret key", ok=True, detail="fits"))
    except OperatorError as error:
        checks.append(HealthCheck("secret key", ok=False, detail=error.message))
    wrong = await rollups.find_mismatches(db)
    detail = f"{len(wrong)} cells differ from a recount" if wrong else "equal to a recount"
    checks.append(HealthCheck("counts", not wrong, detail))
    return checks


async def rotate_key(db: Connection, operator: OperatorKey, new: str, *, by: str, now: datetime) -> None:
    """Encrypt the keyring with the operator's new key instead of the old one."""
    await keyring.rotate_operator_key(db, operator, new, os.urandom(16))
    await audit.append(db, None, audit.AuditLine(now, by, "secrets.rotate"))
