"""Two releases scan one source: a lower release never overwrites the result of a higher one."""

from dataclasses import replace
from typing import Any

from outcrop.domain.account import Account
from outcrop.domain.release import parse_release
from outcrop.domain.target import TargetSpec
from outcrop.services.pipeline.score import rescore_outdated
from tests.services.pipeline.test_pipeline_rescan import (
    ACME,
    NEW_RULE,
    NO_RULE,
    OLD_RULE,
    counts,
    events,
    one_repository,
    rewrite_history,
)
from tests.support.pipeline import Pipeline, ServedRepository, token
from tests.support.site_runs import linked, served, site_spec
from tests.support.web_host import page

LOWER, HIGHER = (0, 9, 10), (0, 10, 0)  # as texts they would compare the other way round
RESULT = (
    "rule", "pattern_name", "pattern_secret_type", "composite_score", "score_detail", "line_number", "status",
)  # fmt: skip


def saved_scan(pipeline: Pipeline, account: Account) -> tuple[Any, ...]:
    """Return release, rules and tips of the account's only source."""
    (row,) = pipeline.sql("SELECT release, rules, tips FROM sources WHERE account_id = %s", account.id)
    return row


def result(finding: dict[str, Any]) -> list[Any]:
    """Return the columns of a finding that depend on the release that scanned it."""
    return [finding[name] for name in RESULT]


def scan(pipeline: Pipeline, account: Account, spec: TargetSpec, rules: str, release: tuple[int, ...]) -> Any:
    """Scan a target with these rules, as a program of this release does."""
    with pipeline.open_rules(rules) as context:
        return pipeline.scan(account, spec, replace(context, release=release))


def scanned_by_higher(pipeline: Pipeline, account: Account) -> tuple[TargetSpec, ServedRepository]:
    """Add a repository with one secret that the higher release has scanned."""
    spec, shop = one_repository(pipeline, {"a.txt": f"1\n{ACME}"})
    scan(pipeline, account, spec, NEW_RULE, HIGHER)
    return spec, shop


def test_a_source_records_the_release_and_the_rules_it_was_scanned_with(
    pipeline: Pipeline, account: Account
) -> None:
    spec, _ = one_repository(pipeline)
    pipeline.scan(account, spec)
    release, rules, tips = saved_scan(pipeline, account)
    assert (tuple(release), rules) == (pipeline.context.release, pipeline.context.ruleset.version)
    assert tips


def test_a_lower_release_changes_no_result_of_a_higher_one(pipeline: Pipeline, account: Account) -> None:
    spec, shop = scanned_by_higher(pipeline, account)
    saved, before = saved_scan(pipeline, account), pipeline.finding(account)
    shop.push({"a.txt": f"\n\n\n{ACME}"})
    run = scan(pipeline, account, spec, OLD_RULE, LOWER)
    assert saved_scan(pipeline, account) == saved
    assert result(pipeline.finding(account)) == result(before)
    assert [gap.why for gap in run.coverage_gaps] == [
        "scanned by release 0.10.0 before: release 0.9.10 adds findings, but changes and resolves none"
    ]


def test_a_lower_release_adds_findings_and_counts_what_it_sees(pipeline: Pipeline, account: Account) -> None:
    spec, shop = scanned_by_higher(pipeline, account)
    shop.push({"a.txt": f"1\n{ACME}", "b.txt": ACME})
    assert counts(scan(pipeline, account, spec, OLD_RULE, LOWER)) == (1, 2, 0)
    assert [finding["rule"] for finding in pipeline.findings(account)] == ["acme_token", "acme_key"]
    assert events(pipeline, account) == ["finding.new"] * 2


def test_a_lower_release_resolves_nothing_and_the_next_higher_one_does(
    pipeline: Pipeline, account: Account
) -> None:
    spec, shop = scanned_by_higher(pipeline, account)
    rewrite_history(pipeline, shop, keep_commits=False)
    assert counts(scan(pipeline, account, spec, OLD_RULE, LOWER)) == (0, 0, 0)
    assert pipeline.finding(account)["status"] == "active"
    assert counts(scan(pipeline, account, spec, NEW_RULE, HIGHER)) == (0, 0, 1)
    assert pipeline.finding(account)["status"] == "resolved"


