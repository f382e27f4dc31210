"""Add, change, list and remove the targets of an account."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import uuid4

from outcrop.domain.account import Account
from outcrop.domain.errors import BadInputError, NotFoundError
from outcrop.domain.ids import parse_id
from outcrop.domain.scan import ScanRun
from outcrop.domain.secret import Secret, reveal
from outcrop.domain.target import Schedule, Target, TargetHealth, TargetKind, TargetSpec, choose
from outcrop.limits import TARGET_CREDENTIAL_LENGTH, TARGET_PATTERN_LENGTH, TARGET_PATTERNS
from outcrop.notes import mask_random_words, mask_target
from outcrop.sources.code_host.targets import identity, read_target
from outcrop.store import audit
from outcrop.store.db import Connection
from outcrop.store.keyring import Keyring
from outcrop.store.people import accounts
from outcrop.store.runs import scans, target_health, targets

# Their credential is a token. Others may have a user name and password, or a whole Authorization header.
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
    host_url: str | None = None,
    web_host: str = "github.com",
) -> Target:
    """Add a target; with a schedule, its first run is due at once.

    `text` is what the user typed; `chosen` are the options that differ from the defaults of the kind.
    `host_url` is the address of a self-hosted code host.
    """
    kind, name, host_url = read_target(text, kind, host_url=host_url, web_host=web_host)
    patterns = _check_patterns(include), _check_patterns(exclude)
    spec = TargetSpec(kind, name, *patterns, choose(kind, chosen), host_url)
    if credential is not None:
        _check_credential(credential, spec)
    await accounts.lock_account(db, account.id)
    new_identity = identity(spec, web_host=web_host)
    for existing in await list_targets(db, keys, account):
        if identity(existing.spec, web_host=web_host) == new_identity:
            raise BadInputError(f"this target exists already: {existing.id}")
    next_run_at = None if schedule is Schedule.OFF else now
    target = Target(uuid4(), spec, schedule, now, next_run_at, credential is not None)
    box = None if credential is None else keys.seal(credential, account.id, target.id)
    url_box = keys.seal_url(name, account.id, target.id) if spec.has_query else None
    await targets.insert(db, account.id, target, box, url_box)
    detail = _describe_spec(spec) | _describe_settings(target)
    await audit.append(db, account.id, audit.AuditLine(now, by, "target.add", str(target.id), detail=detail))
    return target


async def list_targets(db: Connection, keys: Keyring, account: Account) -> list[Target]:
    """Return all targets of an account."""
    return [
        targets.open_target(keys, account.id, target) for target in await targets.select_all(db, account.id)
    ]


async def list_health(db: Connection, keys: Keyring, account_id: int) -> list[TargetHealth]:
    """Return all targets of an account with their last runs and numbers of findings."""
    return [
        replace(health, target=targets.open_target(keys, account_id, health.target))
        for health in await target_health.select_health(db, account_id)
    ]


async def get_target(db: Connection, keys: Keyring, account: Account, target_id: str) -> Target:
    """Return a target; raise NotFoundError if there is none, or `target_id` is not a UUID."""
    id_ = parse_id(target_id)
    target = None if id_ is None else await targets.select(db, account.id, id_)
    if target is None:
        raise _missing(target_id)
    return targets.open_target(keys, account.id, target)


async def find_target_of_run(db: Connection, keys: Keyring, account_id: int, run: ScanRun) -> Target | None:
    """Return the target of a run; None if the run has no stored target, or that was removed."""
    target_id = await scans.select_target_id(db, account_id, run.id)
    target = None if target_id is None else await targets.select(db, account_id, target_id)
    return None if target is None else targets.open_target(keys, account_id, target)


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
    """Change the schedule, patterns, options or credential of a target; return the changed target.

    Its address cannot change: another address is another target, with findings of its own.
    """
    kind = target.spec.kind
    spec = replace(
        target.spec,
        include=_check_patterns(include),
        exclude=_check_patterns(exclude),
        options=choose(kind, target.spec.options | dict(chosen)),
    )
    if credential is not None:
        _check_credential(credential, spec)
    next_run_at = target.next_run_at
    if schedule is not target.schedule:
        next_run_at = None if schedule is Schedule.OFF else now
    keeps_credential = target.has_credential and not forget_credential
    changed = replace(
        target,
        spec=spec,
        schedule=schedule,
        next_run_at=next_run_at,
        has_credential=credential is not None or keeps_credential,
    )
    box = None if credential is None else keys.seal(credential, account.id, target.id)
    await targets.update(db, account.id, changed, box)
    detail = _describe_spec(spec) | _describe_settings(changed)
    if credential is not None:
        detail["credential"] = "replaced"
    await audit.append(db, account.id, audit.AuditLine(now, by, "target.edit", str(target.id), detail=detail))
    return changed


async def remove_target(
    db: Connection, account: Account, target_id: str, *, by: str, now: datetime
) -> Target:
    """Remove a target and its credential; its runs and their findings stay."""
    id_ = parse_id(target_id)
    target = None if id_ is None else await targets.delete(db, account.id, id_)
    if target is None:
        raise _missing(target_id)
    await audit.append(
        db,
        account.id,
        audit.AuditLine(now, by, "target.remove", str(target.id), detail=_describe_spec(target.spec)),
    )
    return target


def _missing(target_id: str) -> NotFoundError:
    """Return the error for a target that does not exist."""
    return NotFoundError(f"there is no target {target_id[:100]!r}")


def _describe_spec(spec: TargetSpec) -> dict[str, object]:
    """Return kind and address for the audit trail, without what may be a token."""
    detail: dict[str, object] = {"kind": spec.kind, "target": mask_target(spec)}
    return detail if spec.host_url is None else detail | {"host_url": mask_random_words(spec.host_url)}


def _describe_settings(target: Target) -> dict[str, object]:
    """Return the settings of a target for the audit trail."""
    spec = target.spec
    return {
        "schedule": target.schedule,
        "include": list(map(mask_random_words, spec.include)),
        "exclude": list(map(mask_random_words, spec.exclude)),
        "options": spec.options,
        "has_credential": target.has_credential,
    }


def _check_patterns(patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns; raise BadInputError if there are too many or one is not valid."""
    if len(patterns) > TARGET_PATTERNS:
        raise BadInputError(
            f"a target has at most {TARGET_PATTERNS} patterns to include and as many to exclude"
        )
    for pattern in patterns:
        if not pattern.strip() or len(pattern) > TARGET_PATTERN_LENGTH or not pattern.isprintable():
            raise BadInputError(f"a pattern has 1 to {TARGET_PATTERN_LENGTH} printable characters")
    return tuple(patterns)


def _check_credential(credential: Secret, spec: TargetSpec) -> None:
    """Raise BadInputError if a credential could not be sent safely. The message does not contain it."""
    value = reveal(credential)
    if not value.strip():
        raise BadInputError("the credential is empty")
    if (
        len(value) > TARGET_CREDENTIAL_LENGTH or not value.isprintable()
    ):  # a newline would start another header
        raise BadInputError(
            f"a credential is one line of at most {TARGET_CREDENTIAL_LENGTH:,} printable characters"
        )
    if " " in value and spec.kind in _TOKEN_ONLY and not value.startswith("{"):
        raise BadInputError("the credential of this target is a token, without spaces")
    if spec.name.startswith("http://"):
        raise BadInputError("a credential is sent over https only")
