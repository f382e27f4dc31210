"""`outcrop validate`."""

import asyncio
import sys
from typing import Annotated, Any

import typer

from outcrop.cli.session import AsJson, run, show, start
from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.scanner.ruleset import load
from outcrop.services.validation import Checked, validate_one
from outcrop.sources.workspace import cache_folder
from outcrop.validation.engine import Mode, Validator

_LONGEST = 1 << 20


def validate(
    rule: Annotated[str, typer.Option("--type", metavar="RULE", help="The rule's id, as `outcrop rules list` shows it.")],
    canary: Annotated[bool, typer.Option("--canary", help="Use it even if it is a known canary: whoever laid it out is told.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ask the issuer about one credential, read from standard input."""
    settings = start()
    text = sys.stdin.buffer.read(_LONGEST).decode("utf-8", "surrogateescape")
    egress = Egress.parse(settings.egress_allow, settings.egress_connect_to, settings.egress_ca_file, settings.egress_source)

    async def main() -> Checked:
        rules = [settings.rules] if settings.rules else []
        ruleset = await asyncio.to_thread(load, rules, cache=cache_folder())
        async with open_http(egress) as http:
            return await validate_one(Validator(http, Mode(settings.validate_), canaries=canary), ruleset, rule, text)

    checked = run(main)
    show(_record(checked), as_json=as_json)


def _record(checked: Checked) -> dict[str, Any]:
    verdict = checked.verdict
    return {
        "rule": checked.rule.id,
        "validation_status": verdict.status,
        "validation_confidence": verdict.confidence,
        "reason": verdict.reason,
        "enabled_services": list(verdict.services),
        "composite_score": checked.score.total,
        "score": checked.score.parts,
    }
