"""Targets of an account: added, changed, listed, removed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import uuid4

from outcrop.domain.account import Account
from outcrop.domain.errors import BadInputError, NotFoundError
from outcrop.domain.ids import parse_id
from outcrop.domain.secret import Secret, reveal
from outcrop.domain.target import Schedule, Target, TargetKind, TargetSpec, choose, identity, parse_target
from outcrop.store import audit
from outcrop.store.db import Connection
from outcrop.store.keyring import Keyring
from outcrop.store.runs import targets

PATTERN_LENGTH = 500
PATTERNS = 100
CREDENTIAL_LENGTH = 8_000

_TOKEN_ONLY = {TargetKind.OWNER, TargetKind.GISTS, TargetKind.GIST, TargetKind.COMMIT}


async def add_target(
    db: Connection,
    keys: Keyring,
    account: Account,
    text: str,
    *,
    kind: TargetKind | None,
    schedule: Schedule,
    include: Sequence[str],
    exclude: Sequence[str],
    chosen: Mapping[str, bool | int],
    credential: Secret | None,
    by: str,
    now: datetime,
    web_host: str = "github.com",
) -> Target:
    """Add a target; one with a schedule is due at once. `chosen` are the options that differ from what holds for its kind."""
    kind, name = parse_target(text, kind, web_host=web_host)
    spec = TargetSpec(kind, name, _patterns(include), _patterns(exclude), choose(kind, chosen))
    if credential is not None:
        _check_credential(credential, spec)
    await targets.lock_account(db, account.id)
    for there in await targets.select_all(db, account.id):
        if identity(there.spec.kind, there.spec.name, web_host=web_host) == identity(
            kind, name, web_host=web_host
        ):
            raise BadInputError(f"this target is there already: {there.id}")
    target = Target(
        uuid4(), spec, schedule, now, None if schedule is Schedule.OFF else now, credential is not None
    )
    box = None if credential is None else keys.seal(credential, account.id, target.id)
    await targets.insert(db, account.id, target, box)
    detail = _told(spec) | _how(target)
    await audit.append(db, account.id, audit.AuditLine(now, by, "target.add", str(target.id), detail=detail))
    return target


async def list_targets(db: Connection, account: Account) -> list[Target]:
    return await targets.select_all(db, account.id)


async def get_target(db: Connection, account: Account, target_id: str) -> Target:
    """Any text may be asked for; what is no id names no target."""
    id_ = parse_id(target_id)
    target = None if id_ is None else await targets.select(db, account.id, id_)
    if target is None:
        raise _missing(target_id)
    return target


async def edit_target(
    db: Connection,
    keys: Keyring,
    account: Account,
    target: Target,
    *,
    schedule: Schedule,
    include: Sequence[str],
    exclude: Sequence[str],
    chosen: Mapping[str, bool | int],
    credential: Secret | None,
    forget_credential: bool,
    by: str,
    now: datetime,
) -> Target:
    """Change how a target is looked at. What it is stays: another place is another target, with findings of its own."""
    kind = target.spec.kind
    spec = replace(
        target.spec,
        include=_patterns(include),
        exclude=_patterns(exclude),
        options=choose(kind, target.spec.options | dict(chosen)),
    )
    if credential is not None:
        _check_credential(credential, spec)
    same = schedule is target.schedule
    next_run_at = target.next_run_at if same else None if schedule is Schedule.OFF else now
    kept = target.has_credential and not forget_credential
    changed = replace(
        target,
        spec=spec,
        schedule=schedule,
        next_run_at=next_run_at,
        has_credential=credential is not None or kept,
    )
    box = None if credential is None else keys.seal(credential, account.id, target.id)
    await targets.update(db, account.id, changed, box)
    detail = _told(spec) | _how(changed) | ({"credential": "replaced"} if credential is not None else {})
    await audit.append(db, account.id, audit.AuditLine(now, by, "target.edit", str(target.id), detail=detail))
    return changed


async def remove_target(
    db: Connection, account: Account, target_id: str, *, by: str, now: datetime
) -> Target:
    """Remove a target and its credential; what its runs found stays."""
    id_ = parse_id(target_id)
    target = None if id_ is None else await targets.delete(db, account.id, id_)
    if target is None:
        raise _missing(target_id)
    await audit.append(
        db, account.id, audit.AuditLine(now, by, "target.remove", str(target.id), detail=_told(target.spec))
    )
    return target


def _missing(target_id: str) -> NotFoundError:
    return NotFoundError(f"there is no target {target_id[:100]!r}")


def _told(spec: TargetSpec) -> dict[str, object]:
    """Name a target in the audit trail, which is for ever: without the query, where addresses have their tokens."""
    return {"kind": spec.kind, "target": spec.name.partition("?")[0]}


def _how(target: Target) -> dict[str, object]:
    spec = target.spec
    return {
        "schedule": target.schedule,
        "include": spec.include,
        "exclude": spec.exclude,
        "options": spec.options,
        "has_credential": target.has_credential,
    }


def _patterns(given: Sequence[str]) -> tuple[str, ...]:
    if len(given) > PATTERNS:
        raise BadInputError(f"a target has at most {PATTERNS} patterns to include and as many to exclude")
    for pattern in given:
        if not pattern.strip() or len(pattern) > PATTERN_LENGTH or not pattern.isprintable():
            raise BadInputError(f"a pattern has 1 to {PATTERN_LENGTH} printable characters")
    return tuple(given)


def _check_credential(credential: Secret, spec: TargetSpec) -> None:
    """Refuse what could not be sent, or not safely; the credential itself is never repeated."""
    value = reveal(credential)
    if not value.strip():
        raise BadInputError("the credential is empty")
    if len(value) > CREDENTIAL_LENGTH or not value.isprintable():  # a line end would begin another header
        raise BadInputError(f"a credential is one line of at most {CREDENTIAL_LENGTH:,} printable characters")
    if " " in value and spec.kind in _TOKEN_ONLY:
        raise BadInputError("the credential of this target is a token alone, without spaces")
    if spec.name.startswith("http://"):
        raise BadInputError("a credential is sent over https only")
