"""Check findings over several runs: seen again, moved, copied, removed, resolved, back again."""

import asyncio
import io
import random
import zipfile
from typing import Any

import pytest

from outcrop.domain.account import Account
from outcrop.domain.clock import now
from outcrop.domain.finding import Action
from outcrop.domain.scan import ScanRun, ScanStatus
from outcrop.domain.target import TargetSpec
from outcrop.services import findings as triage
from outcrop.services.pipeline import record as recording
from outcrop.services.pipeline.foreground import run_in_foreground
from outcrop.services.pipeline.run_source import scan_source
from tests.support.calls import before_call
from tests.support.git_host import GitHost
from tests.support.pipeline import (
    Pipeline,
    Repo,
    ServedRepository,
    owner_spec,
    plain_spec,
    repository_spec,
    token,
)

KEY = token("key")


def one_repository(
    pipeline: Pipeline, files: dict[str, str | bytes] | None = None
) -> tuple[TargetSpec, ServedRepository]:
    """Add an owner with one repository; return the target of the owner, and the repository."""
    owner = pipeline.add_owner()
    return owner_spec(owner), pipeline.add_repository(
        f"{owner}/shop", files if files is not None else {"a.txt": f"x\n{KEY}\n"}
    )


def rewrite_history(
    pipeline: Pipeline,
    shop: ServedRepository,
    *,
    keep_commits: bool,
    files: dict[str, str | bytes] | None = None,
) -> None:
    """Force-push another history; with `keep_commits` the host still serves the old commits."""
    shop.repo.commit(files or {"other.txt": "x"}, parents=[])
    shop.update_api(keep_commits=keep_commits)


def counts(run: ScanRun) -> tuple[int, int, int]:
    """Return how many findings of the run are new, seen and resolved."""
    return run.findings_new, run.findings_seen, run.findings_resolved


def events(pipeline: Pipeline, account: Account) -> list[str]:
    """Return the types of the waiting events."""
    return [event for event, _ in pipeline.events(account)]


def requested_paths(host: GitHost) -> list[str]:
    """Return the paths of all requests to the git host."""
    return [path for path, _, _ in host.requests]


def age_findings(pipeline: Pipeline, account: Account, days: int) -> None:
    """Make the findings look as if they were last seen `days` earlier."""
    pipeline.sql(
        "UPDATE findings SET last_seen_at = last_seen_at - make_interval(days => %s) WHERE account_id = %s",
        days,
        account.id,
    )


def close_finding(pipeline: Pipeline, account: Account, action: Action) -> None:
    """Close the only finding, as a user does."""
    finding_id = pipeline.finding(account)["id"]

    async def close() -> None:
        async with pipeline.context.pool.connection() as db, db.transaction():
            await triage.close_finding(
                db,
                pipeline.context.keys,
                account.id,
                finding_id,
                action,
                note=None,
                by="jo@example.com",
                now=now(),
            )

    pipeline.wait(close())


# --- seen again


def test_a_second_run_of_an_unchanged_repository_fetches_nothing_and_sees_all_findings(
    pipeline: Pipeline, account: Account
) -> None:
    spec, _ = one_repository(pipeline)
    first = pipeline.scan(account, spec)
    age_findings(pipeline, account, 3)
    before = pipeline.finding(account)
    pipeline.git.requests.clear()
    run = pipeline.scan(account, spec)
    assert requested_paths(pipeline.git) == []
    assert (counts(first), counts(run)) == ((1, 1, 0), (0, 1, 0))
    assert (run.progress["targets"], run.progress["blobs"]) == (1, 0)
    after = pipeline.finding(account)
    assert (after["seen_count"], after["id"], after["first_seen_at"]) == (
        2,
        before["id"],
        before["first_seen_at"],
    )
    assert (after["last_seen_at"] - before["last_seen_at"]).days in {2, 3}
    assert events(pipeline, account) == ["finding.new"]