def test_a_higher_release_sees_all_findings_after_a_lower_one(pipeline: Pipeline, account: Account) -> None:
    spec, _ = scanned_by_higher(pipeline, account)
    with pipeline.open_rules(NEW_RULE) as context:
        pipeline.scan(account, spec, replace(context, release=HIGHER))
        assert counts(scan(pipeline, account, spec, NO_RULE, LOWER)) == (0, 1, 0)
        assert counts(pipeline.scan(account, spec, replace(context, release=HIGHER))) == (0, 1, 0)
    assert pipeline.finding(account)["seen_count"] == 4


def test_within_one_release_the_later_scan_wins(pipeline: Pipeline, account: Account) -> None:
    spec, _ = scanned_by_higher(pipeline, account)
    saved = saved_scan(pipeline, account)
    scan(pipeline, account, spec, OLD_RULE, HIGHER)
    assert pipeline.finding(account)["rule"] == "acme_key"
    assert saved_scan(pipeline, account)[1] != saved[1]


def test_a_higher_release_overwrites_the_result_of_a_lower_one(pipeline: Pipeline, account: Account) -> None:
    spec, _ = one_repository(pipeline, {"a.txt": ACME})
    scan(pipeline, account, spec, OLD_RULE, LOWER)
    scan(pipeline, account, spec, NEW_RULE, HIGHER)
    assert pipeline.finding(account)["rule"] == "acme_token"
    assert tuple(saved_scan(pipeline, account)[0]) == HIGHER


def test_a_program_that_names_no_release_overwrites_no_scan_and_the_next_scan_starts_again(
    pipeline: Pipeline, account: Account
) -> None:
    spec, _ = scanned_by_higher(pipeline, account)
    saved = saved_scan(pipeline, account)
    # The statement of schema 0009, and the findings that such a program has written before it.
    pipeline.sql(
        """INSERT INTO sources (account_id, source, changed, rules, tips, scan_id, scanned_at)
           SELECT account_id, source, changed, 'old', tips, scan_id, now() FROM sources WHERE account_id = %s
           ON CONFLICT (account_id, source) DO UPDATE
           SET changed = excluded.changed, rules = excluded.rules, tips = excluded.tips,
               scan_id = excluded.scan_id, scanned_at = excluded.scanned_at""",
        account.id,
    )
    pipeline.sql("UPDATE findings SET rule = 'acme_key' WHERE account_id = %s", account.id)
    assert saved_scan(pipeline, account) == (saved[0], saved[1], b"")
    scan(pipeline, account, spec, NEW_RULE, HIGHER)
    assert pipeline.finding(account)["rule"] == "acme_token"


def test_a_site_records_its_release_and_a_lower_release_resolves_nothing(
    pipeline: Pipeline, account: Account
) -> None:
    with served(pipeline, account, {"/": linked("/p"), "/p": linked(value=token("p"))}) as runs:
        higher = replace(pipeline.context, release=HIGHER)
        runs.wait(runs.run(site_spec(), higher))
        assert saved_scan(pipeline, account) == (list(HIGHER), pipeline.context.ruleset.version, b"")
        runs.host.routes["/p"] = page("removed")
        run_id = runs.wait(runs.run(site_spec(), replace(pipeline.context, release=LOWER)))
        assert runs.finding["status"] == "active"
        assert "release 0.9.10 adds findings" in pipeline.get_run(account, run_id).coverage_gaps[-1].why
        assert tuple(saved_scan(pipeline, account)[0]) == HIGHER
        runs.wait(runs.run(site_spec(), higher))
        assert runs.finding["status"] == "resolved"


def test_a_score_of_a_higher_version_is_not_computed_again(pipeline: Pipeline, account: Account) -> None:
    spec, _ = one_repository(pipeline)
    pipeline.scan(account, spec)
    pipeline.sql(
        "UPDATE findings SET composite_score = 1, score_detail = score_detail || '{\"version\": 1000}' "
        "WHERE account_id = %s",
        account.id,
    )
    pipeline.wait(rescore_outdated(pipeline.context))
    assert pipeline.finding(account)["composite_score"] == 1


def test_releases_compare_by_their_numbers() -> None:
    assert parse_release("0.10.0") > parse_release("0.9.10")
    assert parse_release("0.3.0rc1") == (0, 3, 0)
