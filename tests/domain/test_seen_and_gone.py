"""What a run that sees a finding again, or confirms that it is gone, makes of it."""

from dataclasses import replace

import pytest

from outcrop.domain.finding import Finding, Resolution, Status, mark_gone, mark_seen
from tests.domain.test_finding import NOW, make_finding

AUTOMATIC, BY_A_PERSON = (
    Resolution(auto_resolved=True, resolved_by=None),
    Resolution(auto_resolved=False, resolved_by="a@example.com"),
)


def resolved(evidence: Resolution) -> Finding:
    return replace(make_finding(Status.RESOLVED), resolution_evidence=evidence)


def test_seen_again_after_it_was_taken_for_gone_is_active_and_news() -> None:
    finding, news = mark_seen(resolved(AUTOMATIC))
    assert (finding.status, news) == (Status.ACTIVE, True)
    assert (finding.resolved_at, finding.resolution_note, finding.resolution_evidence) == (None, None, None)


def test_seen_again_after_a_person_resolved_it_stays_unless_a_check_proves_it_alive() -> None:
    finding = resolved(BY_A_PERSON)
    assert mark_seen(finding) == (finding, False)
    back, news = mark_seen(finding, proven=True)
    assert (back.status, back.resolved_at, back.resolution_evidence, news) == (
        Status.ACTIVE,
        None,
        None,
        True,
    )


@pytest.mark.parametrize("status", [Status.ACTIVE, Status.FALSE_POSITIVE, Status.CUSTOMER_RESTRICTED])
@pytest.mark.parametrize("proven", [True, False])
def test_seen_again_changes_no_other_state(status: Status, proven: bool) -> None:
    finding = make_finding(status)
    assert mark_seen(finding, proven=proven) == (finding, False)


def test_seen_again_while_stale_is_active_and_no_news() -> None:
    finding = make_finding(Status.STALE)
    assert mark_seen(finding) == (replace(finding, status=Status.ACTIVE), False)


@pytest.mark.parametrize("status", [Status.ACTIVE, Status.STALE])
def test_gone_is_resolved_by_nobody_and_is_on_no_line(status: Status) -> None:
    closed = mark_gone(replace(make_finding(status), current_line=7, suppressed_at=NOW), now=NOW)
    assert closed is not None
    assert (closed.status, closed.resolved_at, closed.resolution_evidence, closed.current_line) == (
        Status.RESOLVED,
        NOW,
        AUTOMATIC,
        None,
    )
    assert closed.suppressed_at == NOW


@pytest.mark.parametrize("status", [Status.RESOLVED, Status.FALSE_POSITIVE, Status.CUSTOMER_RESTRICTED])
def test_gone_changes_nothing_that_is_closed(status: Status) -> None:
    assert mark_gone(make_finding(status), now=NOW) is None


def test_gone_and_seen_again_is_what_it_was() -> None:
    finding = replace(make_finding(Status.ACTIVE), resolution_note=None)
    closed = mark_gone(finding, now=NOW)
    assert closed is not None
    assert mark_seen(closed) == (finding, True)
