"""Stored scores follow what they depend on: places, sightings and status."""

import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from outcrop.domain.account import Account
from outcrop.domain.clock import now
from outcrop.domain.finding import Action, TriageAction
from outcrop.domain.target import TargetKind, TargetSpec
from outcrop.services import findings
from outcrop.services.exchange.importer import import_findings
from outcrop.services.pipeline.maintenance import mark_stale
from outcrop.services.pipeline.score import rescore, rescore_outdated
from tests.support.factories import make_line
from tests.support.pipeline import Pipeline, token


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    return tmp_path / "shop"


def scan(pipeline: Pipeline, account: Account, folder: Path, **files: str | None) -> None:
    """Write or delete files of a folder, and scan it."""
    for name, text in files.items():
        file = folder / f"{name}.env"
        file.unlink() if text is None else file.write_text(text)
    pipeline.scan(account, TargetSpec(TargetKind.FOLDER, str(folder)))


def part(finding: dict[str, Any], name: str) -> int:
    """Return the points of one part of a stored score."""
    return int(finding["score_detail"]["parts"][name])


def explanation(pipeline: Pipeline, account: Account, finding: dict[str, Any], name: str) -> str:
    """Return the reason for one part of a finding's score."""

    async def explain() -> str:
        async with pipeline.context.pool.connection() as db:
            explained = await findings.explain_finding(db, account.id, finding["id"])
        return next(reason.sentence for reason in explained.score if reason.name == name)

    return pipeline.wait(explain())


def see_last(pipeline: Pipeline, account: Account, *, days_ago: int) -> None:
    """Set the time at which the findings of an account were last seen."""
    pipeline.sql(
        "UPDATE findings SET last_seen_at = now() - make_interval(days => %s) WHERE account_id = %s",
        *(days_ago, account.id),
    )


def assert_scores_are_right(pipeline: Pipeline, account: Account) -> None:
    """Compute the scores of an account again, and assert that none differs."""
    stored = pipeline.findings(account)

    async def compute_again() -> None:
        async with pipeline.context.pool.connection() as db, db.transaction():
            await rescore(db, account.id, [finding["id"] for finding in stored], now())

    pipeline.wait(compute_again())
    assert pipeline.findings(account) == stored


def test_a_finding_that_a_scan_resolved_has_no_points_of_the_last_scan(
    pipeline: Pipeline, account: Account, folder: Path
) -> None:
    scan(pipeline, account, folder, a=token("a"), b="x")
    before = pipeline.findings(account)[0]
    assert part(before, "still_there") == 4
    scan(pipeline, account, folder, a=None)
    resolved = pipeline.findings(account)[0]
    assert resolved["status"] == "resolved"
    assert part(resolved, "still_there") == 2
    assert resolved["composite_score"] == before["composite_score"] - 2
    assert explanation(pipeline, account, resolved, "still_there") == "it was seen within 30 days"
    (event,) = pipeline.sql(
        "SELECT finding FROM outbox WHERE account_id = %s AND event = 'finding.resolved'", account.id
    )
    assert event[0]["composite_score"] == resolved["composite_score"]
    scan(pipeline, account, folder, a=token("a"))
    assert pipeline.findings(account)[0]["composite_score"] == before["composite_score"]
    assert_scores_are_right(pipeline, account)


def test_all_places_of_a_credential_count_in_all_its_scores(
    pipeline: Pipeline, account: Account, folder: Path
) -> None:
    scan(pipeline, account, folder, a=token("same"), b=token("same"))
    assert [part(finding, "spread") for finding in pipeline.findings(account)] == [2, 2], "of one batch"
    scan(pipeline, account, folder, c=token("same"), d=token("same"))
    assert [part(finding, "spread") for finding in pipeline.findings(account)] == [4] * 4
    assert_scores_are_right(pipeline, account)


