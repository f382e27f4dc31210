"""Every example and counterexample of every rule file: the one test that a new rule needs."""

import pytest

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.confirm import Hit
from outcrop.scanner.detect import find
from outcrop.scanner.rule import Rule
from outcrop.scanner.sample import expand, marked
from tests.rulesets import ruleset


def cases(kind: str):
    return [
        pytest.param(rule, template, id=f"{rule.id}-{number}")
        for rule in ruleset().rules
        for number, template in enumerate(getattr(rule, kind))
    ]


def hits_of(rule: Rule, text: str) -> list[Hit]:
    return [hit for hit in find(ruleset(), text.encode(), Confidence.MEDIUM) if hit.rule.id == rule.id]


@pytest.mark.parametrize(("rule", "template"), cases("examples"))
def test_example_is_found(rule, template):
    text, values = marked(expand(template, rule.id))
    assert values, "mark what must be found with «»"
    assert [reveal(hit.secret) for hit in hits_of(rule, text)] == values


@pytest.mark.parametrize(("rule", "template"), cases("counterexamples"))
def test_counterexample_is_not_found(rule, template):
    assert hits_of(rule, expand(template, rule.id)) == []


@pytest.mark.parametrize("rule", ruleset().rules, ids=lambda rule: rule.id)
def test_rule_has_its_proof(rule):
    assert len(rule.examples) >= 2
    assert len(rule.counterexamples) >= 2
