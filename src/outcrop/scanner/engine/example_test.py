"""Whether rules do what their examples say."""

from collections.abc import Sequence

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.rules.example_templates import TemplateError, expand_template, split_marked_values
from outcrop.scanner.rules.model import Rule


def check_examples(rules: Sequence[Rule], ruleset: RuleSet) -> tuple[int, list[tuple[str, str]]]:
    """Run every example and counterexample: how many there are, and which do not hold (rule, reason)."""
    cases = [(rule, template, True) for rule in rules for template in rule.examples]
    cases += [(rule, template, False) for rule in rules for template in rule.counterexamples]
    return len(cases), [
        (rule.id, reason)
        for rule, template, wanted in cases
        if (reason := check_example(rule, template, ruleset, wanted=wanted))
    ]


def check_example(rule: Rule, template: str, ruleset: RuleSet, *, wanted: bool) -> str | None:
    """Say what is wrong with one case; None where it holds."""
    try:
        text, values = split_marked_values(expand_template(template, rule.id))
    except (TemplateError, ValueError) as error:
        return f"example cannot be filled: {error}: {template}"
    found = [
        reveal(hit.secret)
        for hit in find(ruleset, text.encode(), Confidence.MEDIUM)
        if hit.rule.id == rule.id
    ]
    if not wanted:
        return f"counterexample is found: {template}" if found else None
    if not values:
        return f"example marks no value with «»: {template}"
    return (
        None if found == values else f"example is {'found otherwise' if found else 'not found'}: {template}"
    )