def test_only_new_blobs_of_a_commit_are_read_and_a_moved_line_is_the_same_finding(
    pipeline: Pipeline, account: Account
) -> None:
    files: dict[str, str | bytes] = {f"{number}.txt": f"plain {number}" for number in range(20)}
    spec, shop = one_repository(pipeline, {**files, "a.txt": KEY})
    assert pipeline.scan(account, spec).progress["blobs"] == 21
    before = pipeline.finding(account)
    shop.push({**files, "a.txt": f"\n\n{KEY}", "new.txt": "y"})
    run = pipeline.scan(account, spec)
    assert run.progress["blobs"] == 3  # two new ones, and the one that held a finding
    after = pipeline.finding(account)
    same = ("id", "line_number", "source_url", "commit_id", "first_seen_at")
    assert [after[name] for name in same] == [before[name] for name in same]
    assert (before["current_line"], after["current_line"]) == (1, 3)
    assert events(pipeline, account) == ["finding.new"]


def test_a_secret_removed_at_the_tip_stays_in_a_commit_and_may_return_to_the_tip(
    pipeline: Pipeline, account: Account
) -> None:
    spec, shop = one_repository(pipeline)
    pipeline.scan(account, spec)
    shop.push({"a.txt": "x"})
    run = pipeline.scan(account, spec)
    found = pipeline.finding(account)
    assert counts(run) == (0, 1, 0)
    assert (found["source_type"], found["current_line"], found["line_number"], found["status"]) == (
        "commit",
        None,
        2,
        "active",
    )
    shop.push({"a.txt": f"{KEY}\n"})
    pipeline.scan(account, spec)
    found = pipeline.finding(account)
    assert (found["source_type"], found["current_line"], found["line_number"], found["seen_count"]) == (
        "repo",
        1,
        2,
        3,
    )
    assert events(pipeline, account) == ["finding.new"]


def test_copies_and_renames_of_a_known_blob_are_new_findings(pipeline: Pipeline, account: Account) -> None:
    spec, shop = one_repository(pipeline)
    pipeline.scan(account, spec)
    text = f"x\n{KEY}\n"
    shop.push({"a.txt": text, "copy.txt": text})
    moved = shop.push({"copy.txt": text, "moved/b.txt": text})
    run = pipeline.scan(account, spec)
    assert counts(run) == (2, 3, 0)
    old, copy, new = pipeline.findings(account)
    assert [finding["source_type"] for finding in (old, copy, new)] == ["commit", "repo", "repo"]
    assert new["source_url"].endswith(f"{moved}/moved/b.txt#L2")
    assert len({finding["fingerprint"] for finding in (old, copy, new)}) == 1
    assert events(pipeline, account) == ["finding.new"] * 3


def test_a_blob_without_findings_is_read_again_under_a_new_name(pipeline: Pipeline, account: Account) -> None:
    """Some rules apply only to files with certain names."""
    text = "db.example.org:5432:shop:jo:k8Zq-2vLx9WtR4\n"
    spec, shop = one_repository(pipeline, {"notes.txt": text})
    pipeline.scan(account, spec)
    assert pipeline.findings(account) == []
    shop.push({".pgpass": text})
    assert counts(pipeline.scan(account, spec)) == (1, 1, 0)
    other = pipeline.create_account()
    assert counts(pipeline.scan(other, spec)) == (1, 1, 0)


# --- findings that are gone


def test_a_finding_stays_after_a_force_push_while_the_host_serves_its_commit(
    pipeline: Pipeline, account: Account
) -> None:
    spec, shop = one_repository(pipeline)
    pipeline.scan(account, spec)
    rewrite_history(pipeline, shop, keep_commits=True)
    assert counts(pipeline.scan(account, spec)) == (0, 0, 0)
    assert pipeline.finding(account)["status"] == "active"
    shop.update_api(keep_commits=False)
    run = pipeline.scan(account, spec)
    found = pipeline.finding(account)
    assert (counts(run), found["status"], found["auto_resolved"], found["resolved_by"]) == (
        (0, 0, 1),
        "resolved",
        True,
        None,
    )
    assert (found["current_line"], found["seen_count"]) == (None, 1)
    assert events(pipeline, account) == ["finding.new", "finding.resolved"]
    body = pipeline.sql(
        "SELECT finding FROM outbox WHERE account_id = %s AND event = 'finding.resolved'", account.id
    )[0][0]
    assert (body["status"], body["resolution_evidence"]) == (
        "resolved",
        {"auto_resolved": True, "resolved_by": None},
    )
    shop.push({"b.txt": "y"})
    assert counts(pipeline.scan(account, spec)) == (0, 0, 0)
    assert len(events(pipeline, account)) == 2


