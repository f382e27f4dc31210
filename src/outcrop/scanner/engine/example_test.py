"""Test rules with the examples and counterexamples in their files."""

from collections.abc import Sequence

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.rules.example_templates import TemplateError, expand_template, split_marked_values
from outcrop.scanner.rules.model import Rule


def check_examples(rules: Sequence[Rule], ruleset: RuleSet) -> tuple[int, list[tuple[str, str]]]:
    """Return how many examples and counterexamples `rules` have, and (rule id, reason) for each failure."""
    cases = [(rule, template, True) for rule in rules for template in rule.examples]
    cases += [(rule, template, False) for rule in rules for template in rule.counterexamples]
    return len(cases), [
        (rule.id, reason)
        for rule, template, is_example in cases
        if (reason := check_example(rule, template, ruleset, is_example=is_example))
    ]


def check_example(rule: Rule, template: str, ruleset: RuleSet, *, is_example: bool) -> str | None:
    """Return why one example or counterexample fails; None if it passes.

    An example passes if the rule finds exactly the values that the example marks with «», in order; a
    counterexample if the rule finds nothing. Only hits of at least medium confidence count, except in
    examples of a rule whose values are all of low confidence.
    """
    try:
        text, values = split_marked_values(expand_template(template, rule.id))
    except (TemplateError, ValueError) as error:
        return f"example cannot be filled in: {error}: {template}"
    is_low = is_example and all(form.confidence is Confidence.LOW for form in rule.forms)
    hits = find(ruleset, text.encode(), Confidence.LOW if is_low else Confidence.MEDIUM)
    found = [reveal(hit.secret) for hit in hits if hit.rule.id == rule.id]
    if not is_example:
        return f"counterexample is found: {template}" if found else None
    if not values:
        return f"example marks no value with «»: {template}"
    if found == values:
        return None
    return f"example is {'found with other values' if found else 'not found'}: {template}"