def test_an_imported_place_counts_in_the_other_scores(
    pipeline: Pipeline, account: Account, folder: Path
) -> None:
    scan(pipeline, account, folder, a=token("same"))
    lines = [
        make_line(file_path=f"{n}.env", matched_text=None) | {"secret": token("same"), "fingerprint": f"f{n}"}
        for n in range(3)
    ]
    report = "".join(json.dumps(line) + "\n" for line in lines)

    async def import_report() -> None:
        async with pipeline.context.pool.connection() as db:
            await import_findings(
                db, pipeline.context.keys, account, io.BytesIO(report.encode()),
                by="test", now=now(), progress=lambda _: None,
            )  # fmt: skip

    pipeline.wait(import_report())
    assert [part(finding, "spread") for finding in pipeline.findings(account)] == [4] * 4
    assert_scores_are_right(pipeline, account)


@pytest.mark.parametrize("close", [True, False])
def test_closing_and_reopening_compute_the_score(
    pipeline: Pipeline, account: Account, folder: Path, close: bool
) -> None:
    scan(pipeline, account, folder, a=token("a"))
    before = pipeline.finding(account)
    triage(pipeline, account, before["id"], TriageAction.RESOLVE)
    if close:
        triage(pipeline, account, before["id"], TriageAction.REOPEN)
    pipeline.sql(
        """UPDATE findings SET composite_score = 1,
               score_detail = jsonb_set(score_detail, '{parts,spread}', '4') WHERE account_id = %s""",
        account.id,
    )
    triage(pipeline, account, before["id"], TriageAction.RESOLVE if close else TriageAction.REOPEN)
    after = pipeline.finding(account)
    assert (after["composite_score"], after["score_detail"]) == (
        before["composite_score"],
        before["score_detail"],
    )
    assert explanation(pipeline, account, after, "still_there") == "the last scan has seen it"
    assert_scores_are_right(pipeline, account)


def triage(pipeline: Pipeline, account: Account, finding_id: Any, action: TriageAction) -> None:
    """Apply an action of a person to a finding, and assert that the score in the result is the stored one."""

    async def apply() -> float:
        async with pipeline.context.pool.connection() as db, db.transaction():
            keys = pipeline.context.keys
            if action is TriageAction.REOPEN:
                after = await findings.reopen_finding(
                    db, keys, account.id, finding_id, note=None, by="ada", now=now()
                )
            else:
                after = await findings.close_finding(
                    db, keys, account.id, finding_id, Action(action.value), note=None, by="ada", now=now()
                )
        return after.composite_score

    assert pipeline.wait(apply()) == pipeline.finding(account)["composite_score"]


def test_a_stale_finding_loses_the_points_and_has_them_again_when_it_is_seen(
    pipeline: Pipeline, account: Account, folder: Path
) -> None:
    scan(pipeline, account, folder, a=token("a"))
    before = pipeline.finding(account)
    see_last(pipeline, account, days_ago=40)
    assert_scores_are_right(pipeline, account)
    pipeline.wait(mark_stale(pipeline.context, after=timedelta(days=30)))
    stale = pipeline.finding(account)
    assert (stale["status"], part(stale, "still_there")) == ("stale", 0)
    assert_scores_are_right(pipeline, account)
    scan(pipeline, account, folder)
    assert pipeline.finding(account)["composite_score"] == before["composite_score"]


def test_the_points_of_a_sighting_end_after_30_days(
    pipeline: Pipeline, account: Account, folder: Path
) -> None:
    scan(pipeline, account, folder, a=token("a"), b="x")
    scan(pipeline, account, folder, a=None)
    see_last(pipeline, account, days_ago=32)
    pipeline.wait(rescore_outdated(pipeline.context))
    assert part(pipeline.findings(account)[0], "still_there") == 0
    assert_scores_are_right(pipeline, account)


def test_a_closed_finding_that_is_gone_loses_the_points(
    pipeline: Pipeline, account: Account, folder: Path
) -> None:
    scan(pipeline, account, folder, a=token("a"), b="x")
    triage(pipeline, account, pipeline.finding(account)["id"], TriageAction.FALSE_POSITIVE)
    scan(pipeline, account, folder, a=None)
    closed = pipeline.finding(account)
    assert (closed["status"], part(closed, "still_there")) == ("false_positive", 2)
    scan(pipeline, account, folder, a=token("a"))
    assert part(pipeline.finding(account), "still_there") == 4
    assert_scores_are_right(pipeline, account)
