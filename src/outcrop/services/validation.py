"""Validate credentials for the command line: one that the user types, or all hits of a local scan."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import Confidence, SourceType, Visibility
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.risk.score import Evidence, Score, score
from outcrop.scanner.rules.model import Rule, Strength
from outcrop.validation.batch import Credential, check_all
from outcrop.validation.engine import Validator
from outcrop.validation.verdict import Verdict


@dataclass(frozen=True, slots=True)
class CredentialCheck:
    """The verdict on a credential, and the score of a finding of it."""

    rule: Rule
    verdict: Verdict
    score: Score


async def validate_one(validator: Validator, ruleset: RuleSet, rule_id: str, text: str) -> CredentialCheck:
    """Check one credential of a rule.

    `text` is the bare value, or a text such as a config file with the value and its companions.
    """
    rule = ruleset.rules.get(rule_id)
    if rule is None:
        raise BadInputError(f"there is no rule {rule_id!r}: `outcrop rules list` shows them all")
    hits = [
        hit
        for hit in find(ruleset, text.encode("utf-8", "surrogateescape"), Confidence.LOW)
        if hit.rule.id == rule_id
    ]
    hit = next((hit for hit in hits if hit.companion_name is None), None)
    secret = reveal(hit.secret) if hit else text.strip()
    if not secret:
        raise BadInputError("no credential on standard input")
    parts = {name: reveal(value) for name, value in hit.companions.items()} if hit else {}
    verdict = await validator.check(rule, secret, parts)
    evidence = Evidence(
        verdict.status,
        verdict.confidence,
        hit.strength if hit else Strength.GENERIC,
        rule.impact,
        SourceType.REPO,
        Visibility.UNKNOWN,
        placeholder=bool(hit and hit.placeholder),
        test_mode=verdict.test_mode,
        canary=verdict.canary,
        services=verdict.services,
        services_asked=verdict.services_checked,
    )
    return CredentialCheck(rule, verdict, score(evidence))


async def validate_hits(
    validator: Validator, hits: Sequence[Hit], on_progress: Callable[[int, int], None]
) -> list[Verdict]:
    """Return the verdict on each hit, in order; a credential with several hits is checked once.

    `on_progress` gets the number of checked credentials and their total.
    """
    # (rule, value, companions) -> numbers of its hits
    groups: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[int]] = {}
    for number, hit in enumerate(hits):
        parts = tuple(sorted((name, reveal(part)) for name, part in hit.companions.items()))
        groups.setdefault((hit.rule.id, reveal(hit.secret), parts), []).append(number)
    hit_numbers = list(groups.values())
    credentials = [
        Credential(hits[numbers[0]].rule, secret, dict(parts))
        for (_, secret, parts), numbers in groups.items()
    ]
    verdicts: dict[int, Verdict] = {}
    checked = 0

    def on_verdict(number: int, verdict: Verdict) -> None:
        """Store the verdict for all hits of a credential and report the progress."""
        nonlocal checked
        checked += 1
        verdicts.update(dict.fromkeys(hit_numbers[number], verdict))
        on_progress(checked, len(credentials))

    await check_all(validator, credentials, on_verdict)
    return [verdicts[number] for number in range(len(hits))]
