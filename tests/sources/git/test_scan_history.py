"""Scan the history of repositories: attribution, --since, --staged, the cache, and all layouts on disk."""

import random
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.sources.conftest import DAY, FIRST_DAY, Outcrop, Repo, Scan, listing, token, without_override
from tests.support.rulesets import cached_in

FIRST, SECOND, THIRD = token("first"), token("second"), token("third")


def day(number: int) -> datetime:
    return datetime.fromtimestamp(FIRST_DAY + DAY * number, UTC)


# Attribution


def test_a_value_is_attributed_to_the_oldest_commit_that_has_it(repo: Repo, scan: Scan) -> None:
    repo.commit({"readme": "nothing\n"})
    origin = repo.commit({"deep/settings.py": f"a = 1\nb = 2\nkey = '{FIRST}'\n"})
    repo.commit({"deep/settings.py": f"key = '{FIRST}'\nmore\n"})
    found = scan(repo.path).of(FIRST)
    assert found["commit"] == origin
    assert found["author"] == "Ada <ada@example.org>"
    assert found["committed_at"] == found["first_seen_at"] == day(1), "the author's date, not the committer's"
    assert (found["file_path"], found["line_number"], found["column"]) == ("deep/settings.py", 3, 8)
    assert found["source_type"] == "repo"
    assert not found["unreachable"]


