"""The oracle of the trials must contradict a service that loses or invents a change."""

import ast
from pathlib import Path

import prove
from prove.oracle_model import Belief, State, apply, from_finding

ACTIVE = State("active", None, suppressed=False)
RESOLVED = State("resolved", "done", suppressed=False)


def test_an_acknowledged_change_is_believed_and_counts_its_event() -> None:
    belief = Belief(ACTIVE)
    assert belief.acknowledge("resolve", "done", 200, "resolved") is None
    assert belief.states == {RESOLVED}
    assert belief.least_events == {"finding.resolved": 1}


def test_a_repeated_change_keeps_the_first_note_and_has_no_event() -> None:
    belief = Belief(RESOLVED)
    assert belief.acknowledge("resolve", "again", 200, "resolved") is None
    assert (belief.states, belief.least_events) == ({RESOLVED}, {})


def test_an_answer_that_no_state_explains_is_a_failure() -> None:
    assert Belief(ACTIVE).acknowledge("resolve", None, 400, None) is not None
    assert Belief(ACTIVE).acknowledge("resolve", None, 200, "stale") is not None
    assert Belief(State("false_positive", None, suppressed=False)).acknowledge(
        "resolve", None, 200, "resolved"
    )


def test_a_request_without_an_answer_leaves_both_states_possible() -> None:
    belief = Belief(ACTIVE)
    belief.doubt("restrict", "n1")
    assert belief.states == {ACTIVE, State("customer_restricted", "n1", suppressed=False)}
    assert not belief.is_certain
    belief.settle(ACTIVE)
    assert (belief.states, belief.is_certain) == ({ACTIVE}, True)


def test_an_event_is_expected_only_if_every_possible_state_sends_it() -> None:
    belief = Belief(ACTIVE)
    belief.doubt("resolve", None)
    assert belief.acknowledge("resolve", None, 200, "resolved") is None
    assert belief.least_events == {}


def test_a_suppressed_finding_keeps_its_status() -> None:
    assert apply(ACTIVE, "suppress", None).state == State("active", None, suppressed=True)
    finding = {"status": "stale", "resolution_note": None, "suppressed_at": "2026-01-01T00:00:00+00:00"}
    assert from_finding(finding) == State("stale", None, suppressed=True)


def test_the_oracle_imports_nothing_of_the_service() -> None:
    folder = Path(prove.__file__).parent
    for name in ("oracle.py", "oracle_model.py"):
        imported = {
            alias.name if isinstance(node, ast.Import) else str(node.module)
            for node in ast.walk(ast.parse((folder / name).read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        assert not [module for module in imported if module.split(".")[0] in {"outcrop", "tests"}], name
