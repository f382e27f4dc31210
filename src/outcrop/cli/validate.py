"""The command `outcrop validate`."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any
from uuid import UUID

import typer

from outcrop.cli.session import OPERATOR, AsJson, run, show, start
from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import Finding
from outcrop.domain.ids import parse_id
from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.runtime import open_runtime
from outcrop.scanner.engine.load import load_ruleset
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.services import accounts
from outcrop.services.pipeline.context import ValidationContext
from outcrop.services.pipeline.revalidate import revalidate_finding
from outcrop.services.validation import CredentialCheck, validate_one
from outcrop.settings import Settings
from outcrop.sources.workspace import cache_folder
from outcrop.validation.engine import ValidationMode, Validator

_MAX_STDIN_BYTES = 1 << 20
_CONNECTIONS = 4


def validate(
    rule: Annotated[
        str | None,
        typer.Option("--type", metavar="RULE", help="The rule's id, as `outcrop rules list` shows it."),
    ] = None,
    account: Annotated[
        str | None, typer.Option("--account", metavar="SLUG", help="The account of a finding.")
    ] = None,
    finding: Annotated[
        str | None,
        typer.Option("--finding", metavar="ID", help="Validate the stored credential of this finding again."),
    ] = None,
    canary: Annotated[
        bool,
        typer.Option("--canary", help="Also use known canary tokens. Their owner is notified of the use."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Validate one credential with its issuer: from standard input, or the stored credential of a finding."""
    if (rule is None) == (finding is None) or (account is None) != (finding is None):
        raise BadInputError("give --type and a credential on standard input, or --account and --finding")
    settings = start()
    if rule is not None:
        text = sys.stdin.buffer.read(_MAX_STDIN_BYTES).decode("utf-8", "surrogateescape")
        show(_record(run(lambda: _validate_text(settings, rule, text, canaries=canary))), as_json=as_json)
        return
    if (finding_id := parse_id(finding or "")) is None:
        raise BadInputError(f"{finding!r} is not the id of a finding")
    shown = run(lambda: _revalidate(settings, account or "", finding_id, canaries=canary))
    detail = shown.validation_detail
    record = {
        "id": str(shown.id),
        "validation_status": shown.validation_status,
        "validation_confidence": shown.validation_confidence,
        "reason": detail.get("reason"),
        "enabled_services": detail["enabled_services"],
        "checked_at": detail.get("checked_at"),
        "composite_score": shown.composite_score,
    }
    show(record, as_json=as_json)


@asynccontextmanager
async def _open_validator(settings: Settings, *, canaries: bool) -> AsyncIterator[tuple[RuleSet, Validator]]:
    """Load the rules and open a validator."""
    egress = Egress.from_settings(settings)
    rules = [settings.rules] if settings.rules else []
    ruleset = await asyncio.to_thread(load_ruleset, rules, cache=cache_folder())
    async with open_http(egress) as http:
        yield ruleset, Validator(http, ValidationMode(settings.validate_), use_canaries=canaries)


async def _validate_text(settings: Settings, rule: str, text: str, *, canaries: bool) -> CredentialCheck:
    """Find a credential of this rule in the text and validate it."""
    async with _open_validator(settings, canaries=canaries) as (ruleset, validator):
        return await validate_one(validator, ruleset, rule, text)


async def _revalidate(settings: Settings, slug: str, finding_id: UUID, *, canaries: bool) -> Finding:
    """Validate the stored credential of a finding and return the updated finding."""
    async with open_runtime(settings, pool_size=_CONNECTIONS, statement_timeout=60) as runtime:
        async with runtime.pool.connection() as db:
            account = await accounts.get_account(db, slug)
        async with _open_validator(settings, canaries=canaries) as (ruleset, validator):
            context = ValidationContext(
                pool=runtime.pool, keys=runtime.keys, ruleset=ruleset, validator=validator
            )
            return await revalidate_finding(context, account.id, finding_id, by=OPERATOR)


def _record(check: CredentialCheck) -> dict[str, Any]:
    """Return the fields that the command prints."""
    verdict = check.verdict
    return {
        "rule": check.rule.id,
        "validation_status": verdict.status,
        "validation_confidence": verdict.confidence,
        "reason": verdict.reason,
        "enabled_services": list(verdict.services),
        "composite_score": check.score.total,
        "score": check.score.parts,
    }