def test_one_request_per_commit_checks_whether_the_host_still_serves_it(
    pipeline: Pipeline, account: Account
) -> None:
    spec, shop = one_repository(pipeline, {f"{number}.txt": KEY for number in range(5)})
    pipeline.scan(account, spec)
    rewrite_history(pipeline, shop, keep_commits=False)
    pipeline.hub.requests.clear()
    assert counts(pipeline.scan(account, spec)) == (0, 0, 5)
    assert sum("/commits/" in path for path in pipeline.hub.paths) == 1


def test_findings_of_a_deleted_branch_are_resolved(pipeline: Pipeline, account: Account) -> None:
    spec, shop = one_repository(pipeline, {"a.txt": "x"})
    shop.push({"b.txt": KEY}, branch="side")
    pipeline.scan(account, spec)
    shop.repo.delete_ref("refs/heads/side")
    shop.update_api(keep_commits=False)
    assert counts(pipeline.scan(account, spec)) == (0, 0, 1)


def test_a_secret_removed_from_a_large_file_is_resolved(pipeline: Pipeline, account: Account) -> None:
    filler = "plain words\n" * 200_000
    spec, shop = one_repository(pipeline, {"a.txt": f"{filler}{KEY}\n"})
    pipeline.scan(account, spec)
    rewrite_history(pipeline, shop, keep_commits=False, files={"a.txt": f"{filler}not{KEY}\n"})
    assert counts(pipeline.scan(account, spec)) == (
        0,
        1,
        0,
    )  # the value is still there, although no rule detects it
    rewrite_history(pipeline, shop, keep_commits=False, files={"a.txt": filler})
    assert counts(pipeline.scan(account, spec)) == (0, 0, 1)


@pytest.mark.parametrize("what", ["emptied", "hidden", "deleted", "blocked", "unserved"])
def test_a_repository_that_cannot_be_scanned_keeps_its_findings(
    pipeline: Pipeline, account: Account, what: str
) -> None:
    spec, shop = one_repository(pipeline)
    repository = repository_spec(shop.full_name)
    pipeline.scan(account, spec)
    hub = pipeline.hub
    match what:
        case "emptied":
            hub.repos[shop.full_name] |= {"size": 0, "pushed_at": None}
            hub.commits[shop.full_name] = []
        case "hidden":
            hub.repos[shop.full_name] |= {"private": True, "visibility": "private"}
        case "deleted":
            del hub.repos[shop.full_name]
        case "blocked":
            hub.blocked[shop.full_name] = 403
            shop.push({"b.txt": "x"}, parents=[])
        case "unserved":
            shop.push({"b.txt": "x"}, parents=[])
            shop.repo.path.rename(shop.repo.path.with_suffix(".away"))
    runs = [pipeline.scan(account, spec), pipeline.scan(account, repository)]
    hub.blocked.clear()
    assert [counts(run)[2] for run in runs] == [0, 0]
    assert runs[1].error is not None or what in {"emptied", "blocked"}
    assert pipeline.finding(account)["status"] == "active"


def test_a_renamed_repository_keeps_its_findings_under_the_new_name(
    pipeline: Pipeline, account: Account
) -> None:
    spec, shop = one_repository(pipeline)
    old = repository_spec(shop.full_name)
    pipeline.scan(account, spec)
    before = pipeline.finding(account)
    new = shop.full_name.replace("/shop", "/store")
    pipeline.hub.rename(shop.full_name, new)
    shop.repo.path.rename(shop.repo.path.with_name("store.git"))
    for target in (spec, old):
        assert counts(pipeline.scan(account, target)) == (0, 1, 0)
    after = pipeline.finding(account)
    assert (after["id"], after["repo_full_name"], after["seen_count"]) == (before["id"], new, 3)
    assert after["source_url"] == before["source_url"].replace("/shop/", "/store/")


