"""Find secrets in the messages of commits and tags, in a first run and in later ones."""

from outcrop.domain.account import Account
from outcrop.domain.excerpt import Excerpt
from outcrop.domain.secret import Secret
from outcrop.domain.target import TargetKind, TargetSpec
from tests.support.github_host import NAME
from tests.support.pipeline import Pipeline, ServedRepository, owner_spec, token

KEY, OTHER = token("said"), token("said later")
FILES: dict[str, str | bytes] = {"a.txt": "plain\n"}


def one_repository(pipeline: Pipeline) -> tuple[TargetSpec, ServedRepository]:
    """Add an owner with one repository; return the target of the owner, and the repository."""
    owner = pipeline.add_owner()
    return owner_spec(owner), pipeline.add_repository(f"{owner}/shop", FILES)


def test_a_secret_in_a_commit_message_has_the_commits_url_and_an_excerpt(
    pipeline: Pipeline, account: Account
) -> None:
    spec, shop = one_repository(pipeline)
    commit = shop.push(FILES, message=f"try it\n\nwith {KEY}\nand so on\n")
    run = pipeline.scan(account, spec)
    found = pipeline.finding(account)
    assert (found["file_path"], found["line_number"], found["source_type"]) == (
        ".git/COMMIT_EDITMSG",
        3,
        "commit",
    )
    assert found["source_url"].endswith(f"/shop/commit/{commit}")
    assert (run.findings_new, run.progress["blobs"]) == (1, 1)
    assert pipeline.excerpt(account, found["id"]) == Excerpt(
        1, ("try it", "", f"with {Secret(KEY).masked()}", "and so on"), 2
    )


def test_a_new_commits_message_is_read_and_an_old_message_is_seen_again(
    pipeline: Pipeline, account: Account
) -> None:
    spec, shop = one_repository(pipeline)
    shop.push(FILES, message=KEY)
    pipeline.scan(account, spec)
    shop.push(FILES, message=OTHER)
    run = pipeline.scan(account, spec)
    assert (run.findings_new, run.findings_seen, run.findings_resolved) == (1, 2, 0)
    assert sorted(finding["seen_count"] for finding in pipeline.findings(account)) == [1, 2]


def test_the_finding_of_a_message_is_resolved_when_its_commit_is_dropped(
    pipeline: Pipeline, account: Account
) -> None:
    spec, shop = one_repository(pipeline)
    shop.push(FILES, message=KEY)
    pipeline.scan(account, spec)
    shop.repo.commit(FILES, parents=[], message="nothing to see")
    shop.update_api(keep_commits=False)
    run = pipeline.scan(account, spec)
    assert run.findings_resolved == 1
    assert pipeline.finding(account)["status"] == "resolved"


def test_a_message_that_is_moved_to_another_commit_is_the_same_finding(
    pipeline: Pipeline, account: Account
) -> None:
    spec, shop = one_repository(pipeline)
    shop.push(FILES, message=KEY)
    pipeline.scan(account, spec)
    shop.repo.commit(FILES, parents=[], message=f"amended\n{KEY}")
    shop.update_api(keep_commits=False)
    run = pipeline.scan(account, spec)
    assert (run.findings_new, run.findings_seen, run.findings_resolved) == (0, 1, 0)
    assert pipeline.finding(account)["status"] == "active"


def test_the_message_of_a_later_tag_is_read(pipeline: Pipeline, account: Account) -> None:
    spec, shop = one_repository(pipeline)
    pipeline.scan(account, spec)
    shop.repo.git("tag", "-a", "-m", f"release {KEY}", "v1", "main")
    shop.update_api()
    assert pipeline.scan(account, spec).findings_new == 1
    found = pipeline.finding(account)
    assert found["file_path"] == ".git/TAG_EDITMSG"
    assert found["source_url"].endswith(f"/shop/commit/{shop.repo.tip()}")
    shop.repo.delete_ref("refs/tags/v1")
    shop.update_api()
    assert pipeline.scan(account, spec).findings_resolved == 0, (
        "the host still serves the commit, so it may still serve the tag"
    )


def test_a_single_commit_is_scanned_with_its_message(pipeline: Pipeline, account: Account) -> None:
    _, shop = one_repository(pipeline)
    commit = shop.push(FILES, message=f"only this {KEY}")
    shop.push(FILES, message=OTHER)
    run = pipeline.scan(
        account, TargetSpec(TargetKind.COMMIT, f"https://{NAME}/{shop.full_name}/commit/{commit}")
    )
    found = pipeline.finding(account)
    assert (found["file_path"], found["commit_id"]) == (".git/COMMIT_EDITMSG", commit)
    assert (run.progress["commits"], run.progress["blobs"]) == (1, 0)


def test_a_secret_in_a_tagged_blob_is_found_and_resolved_when_the_tag_is_deleted(
    pipeline: Pipeline, account: Account
) -> None:
    spec, shop = one_repository(pipeline)
    pipeline.scan(account, spec)
    blob = shop.repo.git("hash-object", "-w", "--stdin", stdin=f"{KEY}\n".encode())
    shop.repo.git("tag", "key", blob)
    shop.update_api()
    assert pipeline.scan(account, spec).findings_new == 1
    found = pipeline.finding(account)
    assert (found["file_path"], found["commit_id"], found["source_url"].endswith("/shop")) == (
        "refs/tags/key",
        None,
        True,
    )
    shop.repo.delete_ref("refs/tags/key")
    shop.update_api()
    assert pipeline.scan(account, spec).findings_resolved == 1
