"""Every example and counterexample of every rule file: the one test that a new rule needs."""

import pytest

from outcrop.scanner.engine.example_test import check_examples
from tests.support.rulesets import ruleset


@pytest.mark.parametrize("rule", ruleset().rules, ids=lambda rule: rule.id)
def test_rule_does_what_its_examples_say(rule):
    assert len(rule.examples) >= 2
    assert len(rule.counterexamples) >= 2
    count, faults = check_examples([rule], ruleset())
    assert count == len(rule.examples) + len(rule.counterexamples)
    assert faults == []