def test_a_clone_with_missing_objects_resolves_nothing_and_has_a_gap(
    pipeline: Pipeline, account: Account
) -> None:
    """The server's repository lacks its first commits."""
    name = f"plain-{pipeline.add_owner()}/shop"
    repo = Repo(pipeline.served / f"{name}.git")
    repo.commit({"a.txt": KEY, "b.txt": token(2)})
    pipeline.scan(account, plain_spec(name))
    second = repo.commit({"c.txt": "x"})
    (repo.path / "shallow").write_text(f"{second}\n")
    run = pipeline.scan(account, plain_spec(name))
    assert counts(run)[2] == 0
    assert {finding["status"] for finding in pipeline.findings(account)} == {"active"}
    assert run.coverage_gaps
    (repo.path / "shallow").unlink()
    assert counts(pipeline.scan(account, plain_spec(name))) == (0, 2, 0)


# --- closed findings that are seen again


def test_a_finding_resolved_by_a_run_and_seen_again_is_announced_again(
    pipeline: Pipeline, account: Account
) -> None:
    spec, shop = one_repository(pipeline)
    first = shop.repo.tip() or ""
    pipeline.scan(account, spec)
    rewrite_history(pipeline, shop, keep_commits=False)
    pipeline.scan(account, spec)
    before = pipeline.finding(account)
    shop.repo.set_ref("refs/heads/back", first)
    shop.update_api()
    run = pipeline.scan(account, spec)
    after = pipeline.finding(account)
    assert counts(run) == (1, 1, 0)
    assert (before["status"], after["status"], after["resolved_at"], after["auto_resolved"]) == (
        "resolved",
        "active",
        None,
        None,
    )
    assert (after["id"], after["seen_count"]) == (before["id"], 2)
    assert events(pipeline, account) == ["finding.new", "finding.new", "finding.resolved"]


@pytest.mark.parametrize("action", Action)
def test_a_finding_closed_by_a_user_stays_closed_and_is_still_counted(
    pipeline: Pipeline, account: Account, action: Action
) -> None:
    spec, shop = one_repository(pipeline)
    pipeline.scan(account, spec)
    close_finding(pipeline, account, action)
    before, sent = pipeline.finding(account), events(pipeline, account)
    shop.push({"a.txt": f"x\n{KEY}\ny"})
    pipeline.scan(account, spec)
    pipeline.scan(account, spec)
    rewrite_history(pipeline, shop, keep_commits=False)
    run = pipeline.scan(account, spec)
    after = pipeline.finding(account)
    kept = ("status", "resolved_at", "resolved_by", "auto_resolved", "resolution_note")
    assert [after[name] for name in kept] == [before[name] for name in kept]
    assert (after["seen_count"], counts(run)) == (3, (0, 0, 0))
    assert events(pipeline, account) == sent


@pytest.mark.parametrize("changed", [True, False])
def test_a_stale_finding_that_is_seen_again_becomes_active_without_an_event(
    pipeline: Pipeline, account: Account, changed: bool
) -> None:
    spec, shop = one_repository(pipeline)
    pipeline.scan(account, spec)
    pipeline.sql("UPDATE findings SET status = 'stale' WHERE account_id = %s", account.id)
    if changed:
        shop.push({"a.txt": f"x\n{KEY}\ny"})
    assert counts(pipeline.scan(account, spec)) == (0, 1, 0)
    assert pipeline.finding(account)["status"] == "active"
    assert events(pipeline, account) == ["finding.new"]
    ((detail,),) = pipeline.sql(
        "SELECT detail FROM audit WHERE account_id = %s AND action = 'finding.seen'", account.id
    )
    assert (detail["from"], detail["to"]) == ("stale", "active")


def test_a_stale_finding_that_is_gone_is_resolved(pipeline: Pipeline, account: Account) -> None:
    spec, shop = one_repository(pipeline)
    pipeline.scan(account, spec)
    pipeline.sql("UPDATE findings SET status = 'stale' WHERE account_id = %s", account.id)
    rewrite_history(pipeline, shop, keep_commits=False)
    assert counts(pipeline.scan(account, spec)) == (0, 0, 1)


