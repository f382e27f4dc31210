"""The transition table, and that the documentation shows the real one."""

import re
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from outcrop.domain.errors import TransitionError
from outcrop.domain.events import event_of
from outcrop.domain.finding import (
    CLOSED_STATUS,
    REOPENS,
    Action,
    Confidence,
    CredentialPattern,
    Finding,
    Resolution,
    SourceType,
    Status,
    TransitionOutcome,
    TriageAction,
    Validation,
    Visibility,
    apply_triage,
    close,
    reopen,
    suppress,
    transition_outcome,
    unsuppress,
)

NOW = datetime(2026, 5, 6, 7, 8, 9, tzinfo=UTC)
DOCS = Path(__file__).parents[2] / "docs"


def make_finding(status: Status) -> Finding:
    resolved = status is Status.RESOLVED
    return Finding(
        id=UUID(int=1),
        status=status,
        validation_status=Validation.VALID,
        validation_confidence=Confidence.HIGH,
        validation_detail={"enabled_services": []},
        composite_score=50.0,
        source_type=SourceType.REPO,
        source_visibility=Visibility.PUBLIC,
        source_url=None,
        repo_full_name=None,
        file_path=None,
        line_number=None,
        matched_text="********",
        pattern=CredentialPattern("x", "x"),
        first_seen_at=NOW,
        last_seen_at=NOW,
        seen_count=1,
        resolved_at=NOW if resolved else None,
        resolution_note="before",
        resolution_evidence=Resolution(auto_resolved=True, resolved_by=None) if resolved else None,
    )


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("action", Action)
def test_every_state_takes_every_action_as_the_table_says(action: Action, status: Status) -> None:
    finding = make_finding(status)
    match transition_outcome(action, status):
        case TransitionOutcome.REFUSED:
            with pytest.raises(TransitionError):
                close(finding, action, note="n", by="a@example.com", now=NOW)
        case TransitionOutcome.STAYS:
            assert close(finding, action, note="n", by="a@example.com", now=NOW) is None
        case TransitionOutcome.MOVES:
            closed = close(finding, action, note="n", by="a@example.com", now=NOW)
            assert closed is not None
            resolved = action is Action.RESOLVE
            assert (closed.status, closed.resolution_note) == (CLOSED_STATUS[action], "n")
            assert closed.resolved_at == (NOW if resolved else None)
            assert closed.resolution_evidence == (
                Resolution(auto_resolved=False, resolved_by="a@example.com") if resolved else None
            )


def test_restricting_sends_no_event() -> None:
    assert event_of(Action.RESTRICT, make_finding(Status.CUSTOMER_RESTRICTED)) is None


def test_suppressing_twice_keeps_the_first_time() -> None:
    once = suppress(make_finding(Status.ACTIVE), now=NOW)
    assert suppress(once, now=NOW.replace(year=2027)) is once
    assert once.status is Status.ACTIVE


@pytest.mark.parametrize("status", Status)
def test_whatever_is_closed_can_be_reopened_and_nothing_is_left_of_how_it_was_closed(status: Status) -> None:
    finding = make_finding(status)
    match REOPENS[status]:
        case TransitionOutcome.REFUSED:
            assert status is Status.STALE
            with pytest.raises(TransitionError):
                reopen(finding)
        case TransitionOutcome.STAYS:
            assert status is Status.ACTIVE
            assert reopen(finding) is None
        case TransitionOutcome.MOVES:
            second = reopen(finding)
            assert second is not None
            assert (
                second.status,
                second.resolved_at,
                second.resolution_note,
                second.resolution_evidence,
            ) == (
                Status.ACTIVE,
                None,
                None,
                None,
            )


def test_what_was_hidden_is_shown_again() -> None:
    finding = make_finding(Status.ACTIVE)
    assert unsuppress(finding) is finding
    assert unsuppress(suppress(finding, now=NOW)) == finding


def test_a_move_that_changes_nothing_is_none() -> None:
    finding = make_finding(Status.ACTIVE)
    hidden = suppress(finding, now=NOW)
    for before, move in (
        (finding, TriageAction.UNSUPPRESS),
        (finding, TriageAction.REOPEN),
        (hidden, TriageAction.SUPPRESS),
    ):
        assert apply_triage(before, move, note=None, by="a@example.com", now=NOW) is None
    assert {move.closing for move in TriageAction} == {None, *Action}


def test_the_documented_table_of_transitions_is_the_real_one() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| (\w+) \| (\w+) \|$", (DOCS / "api.md").read_text(), re.MULTILINE
    )
    documented = {
        (action, Status(status)): word
        for status, *words in rows
        for action, word in zip(Action, words, strict=True)
    }
    assert documented == {
        (action, status): transition_outcome(action, status) for action in Action for status in Status
    }