def test_current_line_is_the_line_of_the_value_at_the_tip(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    repo.commit({"a": f"one\ntwo\n{FIRST}\n"})
    repo.commit({"a": f"one\ntwo\nthree\n{FIRST}\n"})
    found = scan(repo.path).of(FIRST)
    assert (found["line_number"], found["current_line"]) == (1, 4)


def test_a_value_in_the_root_commit_is_found(repo: Repo, scan: Scan) -> None:
    root = repo.commit({"a": FIRST})
    repo.commit({"b": "nothing"})
    assert scan(repo.path).of(FIRST)["commit"] == root


def test_a_removed_value_is_in_the_history_only(repo: Repo, scan: Scan) -> None:
    origin = repo.commit({"a": f"{FIRST}\n"})
    repo.commit({"a": "clean\n"})
    found = scan(repo.path).of(FIRST)
    assert (found["source_type"], found["commit"], found["current_line"]) == ("commit", origin, None)


def test_a_value_in_a_removed_file_is_in_the_history_only(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": f"{FIRST}\n", "b": "stays\n"})
    repo.commit(remove=("a",))
    found = scan(repo.path).of(FIRST)
    assert (found["source_type"], found["current_line"], found["file_path"]) == ("commit", None, "a")


def test_a_value_at_the_tip_of_another_branch_is_not_at_the_tip(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": "clean\n"})
    repo.git("checkout", "--quiet", "-b", "other")
    repo.commit({"a": f"first\n{FIRST}\n"})
    repo.git("checkout", "--quiet", "main")
    repo.commit({"b": "more\n"})
    found = scan(repo.path).of(FIRST)
    assert (found["source_type"], found["line_number"], found["current_line"]) == ("commit", 2, None)


def test_a_value_at_the_tip_of_a_remote_branch_is_not_at_the_tip(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": "clean\n"})
    there = repo.commit({"a": f"{FIRST}\n"})
    repo.git("update-ref", "refs/remotes/origin/main", there)
    repo.git("reset", "--quiet", "--hard", "HEAD~1")
    assert scan(repo.path).of(FIRST)["source_type"] == "commit"


@pytest.mark.parametrize("annotated", [True, False])
def test_a_value_that_only_a_tag_reaches_is_in_the_history(repo: Repo, scan: Scan, annotated: bool) -> None:
    repo.commit({"a": "clean\n"})
    tagged = repo.commit({"a": f"{FIRST}\n"})
    repo.git("tag", *(["-a", "-m", "old"] if annotated else []), "v1")
    repo.git("reset", "--quiet", "--hard", "HEAD~1")
    found = scan(repo.path).of(FIRST)
    assert (found["source_type"], found["commit"], found["unreachable"]) == ("commit", tagged, False)


def test_values_in_stashes_are_found_also_in_older_stashes(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": "clean\n"})
    for value in (FIRST, SECOND):
        repo.write("a", f"{value}\n")
        repo.git("stash", "push", "--quiet")
        repo.commits += 1
    scanned = scan(repo.path)
    for value in (FIRST, SECOND):
        found = scanned.of(value)
        assert (found["source_type"], found["file_path"], found["unreachable"]) == ("commit", "a", False)
        assert found["commit"] is not None


def test_a_value_in_a_stash_of_untracked_files_is_found(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": "clean\n"})
    repo.write("new", f"{FIRST}\n")
    repo.git("stash", "push", "--quiet", "--include-untracked")
    assert scan(repo.path).of(FIRST)["file_path"] == "new"


def test_a_value_that_a_merge_itself_adds_is_attributed_to_the_merge(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": "base\n"})
    repo.git("checkout", "--quiet", "-b", "side")
    repo.commit({"a": "side\n"})
    repo.git("checkout", "--quiet", "main")
    repo.commit({"a": "main\n"})
    repo.git("merge", "side", "--no-commit", check=False)
    merge = repo.commit({"a": f"both\n{FIRST}\n"})
    assert len(repo.git("rev-list", "--parents", "-1", "HEAD").split()) == 3
    found = scan(repo.path).of(FIRST)
    assert (found["commit"], found["line_number"], found["source_type"]) == (merge, 2, "repo")


def test_a_merge_that_takes_one_side_is_not_the_origin(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": "base\n"})
    repo.git("checkout", "--quiet", "-b", "side")
    side = repo.commit({"b": f"{FIRST}\n"})
    repo.git("checkout", "--quiet", "main")
    repo.commit({"a": "main\n"})
    repo.git("merge", "--quiet", "--no-edit", "side")
    assert scan(repo.path).of(FIRST)["commit"] == side


def test_one_value_at_two_paths_is_two_findings(repo: Repo, scan: Scan) -> None:
    first = repo.commit({"a": f"{FIRST}\n"})
    second = repo.commit({"b": f"{FIRST}\n"})
    found = scan(repo.path).findings
    assert [(f["file_path"], f["commit"], f["source_type"]) for f in found] == [
        ("a", first, "repo"),
        ("b", second, "repo"),
    ]


def test_a_value_that_was_removed_and_added_again_is_attributed_to_its_first_commit(
    repo: Repo, scan: Scan
) -> None:
    first = repo.commit({"a": f"{FIRST}\n"})
    repo.commit({"a": "clean\n"})
    repo.commit({"a": f"again\n{FIRST}\n"})
    found = scan(repo.path).of(FIRST)
    assert (found["commit"], found["line_number"], found["current_line"]) == (first, 1, 2)


def test_a_value_in_a_renamed_file_is_reported_at_both_paths(repo: Repo, scan: Scan) -> None:
    first = repo.commit({"old": f"{FIRST}\n"})
    repo.git("mv", "old", "new")
    second = repo.commit()
    found = scan(repo.path).findings
    assert [(f["file_path"], f["commit"], f["source_type"]) for f in found] == [
        ("new", second, "repo"),
        ("old", first, "commit"),
    ]


def test_a_value_in_two_branches_is_attributed_to_their_common_parent(repo: Repo, scan: Scan) -> None:
    base = repo.commit({"a": f"{FIRST}\n"})
    for name in ("x", "y"):
        repo.git("checkout", "--quiet", "-b", name, base)
        repo.commit({"a": f"{name}\n{FIRST}\n"})
    assert scan(repo.path).of(FIRST)["commit"] == base


def test_an_unreachable_blob_is_found_and_marked(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": "clean\n"})
    repo.blob(f"x\n{FIRST}\n".encode())
    found = scan(repo.path).of(FIRST)
    assert found["unreachable"]
    assert (found["file_path"], found["commit"], found["source_type"], found["line_number"]) == (
        None,
        None,
        "commit",
        2,
    )


def test_a_value_that_was_force_pushed_away_is_found_and_marked(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": "clean\n"})
    repo.commit({"a": f"{FIRST}\n"})
    repo.git("reset", "--quiet", "--hard", "HEAD~1")
    shutil.rmtree(repo.path / ".git" / "logs")
    assert scan(repo.path).of(FIRST)["unreachable"]


def test_a_tag_of_a_blob_is_scanned(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": "clean\n"})
    repo.git("update-ref", "refs/tags/key", repo.blob(f"{FIRST}\n".encode()))
    assert scan(repo.path).secrets == [FIRST]


def test_the_target_of_a_symlink_is_scanned_as_its_content(repo: Repo, scan: Scan) -> None:
    (repo.path / "link").symlink_to(f"/nowhere/{FIRST}")
    repo.commit()
    assert scan(repo.path).of(FIRST)["file_path"] == "link"


def test_the_ignore_file_at_head_is_used_in_a_bare_repository(repo: Repo, scan: Scan, tmp_path: Path) -> None:
    repo.commit({"vendor/a": f"{FIRST}\n", "b": f"{SECOND}\n", ".outcropignore": "vendor/\n"})
    repo.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
    assert scan(repo.path).secrets == [SECOND]
    assert scan(tmp_path / "bare.git").secrets == [SECOND]


@pytest.mark.parametrize(
    ("versions", "line"),
    [("m", None), ("mm", None), ("um", 1), ("mu", 1), ("mum", 1), ("mmum", 1)],
)
def test_an_allow_mark_counts_for_the_versions_of_a_line_that_have_it(
    repo: Repo, scan: Scan, tmp_path: Path, versions: str, line: int | None
) -> None:
    commits = [
        repo.commit(
            {"a": f"{FIRST} # outcrop:allow\n{number}\n" if version == "m" else f"{FIRST}\n{number}\n"}
        )
        for number, version in enumerate(versions)
    ]
    for _ in range(3):  # the second and third time with the cache
        scanned = scan(repo.path, cache=tmp_path / "cache")
        assert [finding["commit"] for finding in scanned.findings] == (
            [commits[versions.index("u")]] if line else []
        )
        assert [finding["current_line"] for finding in scanned.findings] == ([1] if line else [])


def test_a_value_whose_allow_mark_is_removed_is_new(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": f"{FIRST} # outcrop:allow\n{SECOND}\n"})
    repo.write("a", f"{FIRST}\n{SECOND}\n")
    repo.git("add", "a")
    assert scan(repo.path, staged=True).secrets == [FIRST]
    repo.commit()
    assert scan(repo.path, since="HEAD~1").secrets == [FIRST]


# --since


@pytest.fixture
def history(repo: Repo) -> Repo:
    """Three commits with a value each, and a branch at the first."""
    repo.commit({"a": f"{FIRST}\n"})
    repo.git("branch", "start")
    repo.git("tag", "-a", "-m", "tagged", "v1")
    repo.commit({"b": f"{SECOND}\n"})
    repo.commit({"c": f"{THIRD}\n", "a": f"moved\n{FIRST}\n"})
    return repo


@pytest.mark.parametrize(
    "revision",
    [
        "start",
        "refs/heads/start",
        "heads/start",
        "v1",
        "HEAD~2",
        "HEAD^^",
        "HEAD~1^",
        "main~2",
        "@~2",
        "short",
    ],
)
def test_since_accepts_ref_names_ancestors_and_short_ids(history: Repo, scan: Scan, revision: str) -> None:
    since = history.git("rev-parse", "--short=7", "start") if revision == "short" else revision
    scanned = scan(history.path, since=since)
    assert scanned.secrets == [SECOND, THIRD], "what the first commit had is not new, though its line moved"
    assert scanned.gaps == []


def test_since_scans_up_to_every_ref_if_head_has_no_commit(history: Repo, scan: Scan) -> None:
    first = history.git("rev-list", "--max-parents=0", "main")
    secrets = scan(history.path, since=first).secrets
    history.git("symbolic-ref", "HEAD", "refs/heads/none")
    assert scan(history.path, since=first).secrets == secrets != []


def test_since_head_finds_nothing(history: Repo, scan: Scan) -> None:
    assert scan(history.path, since="HEAD").findings == []


def test_since_reports_a_value_that_was_added_and_removed_again(history: Repo, scan: Scan) -> None:
    history.commit({"b": "clean\n"})
    found = scan(history.path, since="start").of(SECOND)
    assert (found["source_type"], found["current_line"]) == ("commit", None)


@pytest.mark.parametrize(
    "revision", ["nothing", "HEAD~99", "0123456789", "--all", "main..start", "HEAD^{tree}", "~1", "\n", "a b"]
)
def test_since_rejects_a_text_that_is_no_revision(history: Repo, scan: Scan, revision: str) -> None:
    scanned = scan(history.path, since=revision)
    assert scanned.findings == []
    assert [("no such revision" in failure) for failure in scanned.report.failures] == [True]


@pytest.mark.parametrize("of", ["HEAD:a", "HEAD^{tree}", "1234567890" * 4])
def test_since_rejects_a_ref_to_an_object_that_is_no_commit(history: Repo, scan: Scan, of: str) -> None:
    """Compared with a tree nothing would be new, compared with a blob everything."""
    (history.path / ".git" / "refs" / "tags" / "odd").write_text(
        f"{of if of.isdigit() else history.git('rev-parse', of)}\n"
    )
    scanned = scan(history.path, since="odd")
    assert (scanned.findings, scanned.report.failures) == ([], ["--since odd: there is no such revision"])


def test_a_wrong_revision_is_exit_code_2_and_an_error_on_one_line(history: Repo, outcrop: Outcrop) -> None:
    ran = outcrop("scan", "--json", "--since", "no\nthing", history.path)
    assert ran.code == 2
    assert ran.findings == []
    assert ran.err == "outcrop: --since no\\nthing: there is no such revision\n"


def test_a_submodule_is_no_gap_with_since(history: Repo, scan: Scan, tmp_path: Path) -> None:
    inner = Repo(tmp_path / "inner")
    inner.commit({"x": "clean\n"})
    history.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.path), "sub")
    history.commit({"d": f"{token('fourth')}\n"})
    scanned = scan(history.path, since="HEAD~1")
    assert scanned.secrets == [token("fourth")]
    assert scanned.gaps == []


# Values that are not new


def _list_reported_paths(repo: Repo, scan: Scan, *, by: str) -> list[str]:
    """Return the paths of the findings in staged files, before (`staged`) or after (`since`) their commit."""
    if by == "since":
        base = repo.git("rev-parse", "HEAD")
        repo.commit()
    scanned = scan(repo.path, staged=True) if by == "staged" else scan(repo.path, since=base)
    assert scanned.gaps == []
    return [finding["file_path"] for finding in scanned.findings]


@pytest.mark.parametrize("by", ["staged", "since"])
def test_a_copy_is_new_though_another_changed_file_had_the_value(repo: Repo, scan: Scan, by: str) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    repo.write("a", f"changed\n{FIRST}\n")
    repo.write("public/b", f"{FIRST}\n")
    repo.git("add", "--all")
    assert _list_reported_paths(repo, scan, by=by) == ["public/b"]


@pytest.mark.parametrize("by", ["staged", "since"])
@pytest.mark.parametrize("more", ["", "changed\n"])
def test_a_value_that_moved_with_its_file_is_not_new(repo: Repo, scan: Scan, by: str, more: str) -> None:
    repo.commit({"old": f"{FIRST}\n"})
    repo.git("mv", "old", "new")
    repo.write("new", f"{more}{FIRST}\n")
    repo.git("add", "--all")
    assert _list_reported_paths(repo, scan, by=by) == []


@pytest.mark.parametrize("by", ["staged", "since"])
def test_a_copy_is_new_though_its_file_has_moved(repo: Repo, scan: Scan, by: str) -> None:
    repo.commit({"old": f"{FIRST}\n"})
    repo.git("mv", "old", "new")
    repo.write("copy", f"and\n{FIRST}\n")
    repo.git("add", "--all")
    assert _list_reported_paths(repo, scan, by=by) == ["copy"]


@pytest.mark.parametrize("by", ["staged", "since"])
def test_a_value_is_new_if_the_deleted_file_had_another_value(repo: Repo, scan: Scan, by: str) -> None:
    repo.commit({"old": f"{SECOND}\n", "kept": f"{FIRST}\n"})
    repo.write("new", f"{FIRST}\n")
    (repo.path / "old").unlink()
    repo.git("add", "--all")
    assert _list_reported_paths(repo, scan, by=by) == ["new"]


def test_since_follows_a_file_that_moves_twice(repo: Repo, scan: Scan) -> None:
    base = repo.commit({"1": f"{FIRST}\n", "x": "clean\n"})
    for number in (1, 2):
        repo.git("mv", str(number), str(number + 1))
        repo.commit({"x": f"{number}\n"})
    assert scan(repo.path, since=base).findings == []


def test_since_reports_all_paths_of_a_new_value_that_moved(repo: Repo, scan: Scan) -> None:
    base = repo.commit({"x": "clean\n"})
    repo.commit({"old": f"{FIRST}\n"})
    repo.git("mv", "old", "new")
    repo.commit()
    found = scan(repo.path, since=base).findings
    assert [(f["file_path"], f["source_type"]) for f in found] == [("new", "repo"), ("old", "commit")]


def test_since_follows_a_file_that_a_merge_moved(repo: Repo, scan: Scan) -> None:
    base = repo.commit({"old": f"{FIRST}\n"})
    repo.git("checkout", "--quiet", "-b", "side")
    repo.commit({"b": "clean\n"})
    repo.git("checkout", "--quiet", "main")
    repo.commit({"c": "clean\n"})
    repo.git("merge", "--quiet", "--no-commit", "--no-ff", "side")
    repo.git("mv", "old", "new")
    repo.commit()
    assert repo.git("rev-list", "--count", "--merges", "HEAD") == "1"
    assert scan(repo.path, since=base).findings == []


# --staged


def test_staged_finds_a_new_value(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": "clean\n"})
    repo.write("a", f"one\n  {FIRST}\n")
    repo.git("add", "a")
    repo.write("a", "not staged any more\n")
    found = scan(repo.path, staged=True).of(FIRST)
    assert (found["file_path"], found["line_number"], found["column"]) == ("a", 2, 3)
    assert (found["source_type"], found["commit"]) == ("repo", None)


def test_staged_does_not_report_values_that_the_file_has_in_head(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    repo.write("a", f"moved\n{FIRST}\n{SECOND}\n")
    repo.git("add", "a")
    assert scan(repo.path, staged=True).secrets == [SECOND]


def test_staged_does_not_scan_files_that_are_not_staged(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    repo.write("b", f"{SECOND}\n")
    assert scan(repo.path, staged=True).findings == []


@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_staged_works_before_the_first_commit(tmp_path: Path, scan: Scan, kind: str) -> None:
    repo = Repo(tmp_path / "new", f"--object-format={kind}")
    repo.write("a", f"{FIRST}\n")
    repo.git("add", "a")
    assert scan(repo.path, staged=True).secrets == [FIRST]


def test_the_exit_code_is_0_without_staged_values_and_1_with_them(repo: Repo, outcrop: Outcrop) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    assert outcrop("scan", "--staged", repo.path).code == 0
    repo.write("b", f"{SECOND}\n")
    repo.git("add", "b")
    assert outcrop("scan", "--staged", repo.path).code == 1


def test_the_index_of_another_repository_is_not_read(repo: Repo, outcrop: Outcrop, tmp_path: Path) -> None:
    other = Repo(tmp_path / "other")
    other.commit({"c": "clean\n"})
    repo.commit({"a": "clean\n"})
    repo.write("a", f"{FIRST}\n")
    repo.git("add", "a")
    for named in (other.path / ".git" / "index", "/nonexistent", ""):
        ran = outcrop("scan", "--json", "--staged", repo.path, GIT_INDEX_FILE=str(named))
        assert [finding["file_path"] for finding in ran.findings] == ["a"]


def test_a_submodule_is_no_gap_with_staged(repo: Repo, scan: Scan, tmp_path: Path) -> None:
    inner = Repo(tmp_path / "inner")
    inner.commit({"x": "clean\n"})
    repo.commit({"a": "clean\n"})
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.path), "sub")
    repo.write("b", f"{FIRST}\n")
    repo.git("add", "b")
    scanned = scan(repo.path, staged=True)
    assert scanned.secrets == [FIRST]
    assert scanned.gaps == []


def test_staged_works_with_a_split_index(repo: Repo, scan: Scan) -> None:
    repo.commit({f"f{number}": "clean\n" for number in range(20)})
    repo.git("update-index", "--split-index")
    repo.write("f3", f"{FIRST}\n")
    repo.git("add", "f3")
    assert list((repo.path / ".git").glob("sharedindex.*"))
    assert scan(repo.path, staged=True).secrets == [FIRST]


def test_staged_works_in_a_conflict(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": "base\n"})
    repo.git("checkout", "--quiet", "-b", "side")
    repo.commit({"a": "side\n"})
    repo.git("checkout", "--quiet", "main")
    repo.commit({"a": "main\n"})
    repo.git("merge", "side", check=False)
    repo.write("b", f"{FIRST}\n")
    repo.git("add", "b")
    assert scan(repo.path, staged=True).secrets == [FIRST]


@pytest.mark.parametrize("commit", [["-a"], ["a"], ["--include", "a"]], ids=["all", "only", "include"])
@pytest.mark.parametrize("where", ["repo", "tree", "repo/sub"])
def test_a_hook_scans_files_that_are_committed_without_being_staged(
    repo: Repo, command: tuple[list[str], dict[str, str]], tmp_path: Path, commit: list[str], where: str
) -> None:
    """For such a commit git creates another index, and passes its path to the hooks."""
    repo.commit({"a": "clean\n", "sub/b": "clean\n"})
    repo.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "tree"))
    program, environment = command
    hook = repo.path / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(
        f"#!/bin/sh\nexport XDG_CACHE_HOME={environment['XDG_CACHE_HOME']}\n"
        f"{' '.join(program)} scan --staged --no-validate >&2\n"
    )
    hook.chmod(0o755)
    top = tmp_path / where.partition("/")[0]
    (top / "a").write_text(f"{FIRST}\n")
    arguments = [part if part != "a" else f"{top}/a" for part in commit]
    git = ["git", "-C", str(tmp_path / where), "commit", "--quiet", "-m", "x", *arguments]
    ran = subprocess.run(git, env=repo.environment(), capture_output=True, check=False)
    assert ran.returncode == 1
    assert b" a:1 " in ran.stderr
    (top / "a").write_text("still clean\n")
    assert subprocess.run(git, env=repo.environment(), capture_output=True, check=False).returncode == 0


def test_an_index_without_read_permission_is_an_error(repo: Repo, outcrop: Outcrop) -> None:
    repo.commit({"a": "clean\n"})
    (repo.path / ".git" / "index").chmod(0)
    ran = outcrop("scan", "--staged", "--no-validate", repo.path, before=without_override)
    assert (ran.code, ran.err) == (
        2,
        "outcrop: --staged: the index, or the commit that HEAD names, cannot be read\n",
    )


def test_staged_reports_why_everything_is_new_if_refs_cannot_be_read(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    (repo.path / ".git" / "reftable").mkdir()
    (repo.path / ".git" / "HEAD").write_text("ref: refs/heads/.invalid\n")
    scanned = scan(repo.path, staged=True)
    assert scanned.secrets == [FIRST]
    assert scanned.has_gap("reftable")


def test_a_damaged_index_is_an_error(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": "clean\n"})
    repo.write("b", f"{FIRST}\n")
    repo.git("add", "b")
    (repo.path / ".git" / "index").write_bytes(b"DIRC nonsense")
    assert len(scan(repo.path, staged=True).report.failures) == 1


def test_staged_with_a_missing_head_commit_is_an_error(repo: Repo, scan: Scan) -> None:
    head = repo.commit({"a": "clean\n"})
    repo.write("b", f"{FIRST}\n")
    repo.git("add", "b")
    repo.loose(head).unlink()
    scanned = scan(repo.path, staged=True)
    assert scanned.secrets == [FIRST] or len(scanned.report.failures) == 1


# Layouts of repositories


def test_a_worktree_has_the_whole_history_and_its_own_index(repo: Repo, scan: Scan, tmp_path: Path) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    repo.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "tree"))
    side = Repo.__new__(Repo)
    side.path, side.commits = tmp_path / "tree", 1
    side.commit({"b": f"{SECOND}\n"})
    side.write("c", f"{THIRD}\n")
    side.git("add", "c")
    assert (side.path / ".git").is_file()
    scanned = scan(side.path)
    assert [scanned.of(value)["source_type"] for value in (FIRST, SECOND)] == ["repo", "repo"]
    assert scan(side.path, staged=True).secrets == [THIRD]
    assert scan(repo.path, staged=True).secrets == []


def test_the_head_of_another_worktree_is_reachable(repo: Repo, scan: Scan, tmp_path: Path) -> None:
    repo.commit({"a": "clean\n"})
    repo.git("worktree", "add", "--quiet", "--detach", str(tmp_path / "tree"))
    (tmp_path / "tree" / "b").write_text(f"{FIRST}\n")
    for command in (["add", "b"], ["commit", "--quiet", "-m", "detached"]):
        repo.git("-C", str(tmp_path / "tree"), *command)
    found = scan(repo.path).of(FIRST)
    assert (found["file_path"], found["source_type"], found["unreachable"]) == ("b", "commit", False)
    assert scan(tmp_path / "tree").of(FIRST)["source_type"] == "repo"


def test_a_submodule_folder_is_a_repository_of_its_own(repo: Repo, scan: Scan, tmp_path: Path) -> None:
    inner = Repo(tmp_path / "inner")
    inner.commit({"x": f"{FIRST}\n"})
    repo.commit({"a": f"{SECOND}\n"})
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.path), "sub")
    assert (repo.path / "sub" / ".git").is_file()
    scanned = scan(repo.path / "sub")
    assert scanned.secrets == [FIRST]
    assert scanned.of(FIRST)["source_type"] == "repo"


def test_a_bare_repository_is_scanned(repo: Repo, scan: Scan, tmp_path: Path) -> None:
    origin = repo.commit({"a": f"{FIRST}\n"})
    repo.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
    assert scan(tmp_path / "bare.git").of(FIRST)["commit"] == origin


def test_objects_in_alternates_are_scanned(repo: Repo, scan: Scan, tmp_path: Path) -> None:
    origin = repo.commit({"a": f"{FIRST}\n"})
    repo.git("clone", "--quiet", "--shared", ".", str(tmp_path / "one"))
    repo.git("clone", "--quiet", "--shared", str(tmp_path / "one"), str(tmp_path / "two"))
    scanned = scan(tmp_path / "two")
    assert scanned.of(FIRST)["commit"] == origin
    assert scanned.gaps == []


def test_a_shallow_clone_is_scanned_with_a_gap(repo: Repo, scan: Scan, tmp_path: Path) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    tip = repo.commit({"b": f"{SECOND}\n"})
    repo.git("clone", "--quiet", "--depth=1", repo.path.as_uri(), str(tmp_path / "shallow"))
    scanned = scan(tmp_path / "shallow")
    assert {finding["commit"] for finding in scanned.findings} == {tip}
    assert sorted(scanned.secrets) == sorted([FIRST, SECOND])
    assert scanned.has_gap("shallow")


def test_a_partial_clone_is_scanned_with_a_gap(repo: Repo, scan: Scan, tmp_path: Path) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    repo.commit({"a": f"{SECOND}\n"})
    repo.git("config", "uploadpack.allowFilter", "true")
    repo.git("clone", "--quiet", "--filter=blob:none", repo.path.as_uri(), str(tmp_path / "partial"))
    scanned = scan(tmp_path / "partial")
    assert scanned.secrets == [SECOND], "the first one was never fetched"
    assert scanned.has_gap("partial")


def test_a_sha256_repository_is_scanned(tmp_path: Path, scan: Scan) -> None:
    repo = Repo(tmp_path / "new", "--object-format=sha256")
    origin = repo.commit({"a": f"{FIRST}\n"})
    repo.blob(SECOND.encode())
    scanned = scan(repo.path)
    assert len(origin) == 64
    assert scanned.of(FIRST)["commit"] == origin
    assert scanned.of(SECOND)["unreachable"]
    assert scan(repo.path, since="HEAD").findings == []


def test_objects_of_a_sha256_repository_without_refs_are_scanned(tmp_path: Path, scan: Scan) -> None:
    repo = Repo(tmp_path / "new", "--object-format=sha256")
    repo.blob(FIRST.encode())
    assert scan(repo.path).secrets == [FIRST]
    repo.git("repack", "--quiet", "-a", "-d", "-k")
    pack = repo.git(
        "pack-objects",
        "--quiet",
        str(repo.path / ".git/objects/pack/pack"),
        given=repo.git("hash-object", "--stdin", given=FIRST.encode()).encode() + b"\n",
    )
    assert len(pack) == 64
    repo.git("prune-packed")
    assert scan(repo.path).secrets == [FIRST]


def test_an_empty_repository_has_no_findings(
    repo: Repo, outcrop: Outcrop, scan: Scan, tmp_path: Path
) -> None:
    ran = outcrop("scan", "--json", repo.path)
    assert (ran.code, ran.findings, ran.err) == (0, [], "")
    repo.git("init", "--quiet", "--bare", str(tmp_path / "bare.git"))
    assert scan(tmp_path / "bare.git").gaps == []


def test_a_head_without_a_commit_hides_nothing(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    repo.git("symbolic-ref", "HEAD", "refs/heads/unborn")
    scanned = scan(repo.path)
    assert scanned.of(FIRST)["source_type"] == "commit"
    (repo.path / ".git" / "HEAD").write_text("nonsense\n")
    assert scan(repo.path).of(FIRST)["source_type"] == "commit"


@pytest.mark.parametrize("names", [["dev", "master"], ["a", "b", "c"], ["c", "b", "a"]])
def test_a_head_behind_several_symbolic_refs_is_a_tip(repo: Repo, scan: Scan, names: list[str]) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    for name, to in zip(["HEAD", *(f"refs/heads/{name}" for name in names)], [*names, "main"], strict=True):
        (repo.path / ".git" / name).write_text(f"ref: refs/heads/{to}\n")
    assert repo.git("rev-parse", "HEAD") == repo.git("rev-parse", "main")
    assert scan(repo.path).of(FIRST)["source_type"] == "repo"
    assert scan(repo.path, staged=True).findings == []


def test_symbolic_refs_in_a_cycle_have_no_commit(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    for name, to in [("HEAD", "a"), ("refs/heads/a", "b"), ("refs/heads/b", "a")]:
        (repo.path / ".git" / name).write_text(f"ref: refs/heads/{to}\n")
    assert scan(repo.path).of(FIRST)["source_type"] == "commit"


def test_a_detached_head_is_a_tip(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": "clean\n"})
    repo.git("checkout", "--quiet", "--detach")
    origin = repo.commit({"a": f"{FIRST}\n"})
    found = scan(repo.path).of(FIRST)
    assert (found["source_type"], found["commit"]) == ("repo", origin)


def test_packed_and_loose_objects_have_the_same_findings(repo: Repo, scan: Scan) -> None:
    for number in range(5):
        repo.commit({"a": f"{number}\n" * number + f"{FIRST}\n", f"f{number}": token(str(number))})
    loose = scan(repo.path).findings
    repo.git("gc", "--quiet")
    assert scan(repo.path).findings == loose


# The cache


def _change_at_random(repo: Repo, chance: random.Random) -> None:
    """Change a repository at random: commit, branch, checkout, reset, delete a branch, or collect garbage."""
    branches = repo.git("for-each-ref", "--format=%(refname:short)", "refs/heads").split()
    action = chance.randrange(8) if branches else 0
    if action <= 2:
        name = f"f{chance.randrange(4)}"
        lines = [
            token(str(chance.randrange(6))) if chance.random() < 0.4 else str(chance.randrange(99))
            for _ in range(5)
        ]
        repo.commit({name: "\n".join(lines)})
    elif action == 3:
        repo.git("checkout", "--quiet", "-B", f"b{chance.randrange(3)}")
    elif action == 4:
        repo.git("checkout", "--quiet", chance.choice(branches), check=False)
    elif action == 5:
        repo.git("reset", "--quiet", "--hard", "HEAD~1", check=False)
    elif action == 6:
        repo.git("checkout", "--quiet", "--detach")
        repo.git("branch", "--quiet", "-D", chance.choice(branches), check=False)
    else:
        repo.git("reflog", "expire", "--expire=now", "--all")
        repo.git("gc", "--quiet", "--prune=now")


@pytest.mark.parametrize("seed", range(5))
def test_a_scan_with_the_cache_equals_a_full_scan(tmp_path: Path, scan: Scan, seed: int) -> None:
    chance = random.Random(seed)
    repo = Repo(tmp_path / "repo")
    cache = tmp_path / "cache"
    for _ in range(3):
        for _ in range(chance.randrange(1, 6)):
            _change_at_random(repo, chance)
        cached, full = scan(repo.path, cache=cache), scan(repo.path)
        assert cached.findings == full.findings
        assert cached.gaps == full.gaps


def test_a_rescan_of_an_unchanged_repository_reports_the_same_gaps(
    repo: Repo, scan: Scan, tmp_path: Path
) -> None:
    lost = repo.commit({"a": f"{FIRST}\n"})
    repo.commit({"b": f"{SECOND}\n"})
    repo.loose(lost).unlink()
    first, second = (scan(repo.path, cache=tmp_path / "cache") for _ in range(2))
    assert first.gaps == second.gaps != []
    assert first.findings == second.findings


def test_the_cache_contains_no_credential(repo: Repo, outcrop: Outcrop, tmp_path: Path) -> None:
    repo.commit({"a": f"{FIRST}\n", "b": f"password = '{SECOND}'\n"})
    home = cached_in(tmp_path / "home")
    for _ in range(2):
        assert outcrop("scan", repo.path, XDG_CACHE_HOME=str(home)).code == 1
    files = [file for file in home.rglob("*") if file.is_file()]
    assert any(file.parent.name == "seen" for file in files)
    for file in files:
        raw = file.read_bytes()
        for value in (FIRST, SECOND):
            assert value.encode() not in raw
            assert value.encode().hex().encode() not in raw
            assert value[4:20].encode() not in raw


def test_a_damaged_cache_is_ignored(repo: Repo, scan: Scan, tmp_path: Path) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    expected = scan(repo.path, cache=tmp_path / "cache").findings
    (file,) = (tmp_path / "cache" / "seen").iterdir()
    for raw in (
        b"",
        b"nonsense",
        b"[]\n",
        b"{}\n",
        b'{"with_hits": [1], "objects": "", "refs": "", "tips": [], "places": [], "width": 20}\n',
        b"\0" * 500,
    ):
        file.write_bytes(raw)
        assert scan(repo.path, cache=tmp_path / "cache").findings == expected


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-1],
        lambda raw: raw + b"x",
        lambda raw: raw.replace(b'"width":20', b'"width":-20'),
        lambda raw: raw.replace(b'"width":20', b'"width":0'),
    ],
)
def test_a_damaged_list_of_scanned_objects_makes_no_object_count_as_missing(
    repo: Repo, scan: Scan, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    repo.commit({"a": f"{FIRST}\n", "b": "nothing\n"})
    scan(repo.path, cache=tmp_path / "cache")
    (file,) = (tmp_path / "cache" / "seen").iterdir()
    file.write_bytes(damage(file.read_bytes()))
    repo.git("branch", "another")  # no new object, but hits are attributed again
    rescanned = scan(repo.path, cache=tmp_path / "cache")
    assert (len(rescanned.findings), rescanned.gaps) == (1, [])


def test_the_output_is_the_same_with_any_number_of_processes(repo: Repo, outcrop: Outcrop) -> None:
    for number in range(12):
        repo.commit(
            {
                f"{number % 5}/f": "\n".join(token(f"{number} {i}") for i in range(3)),
                "same": f"{number}\n{FIRST}\n",
            }
        )
    runs = [
        outcrop("scan", "--json", "--no-validate", "--no-cache", "--jobs", jobs, repo.path)
        for jobs in ("1", "4", "4")
    ]
    assert {run.code for run in runs} == {1}
    assert len({run.out for run in runs}) == 1
    assert len(runs[0].findings) == 37


def test_a_scan_changes_nothing_in_the_repository(history: Repo, outcrop: Outcrop) -> None:
    before = listing(history.path)
    outcrop("scan", history.path)
    outcrop("scan", "--since", "HEAD~1", history.path)
    outcrop("scan", "--staged", history.path)
    assert listing(history.path) == before


def test_a_folder_inside_a_working_tree_is_no_repository(repo: Repo, outcrop: Outcrop) -> None:
    repo.commit({"deep/a": f"{FIRST}\n"})
    ran = outcrop("scan", "--json", "--type", "git", repo.path / "deep")
    assert ran.code == 2
    assert ran.err == f"outcrop: {repo.path / 'deep'}: is not a git repository\n"


def test_a_file_that_was_deleted_is_no_gap(repo: Repo, scan: Scan) -> None:
    base = repo.commit({"a.txt": "x", "b.txt": "y"})
    repo.commit({"c.txt": token("kept")}, remove=("a.txt",))
    found = scan(repo.path, since=base)
    assert (found.secrets, found.gaps) == ([token("kept")], [])


def test_the_cache_of_a_repository_with_another_object_format_is_not_used(tmp_path: Path, scan: Scan) -> None:
    cache = tmp_path / "cache"
    for kind, value in (("sha1", FIRST), ("sha256", SECOND), ("sha1", FIRST)):
        shutil.rmtree(tmp_path / "repo", ignore_errors=True)
        repo = Repo(tmp_path / "repo", f"--object-format={kind}")
        repo.commit({"a": f"{value}\n", "b": kind})
        for _ in range(2):
            cached, full = scan(repo.path, cache=cache), scan(repo.path)
            assert len(cached.findings) == 1
            assert cached.findings == full.findings
            assert cached.gaps == full.gaps == []
        repo.commit({"c": f"{value}\nmore\n"})
        assert scan(repo.path, cache=cache).findings == scan(repo.path).findings