def test_a_suppressed_finding_stays_suppressed(pipeline: Pipeline, account: Account) -> None:
    spec, shop = one_repository(pipeline)
    pipeline.scan(account, spec)
    pipeline.sql("UPDATE findings SET suppressed_at = now() WHERE account_id = %s", account.id)
    shop.push({"a.txt": f"x\n{KEY}\ny"})
    pipeline.scan(account, spec)
    found = pipeline.finding(account)
    assert (found["status"], found["suppressed_at"] is None, found["seen_count"]) == ("active", False, 2)


# --- changed rules

OLD_RULE = """issuer = "Acme"
[[rule]]
id = "acme_key"
name = "Acme key"
secret_type = "acme"
pattern = 'acme_[0-9a-z]{20}'
"""
NEW_RULE = (
    OLD_RULE.replace("acme_key", "acme_token").replace("Acme key", "Acme token").replace('"acme"', '"acme2"')
)
NO_RULE = OLD_RULE.replace("acme_[", "other_[")
ACME = "acme_k8zq2vlx9wtr4m7c1p5h"


def test_a_rule_that_no_longer_matches_resolves_nothing(pipeline: Pipeline, account: Account) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("in!side.txt", f"1 {ACME}\n" + "x" * 100)
    rewritten_archive = io.BytesIO()
    with zipfile.ZipFile(rewritten_archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("in!side.txt", f"2 {ACME}\n" + "x" * 100)
    files: dict[str, str | bytes] = {
        "a.txt": f"1 {ACME}",
        "odd!na\nme.txt": f"1 {ACME}",
        "a.zip": archive.getvalue(),
    }
    spec, shop = one_repository(pipeline, files)
    with pipeline.open_rules(OLD_RULE) as context:
        assert counts(pipeline.scan(account, spec, context)) == (3, 3, 0)
    with pipeline.open_rules(NO_RULE) as context:
        assert counts(pipeline.scan(account, spec, context)) == (0, 3, 0)
        # Also if the files around the values were rewritten, so that no known blob exists any more.
        files = {"a.txt": f"2 {ACME}", "odd!na\nme.txt": f"2 {ACME}", "a.zip": rewritten_archive.getvalue()}
        rewrite_history(pipeline, shop, keep_commits=False, files=files)
        assert counts(pipeline.scan(account, spec, context)) == (0, 3, 0)
        assert [(finding["status"], finding["seen_count"]) for finding in pipeline.findings(account)] == [
            ("active", 3)
        ] * 3
        rewrite_history(
            pipeline, shop, keep_commits=False, files={"a.txt": "3", "odd!na\nme.txt": "3", "a.zip": "3"}
        )
        assert counts(pipeline.scan(account, spec, context)) == (0, 0, 3)
        rewrite_history(pipeline, shop, keep_commits=False, files={"a.txt": f"4 {ACME}"})
        pipeline.scan(account, spec, context)  # no rule detects the value, but it is stored and found
    assert [finding["status"] for finding in pipeline.findings(account)] == ["active", "resolved", "resolved"]
    assert events(pipeline, account) == ["finding.new"] * 4 + ["finding.resolved"] * 3


def test_a_changed_rule_resolves_nothing_even_if_values_are_not_stored(
    pipeline: Pipeline, account: Account
) -> None:
    spec, shop = one_repository(pipeline, {"a.txt": f"1 {ACME}"})
    with pipeline.keep_no_secrets():
        with pipeline.open_rules(OLD_RULE) as context:
            pipeline.scan(account, spec, context)
        assert pipeline.finding(account)["secret_box"] is None
        rewrite_history(pipeline, shop, keep_commits=False, files={"a.txt": f"2 {ACME}"})
        with pipeline.open_rules(NO_RULE) as context:
            pipeline.scan(account, spec, context)
        assert pipeline.finding(account)["status"] == "active"
        with pipeline.open_rules(OLD_RULE) as context:
            pipeline.scan(account, spec, context)
            rewrite_history(pipeline, shop, keep_commits=False)
            assert counts(pipeline.scan(account, spec, context)) == (0, 0, 1)


def test_a_renamed_rule_changes_the_type_of_the_same_finding(pipeline: Pipeline, account: Account) -> None:
    spec, _ = one_repository(pipeline, {"a.txt": ACME})
    with pipeline.open_rules(OLD_RULE) as context:
        pipeline.scan(account, spec, context)
    before = pipeline.finding(account)
    with pipeline.open_rules(NEW_RULE) as context:
        assert counts(pipeline.scan(account, spec, context)) == (0, 1, 0)
    after = pipeline.finding(account)
    assert (before["pattern_secret_type"], before["rule"]) == ("acme", "acme_key")
    assert (after["id"], after["pattern_secret_type"], after["pattern_name"], after["rule"]) == (
        before["id"], "acme2", "Acme token", "acme_token",
    )  # fmt: skip
    assert events(pipeline, account) == ["finding.new"]


def test_a_credential_is_the_same_finding_when_its_companion_changes(
    pipeline: Pipeline, account: Account
) -> None:
    secret, first, second = "k8Zq2vLx9WtR4m7C1p5H" * 2, "AKIAQ4R7T2X5M3N6P7L2", "AKIAZ6Y2C5V7B3N4M2K7"
    spec, shop = one_repository(
        pipeline, {"a.txt": f"aws_access_key_id={first}\naws_secret_access_key={secret}\n"}
    )
    pipeline.scan(account, spec)
    before = pipeline.finding(account)
    shop.push({"a.txt": f"aws_access_key_id={second}\naws_secret_access_key={secret}\n"})
    pipeline.scan(account, spec)
    shop.push({"a.txt": f"aws_secret_access_key={secret}\n"})
    pipeline.scan(account, spec)
    after = {
        finding["id"]: finding
        for finding in pipeline.findings(account)
        if finding["fingerprint"] == before["fingerprint"]
    }
    assert list(after) == [before["id"]]
    assert after[before["id"]]["seen_count"] == 3


# --- excluded paths


def test_findings_in_excluded_paths_are_neither_recorded_nor_resolved(
    pipeline: Pipeline, account: Account
) -> None:
    _, shop = one_repository(pipeline, {"src/a.txt": token(1), "docs/b.txt": token(2), "src/c.md": token(3)})
    pipeline.scan(account, repository_spec(shop.full_name, "src/*", exclude=("*.md",)))
    assert [finding["file_path"] for finding in pipeline.findings(account)] == ["src/a.txt"]
    assert counts(pipeline.scan(account, repository_spec(shop.full_name))) == (2, 3, 0)
    rewrite_history(pipeline, shop, keep_commits=False)
    assert counts(pipeline.scan(account, repository_spec(shop.full_name, exclude=("docs/*",)))) == (0, 0, 2)
    assert [finding["status"] for finding in pipeline.findings(account)] == ["active", "resolved", "resolved"]
    assert counts(pipeline.scan(account, repository_spec(shop.full_name))) == (0, 0, 1)


def test_a_copy_from_an_excluded_folder_is_found(pipeline: Pipeline, account: Account) -> None:
    _, shop = one_repository(pipeline, {"docs/a.txt": KEY})
    spec = repository_spec(shop.full_name, exclude=("docs/*",))
    assert counts(pipeline.scan(account, spec)) == (0, 0, 0)
    shop.push({"docs/a.txt": KEY, "src/a.txt": KEY})
    assert counts(pipeline.scan(account, spec)) == (1, 1, 0)


# --- repeated and concurrent attempts


def test_a_source_scanned_twice_in_one_run_counts_once(pipeline: Pipeline, account: Account) -> None:
    spec, shop = one_repository(pipeline, {"a.txt": token(1), "b.txt": token(2)})
    pipeline.scan(account, spec)
    shop.push({"a.txt": token(1), "c.txt": token(3)}, parents=[])
    shop.update_api(keep_commits=False)
    run_id, (source,) = pipeline.plan(account, spec)
    pipeline.scan_source(account, run_id, source)
    first, events_then, blobs = (
        pipeline.get_run(account, run_id),
        events(pipeline, account),
        pipeline.blobs(account),
    )
    seen_counts = [finding["seen_count"] for finding in pipeline.findings(account)]
    pipeline.sql(
        "UPDATE scan_sources SET status = 'running' WHERE account_id = %s AND source = %s", account.id, source
    )
    pipeline.sql(
        """UPDATE scans SET finished_at = NULL, status = 'interrupted', open_sources = 1, findings_new = 0,
                            findings_seen = 0, findings_resolved = 0
           WHERE account_id = %s AND id = %s""",
        account.id,
        run_id,
    )
    pipeline.sql(
        "UPDATE sources SET changed = NULL WHERE account_id = %s", account.id
    )  # as if the worker had died before it saved this
    pipeline.scan_source(account, run_id, source)
    second = pipeline.get_run(account, run_id)
    assert counts(first) == counts(second) == (1, 2, 1)
    assert second.status is ScanStatus.COMPLETED
    assert [finding["seen_count"] for finding in pipeline.findings(account)] == seen_counts
    assert (events(pipeline, account), pipeline.blobs(account)) == (events_then, blobs)


def test_a_scan_cancelled_between_two_batches_continues_and_counts_once(
    pipeline: Pipeline, account: Account
) -> None:
    spec, _ = one_repository(pipeline, {f"{number}.txt": token(number) for number in range(5)})
    run_id, (source,) = pipeline.plan(account, spec)

    def cancel_second(batch: int) -> None:
        if batch == 2:
            raise asyncio.CancelledError

    with before_call(recording._record_batch, cancel_second), pytest.raises(asyncio.CancelledError):
        pipeline.scan_source(account, run_id, source, pipeline.with_limits(batch_size=2))
    halfway = pipeline.get_run(account, run_id)
    assert (halfway.status, counts(halfway)) == (ScanStatus.INTERRUPTED, (2, 2, 0))
    pipeline.scan_source(account, run_id, source)
    run = pipeline.get_run(account, run_id)
    assert (run.status, counts(run)) == (ScanStatus.COMPLETED, (5, 5, 0))
    assert [finding["seen_count"] for finding in pipeline.findings(account)] == [1] * 5
    assert events(pipeline, account) == ["finding.new"] * 5
    pipeline.assert_no_work_folder()


def test_two_concurrent_runs_of_a_source_record_one_finding(pipeline: Pipeline, account: Account) -> None:
    spec, _ = one_repository(pipeline)
    planned = [pipeline.plan(account, spec) for _ in range(2)]

    async def both() -> None:
        await asyncio.gather(
            *(scan_source(pipeline.context, account.id, run_id, names[0]) for run_id, names in planned)
        )

    pipeline.wait(both())
    assert [pipeline.get_run(account, run_id).coverage_gaps for run_id, _ in planned] == [(), ()]
    assert pipeline.finding(account)["seen_count"] == 2
    assert events(pipeline, account) == ["finding.new"]
    assert sorted(counts(pipeline.get_run(account, run_id)) for run_id, _ in planned) == [
        (0, 1, 0),
        (1, 1, 0),
    ]


# --- incremental and first runs have equal results


class History:
    """A repository history that grows and is rewritten at random."""

    def __init__(self, hosted: ServedRepository, chance: random.Random) -> None:
        self.hosted = hosted
        self.repo = hosted.repo
        self.chance = chance
        self.trees: dict[str, dict[str, str | bytes]] = {}  # commit → its files
        self.tokens = [token(f"history {number}") for number in range(4)]

    def step(self) -> None:
        """Make one random change."""
        steps = [
            self.edit,
            self.edit,
            self.copy,
            self.rename,
            self.remove,
            self.branch,
            self.merge,
            self.forced,
            self.tag,
            self.revert,
        ]
        self.chance.choice([*steps, self.forced, self.delete])()

    def commit(self, files: dict[str, str | bytes], branch: str, parents: list[str] | None = None) -> None:
        self.trees[self.repo.commit(files, branch=branch, parents=parents)] = files

    def branches(self) -> list[str]:
        return self.repo.git("for-each-ref", "--format=%(refname:short)", "refs/heads").split()

    def at(self, branch: str) -> dict[str, str | bytes]:
        return dict(self.trees.get(self.repo.tip(branch) or "", {}))

    def text(self) -> str:
        lines = [self.chance.choice(["x", "y", "", *self.tokens]) for _ in range(self.chance.randint(1, 4))]
        return "\n".join(lines) + f"\n{self.chance.randint(0, 9)}\n"

    def path(self) -> str:
        return self.chance.choice(["a.txt", "b.txt", "d/c.txt", "d/e/f!.txt"])

    def edit(self) -> None:
        branch = self.chance.choice(self.branches() or ["main"])
        self.commit(self.at(branch) | {self.path(): self.text()}, branch)

    def copy(self) -> None:
        branch = self.chance.choice(self.branches())
        files = self.at(branch)
        old = [text for tree in self.trees.values() for text in tree.values()]
        self.commit(files | {self.path(): self.chance.choice(old)}, branch)

    def rename(self) -> None:
        branch = self.chance.choice(self.branches())
        files = self.at(branch)
        if files:
            files[self.path()] = files.pop(self.chance.choice(sorted(files)))
        self.commit(files, branch)

    def remove(self) -> None:
        branch = self.chance.choice(self.branches())
        files = self.at(branch)
        if len(files) > 1:
            files.pop(self.chance.choice(sorted(files)))
        self.commit(files, branch)

    def branch(self) -> None:
        self.repo.set_ref(f"refs/heads/b{self.chance.randint(0, 3)}", self.chance.choice(sorted(self.trees)))

    def merge(self) -> None:
        into, other = self.chance.choice(self.branches()), self.chance.choice(self.branches())
        parents = [self.repo.tip(into) or "", self.repo.tip(other) or ""]
        if parents[0] != parents[1]:
            files = self.at(other) | self.at(into)
            if self.chance.random() < 0.3:  # a file that neither parent has
                files[self.path()] = self.text()
            self.commit(files, into, parents)

    def forced(self) -> None:
        branch = self.chance.choice(self.branches())
        if self.chance.random() < 0.5:
            self.repo.set_ref(f"refs/heads/{branch}", self.chance.choice(sorted(self.trees)))
        else:
            self.commit({self.path(): self.text()}, branch, parents=[])

    def tag(self) -> None:
        self.repo.set_ref(f"refs/tags/t{self.chance.randint(0, 1)}", self.chance.choice(sorted(self.trees)))

    def revert(self) -> None:
        branch = self.chance.choice(self.branches())
        self.commit(dict(self.trees[self.chance.choice(sorted(self.trees))]), branch)

    def delete(self) -> None:
        refs = self.repo.git("for-each-ref", "--format=%(refname)").split()
        self.repo.delete_ref(
            self.chance.choice([ref for ref in refs if ref != "refs/heads/main"] or ["refs/heads/none"])
        )


def places(pipeline: Pipeline, account: Account) -> set[tuple[Any, ...]]:
    """Return the places of all findings that are not resolved."""
    compared = ("file_path", "matched_text", "source_type", "line_number", "current_line", "source_url")
    return {
        tuple(finding[name] for name in compared)
        for finding in pipeline.findings(account)
        if finding["status"] != "resolved"
    }


async def scan_for_all(pipeline: Pipeline, accounts: list[Account], spec: TargetSpec) -> list[ScanRun]:
    """Run the same scan for several accounts at the same time."""
    return await asyncio.gather(
        *(
            run_in_foreground(pipeline.context, account, spec, lambda _: None, by="a test")
            for account in accounts
        )
    )


@pytest.mark.parametrize("seed", range(3))
def test_an_incremental_run_finds_the_same_as_a_first_run(
    pipeline: Pipeline, account: Account, seed: int
) -> None:
    spec, shop = one_repository(pipeline, {"a.txt": "x"})
    history = History(shop, random.Random(f"history {seed}"))
    history.trees[shop.repo.tip() or ""] = {"a.txt": "x"}
    for _ in range(6):
        for _ in range(history.chance.randint(1, 3)):
            history.step()
        shop.update_api(keep_commits=False)
        fresh = pipeline.create_account()
        run, _ = pipeline.wait(scan_for_all(pipeline, [account, fresh], spec))
        assert run.coverage_gaps == ()
        assert places(pipeline, account) == places(pipeline, fresh)
        assert pipeline.blobs(account) >= pipeline.blobs(fresh)


def test_an_incremental_run_after_a_new_history_reads_everything(
    pipeline: Pipeline, account: Account
) -> None:
    spec, shop = one_repository(pipeline, {"a.txt": KEY, "b.txt": "x"})
    pipeline.scan(account, spec)
    shop.push({"a.txt": KEY, "c.txt": "y"}, parents=[])
    assert pipeline.scan(account, spec).progress["blobs"] == 2
