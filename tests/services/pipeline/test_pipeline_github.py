"""Run scans of GitHub and git targets: the sources of a target, the recorded findings, and failures."""

import base64
import contextlib
import io
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from outcrop.domain.account import Account
from outcrop.domain.events import FIELDS, EventType
from outcrop.domain.scan import ScanRun, ScanStatus
from outcrop.domain.secret import Secret
from outcrop.domain.target import TargetKind, TargetSpec
from outcrop.services.pipeline.foreground import run_in_foreground
from tests.support.github_host import Fault, error, secondary_limit
from tests.support.pipeline import (
    GIST,
    NAME,
    Pipeline,
    Repo,
    ServedRepository,
    owner_spec,
    plain_spec,
    repository_spec,
    token,
)
from tests.support.workers import until


def paths(pipeline: Pipeline, account: Account, **fields: object) -> list[str]:
    """Return the places of the findings with these fields, as repository:path."""
    return sorted(
        f"{finding['repo_full_name']}:{finding['file_path']}"
        for finding in pipeline.findings(account)
        if fields.items() <= finding.items()
    )


def has_gap(run: ScanRun, words: str) -> bool:
    """Whether a gap of the run contains these words."""
    return any(words in f"{gap.what}: {gap.why}" for gap in run.coverage_gaps)


def one_repository(
    pipeline: Pipeline, files: dict[str, str | bytes] | None = None
) -> tuple[TargetSpec, ServedRepository]:
    """Add an owner with one repository; return the target of the owner, and the repository."""
    owner = pipeline.add_owner()
    return owner_spec(owner), pipeline.add_repository(
        f"{owner}/shop", files or {"a.txt": f"x\nkey {token(1)}\n"}
    )


# --- the sources of an owner


def test_all_repositories_of_an_owner_are_scanned_except_forks_and_excluded_ones(
    pipeline: Pipeline, account: Account
) -> None:
    owner = pipeline.add_owner()
    for name, fields in {
        "shop": {},
        "copy": {"fork": True},
        "old": {"archived": True},
        "off-1": {},
        "on-2": {},
    }.items():
        pipeline.add_repository(f"{owner}/{name}", {"a.txt": token(name)}, **fields)
    pipeline.add_repository(f"{owner}/empty", size=0, pushed_at=None)
    run = pipeline.scan(account, owner_spec(owner, exclude=("OFF-*",)))
    assert paths(pipeline, account) == sorted(f"{owner}/{name}:a.txt" for name in ("shop", "old", "on-2"))
    assert (run.status, run.coverage_gaps, run.progress["targets"], run.findings_new) == (
        ScanStatus.COMPLETED,
        (),
        3,
        3,
    )
    other = pipeline.create_account()
    pipeline.scan(other, owner_spec(owner, f"{owner}/*o*", forks=True, archived=False))
    assert paths(pipeline, other) == sorted(
        f"{owner}/{name}:a.txt" for name in ("shop", "copy", "off-1", "on-2")
    )


def test_a_private_repository_is_scanned_only_with_the_targets_own_credential(
    pipeline: Pipeline, account: Account
) -> None:
    owner = pipeline.add_owner(organisation=True, members=("jo",))
    pipeline.hub.add_user("jo")
    pipeline.hub.tokens["tok-jo"] = "jo"
    pipeline.add_repository(f"{owner}/open", {"a.txt": token("open")})
    hidden = pipeline.add_repository(f"{owner}/hidden", {"a.txt": token("hidden")}, visibility="private")
    operator = replace(pipeline.context, github_token=Secret("tok-jo"))
    run = pipeline.scan(account, owner_spec(owner), operator)
    assert paths(pipeline, account) == [f"{owner}/open:a.txt"]
    assert has_gap(run, f"{owner}/hidden: is not public")
    for spec in (repository_spec(hidden.full_name), commit_spec(hidden)):
        run = pipeline.scan(account, spec, operator)
        assert has_gap(run, "is not public")
        assert len(pipeline.findings(account)) == 1
    pipeline.scan_with(account, owner_spec(owner), "tok-jo")
    assert {finding["source_visibility"] for finding in pipeline.findings(account)} == {"public", "private"}
    assert {auth for path, _, auth in pipeline.git.requests if "/hidden" in path} == {
        basic("x-access-token:tok-jo")
    }


def basic(text: str) -> str:
    """Return the header of HTTP basic authentication."""
    return "Basic " + base64.b64encode(text.encode()).decode()


def test_secret_gists_of_the_operators_login_are_not_scanned_for_an_account(
    pipeline: Pipeline, account: Account
) -> None:
    owner = pipeline.add_owner()
    pipeline.hub.tokens["tok-operator"] = owner
    gist, _ = pipeline.add_gist(owner, {"a.txt": token("secret gist")}, public=False)
    pipeline.add_gist(owner, {"a.txt": token("open gist")})
    operator = replace(pipeline.context, github_token=Secret("tok-operator"))
    run = pipeline.scan(account, owner_spec(owner, gists=True), operator)
    assert len(pipeline.findings(account)) == 1
    assert has_gap(run, "a credential of its own")
    assert gist["id"] not in str(run)  # everybody who knows the id can read the gist
    pipeline.scan_with(account, TargetSpec(TargetKind.GISTS, f"gists:{owner}"), "tok-operator")
    assert len(pipeline.findings(account)) == 2


def test_a_missing_wiki_is_not_a_gap_and_an_existing_wiki_is_scanned(
    pipeline: Pipeline, account: Account
) -> None:
    owner = pipeline.add_owner()
    pipeline.add_repository(f"{owner}/shop", {"a.txt": "x"}, has_wiki=True)
    run = pipeline.scan(account, owner_spec(owner))
    assert (run.status, run.coverage_gaps) == (ScanStatus.COMPLETED, ())
    wiki = Repo(pipeline.served / f"{owner}/shop.wiki.git")
    wiki.commit({"Home.md": f"the key is {token('wiki')}"})
    pipeline.scan(account, owner_spec(owner, wikis=False))
    assert pipeline.findings(account) == []
    pipeline.scan(account, owner_spec(owner))
    found = pipeline.finding(account)
    assert (found["source_url"], found["repo_full_name"]) == (
        f"https://github.example/{owner}/shop/wiki",
        f"{owner}/shop",
    )
    pipeline.hub.repos[f"{owner}/shop"] |= {"visibility": "internal", "private": False}
    pipeline.scan_with(account, owner_spec(owner), token_of(pipeline, owner))
    assert (
        pipeline.finding(account)["source_visibility"] == "internal"
    )  # although no ref of the wiki has changed
    wiki.path.rename(wiki.path.with_suffix(".away"))
    run = pipeline.scan(account, owner_spec(owner))
    assert has_gap(run, "cannot be cloned") or has_gap(run, "is not public")


def token_of(pipeline: Pipeline, login: str) -> str:
    """Return an API token of this user."""
    pipeline.hub.tokens[f"tok-{login}"] = login
    return f"tok-{login}"


def test_gists_of_an_owner_and_a_single_gist_are_scanned(pipeline: Pipeline, account: Account) -> None:
    owner = pipeline.add_owner()
    gist, repo = pipeline.add_gist(owner, {"a.txt": f"\n\n{token('gist')}"})
    pipeline.scan(account, owner_spec(owner))
    assert pipeline.findings(account) == []
    pipeline.scan(account, owner_spec(owner, gists=True))
    found = pipeline.finding(account)
    assert (found["source_type"], found["source_visibility"], found["line_number"]) == ("gist", "public", 3)
    assert (found["source_url"], found["repo_full_name"]) == (gist["html_url"], f"{owner}/{gist['id']}")
    run = pipeline.scan(account, TargetSpec(TargetKind.GIST, f"https://{GIST}/{gist['id']}"))
    assert (run.findings_new, run.findings_seen, run.progress["blobs"]) == (0, 1, 0)
    repo.commit({"a.txt": "x"}, parents=[])
    gist["updated_at"] = "2026-01-01T00:00:00Z"
    run = pipeline.scan(account, TargetSpec(TargetKind.GISTS, f"gists:{owner}"))
    assert (run.findings_resolved, pipeline.finding(account)["status"]) == (1, "resolved")


# --- the recorded findings


def test_a_finding_has_the_line_in_the_oldest_commit_and_the_line_at_the_tip(
    pipeline: Pipeline, account: Account
) -> None:
    spec, shop = one_repository(pipeline, {"a.txt": "x"})
    first = shop.push({"a.txt": f"x\n{token(1)}\n", "gone/b.txt": token(2)})
    shop.push({"a.txt": f"x\ny\nz\n{token(1)}\n{token(1)}\n"})
    shop.push({"c.txt": f"\n{token(3)}"}, branch="side")
    run = pipeline.scan(account, spec)
    at_tip, at_side, removed = pipeline.findings(account)
    address = f"https://github.example/{shop.full_name}/blob"
    assert (at_tip["source_type"], at_tip["source_url"]) == ("repo", f"{address}/{first}/a.txt#L2")
    assert (at_tip["line_number"], at_tip["current_line"], at_tip["commit_id"]) == (2, 4, first)
    assert (at_tip["lines"], at_tip["lines_total"], at_tip["current_lines"]) == ([2], 1, [4, 5])
    assert (removed["lines"], removed["current_lines"]) == ([1], [])
    assert (at_tip["context"], at_tip["detection_confidence"]) == ("production", "high")
    assert (removed["source_type"], removed["current_line"]) == ("commit", None)
    assert removed["source_url"] == f"{address}/{first}/gone/b.txt#L1"
    assert (at_side["source_type"], at_side["line_number"], at_side["current_line"]) == ("commit", 2, None)
    assert {finding["repo_full_name"] for finding in (at_tip, at_side, removed)} == {shop.full_name}
    assert {finding["matched_text"] for finding in (at_tip,)} == {f"ghp_********{token(1)[-4:]}"}
    size = sum(
        len(text)
        for text in ("x", f"x\n{token(1)}\n{token(1)}\n", token(2), f"x\ny\nz\n{token(1)}\n", f"\n{token(3)}")
    )
    assert run.progress == {"targets": 1, "commits": 4, "blobs": 5, "bytes": size, "pages": 0}
    assert (run.findings_new, run.findings_seen, run.findings_resolved, run.error) == (3, 3, 0, None)


def test_a_new_finding_has_an_event_with_the_specified_fields_and_an_audit_line(
    pipeline: Pipeline, account: Account
) -> None:
    spec, _ = one_repository(pipeline)
    run = pipeline.scan(account, spec)
    found = pipeline.finding(account)
    ((event, finding_id, body),) = pipeline.sql(
        "SELECT event, finding_id, finding FROM outbox WHERE account_id = %s", account.id
    )
    assert (event, finding_id) == ("finding.new", found["id"])
    assert set(body) == set(FIELDS[EventType.NEW])
    assert body["source_url"] == found["source_url"]
    assert (body["validation_status"], body["status"], body["seen_count"]) == ("unvalidated", "active", 1)
    assert body["composite_score"] == found["composite_score"] > 0
    lines = pipeline.sql(
        "SELECT actor, action, target, outcome, detail FROM audit WHERE account_id = %s ORDER BY id OFFSET 1",
        account.id,
    )
    assert lines == [
        ("a test", "scan.start", str(run.id), "ok", {"trigger": "cli", "target": spec.shown}),
        ("scan", "finding.new", str(found["id"]), "ok", {"scan": str(run.id), "to": "active"}),
        ("scan", "scan.finish", str(run.id), "ok", {"new": 1, "seen": 1, "resolved": 0}),
    ]


def test_the_database_contains_no_raw_credential(pipeline: Pipeline, account: Account) -> None:
    """Not that of a finding, nor one in the path of another finding or in the text of a gap."""
    named, inside, boxed, packed = (token(f"raw {name}") for name in ("named", "inside", "boxed", "packed"))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(f"{boxed}.txt", f"key {boxed}")
    broken = io.BytesIO()
    with zipfile.ZipFile(broken, "w") as file:
        file.writestr("a.txt", "x" * 1000)
    spec, shop = one_repository(
        pipeline,
        {
            f"{named}/a b/k.txt": f"{named}\n{inside}",
            f"x%2F{inside}.txt": "nothing",
            f"{inside}/broken.zip": broken.getvalue()[:60],
            "box.zip": archive.getvalue(),
            f"{packed[:20]}/{packed[20:]}.txt": packed,
        },
    )
    run = pipeline.scan(account, spec)
    assert run.findings_new == 4
    assert run.coverage_gaps != ()
    shop.push({"b.txt": "x"})
    pipeline.scan(account, spec)
    shop.push({"c.txt": "x"}, parents=[])
    shop.update_api(keep_commits=False)
    run = pipeline.scan(account, spec)
    assert run.findings_resolved == 4
    for raw in (named, inside, boxed, packed):
        assert tables_containing(pipeline, raw) == []


def tables_containing(pipeline: Pipeline, raw: str) -> list[str]:
    """Return the tables of the database that contain a text in any column, also as hexadecimal bytes."""
    tables = [
        table
        for (table,) in pipeline.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
    ]
    query = "SELECT '{0}' FROM \"{0}\" t WHERE position(%(raw)s IN t::text) > 0 OR position(%(hex)s IN t::text) > 0"
    with psycopg.connect(pipeline.url) as db:
        found = db.execute(
            " UNION ".join(query.format(table) for table in tables).encode(),
            {"raw": raw, "hex": raw.encode().hex()},
        )
        return sorted(table for (table,) in found)


def test_the_search_for_raw_credentials_finds_a_planted_one(pipeline: Pipeline, account: Account) -> None:
    raw = token("planted")
    pipeline.sql("INSERT INTO etags VALUES (%s, 'key', 'x', %s)", account.id, raw.encode())
    pipeline.sql("UPDATE accounts SET email = %s WHERE id = %s", f"{raw}@example.com", account.id)
    assert tables_containing(pipeline, raw) == ["accounts", "etags"]
    pipeline.sql("DELETE FROM etags WHERE account_id = %s", account.id)


def test_an_allow_mark_is_recorded_with_the_finding_and_an_ignore_file_hides_nothing(
    pipeline: Pipeline, account: Account
) -> None:
    files = {"a.txt": f"{token(1)} # outcrop:allow\n", "b.txt": token(2), ".outcropignore": "*\n"}
    spec, _ = one_repository(pipeline, files)
    pipeline.scan(account, spec)
    assert [
        (finding["file_path"], finding["allowed_in_source"]) for finding in pipeline.findings(account)
    ] == [
        ("a.txt", True),
        ("b.txt", False),
    ]


# --- other kinds of target


def commit_spec(hosted: ServedRepository, sha: str | None = None) -> TargetSpec:
    """Return the target of one commit, by default the newest one."""
    return TargetSpec(
        TargetKind.COMMIT, f"https://{NAME}/{hosted.full_name}/commit/{sha or hosted.repo.tip()}"
    )


def test_a_single_commit_reports_only_the_secrets_that_it_added(pipeline: Pipeline, account: Account) -> None:
    _, shop = one_repository(pipeline, {"a.txt": token(1)})
    second = shop.push({"a.txt": token(1), "b.txt": f"\n{token(2)}"})
    shop.push({"a.txt": token(1), "b.txt": f"\n{token(2)}", "c.txt": token(3)})
    run = pipeline.scan(account, commit_spec(shop, second))
    found = pipeline.finding(account)
    assert (found["file_path"], found["source_type"], found["commit_id"]) == ("b.txt", "commit", second)
    assert found["source_url"].endswith(f"/blob/{second}/b.txt#L2")
    assert (run.progress["commits"], run.progress["blobs"]) == (1, 1)


def test_scanning_a_commit_after_its_repository_changes_no_finding(
    pipeline: Pipeline, account: Account
) -> None:
    spec, shop = one_repository(pipeline, {"a.txt": token(1)})
    second = shop.push({"a.txt": f"\n{token(1)}", "b.txt": token(2)})
    pipeline.scan(account, spec)
    before, blobs = pipeline.findings(account), pipeline.blobs(account)
    pipeline.scan(account, commit_spec(shop, second))
    kept = ("id", "source_type", "source_url", "line_number", "current_line", "commit_id", "status")
    assert [[finding[name] for name in kept] for finding in pipeline.findings(account)] == [
        [finding[name] for name in kept] for finding in before
    ]
    assert pipeline.blobs(account) == blobs
    pipeline.scan(account, spec)
    assert [finding["seen_count"] for finding in pipeline.findings(account)] == [3, 3]


def test_a_repository_without_api_is_cloned_only_if_its_refs_have_changed(
    pipeline: Pipeline, account: Account
) -> None:
    name = f"plain-{pipeline.add_owner()}/shop"
    repo = Repo(pipeline.served / f"{name}.git")
    repo.commit({"a.txt": token(1)})
    pipeline.scan(account, plain_spec(name))
    found = pipeline.finding(account)
    assert (found["source_type"], found["source_visibility"], found["repo_full_name"]) == (
        "repo",
        "public",
        name,
    )
    assert found["source_url"] == f"https://git.example/{name}"
    pipeline.git.requests.clear()
    run = pipeline.scan(account, plain_spec(name))
    assert (run.findings_new, run.findings_seen, run.progress["blobs"]) == (0, 1, 0)
    assert not any(
        "git-upload-pack" in path and "refs" not in path for path, _, _ in pipeline.git.requests[1:-1]
    )
    repo.commit({"b.txt": token(2)})
    run = pipeline.scan(account, plain_spec(name))
    assert (run.findings_new, run.findings_seen) == (1, 2)
    repo.commit({"c.txt": "x"}, parents=[])
    run = pipeline.scan(account, plain_spec(name))  # there is no API that still serves the commits
    assert (run.findings_resolved, {finding["status"] for finding in pipeline.findings(account)}) == (
        2,
        {"resolved"},
    )


def test_a_repository_without_api_is_cloned_with_the_targets_login(
    pipeline: Pipeline, account: Account
) -> None:
    name = f"plain-{pipeline.add_owner()}/shop"
    Repo(pipeline.served / f"{name}.git").commit({"a.txt": token(1)})
    pipeline.scan_with(account, plain_spec(name), "jo:p4ss:word")
    assert {auth for path, _, auth in pipeline.git.requests if name in path} == {basic("jo:p4ss:word")}
    assert pipeline.finding(account)["source_visibility"] == "unknown"


def test_a_local_folder_and_a_local_repository_are_scanned(
    pipeline: Pipeline, account: Account, tmp_path: Path
) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a!b.txt").write_text(f"x\n{token(1)}")
    spec = TargetSpec(TargetKind.FOLDER, str(tmp_path / "plain"))
    run = pipeline.scan(account, spec)
    found = pipeline.finding(account)
    assert (found["source_type"], found["file_path"], found["line_number"], found["source_url"]) == (
        "repo",
        "a!b.txt",
        2,
        None,
    )
    assert (run.findings_new, run.type) == (1, "github")
    (tmp_path / "plain" / "a!b.txt").write_text(f"x\nhidden{token(1)}")  # no rule detects it any more
    assert pipeline.scan(account, spec).findings_seen == 1
    (tmp_path / "plain" / "a!b.txt").write_text("x\n")
    assert pipeline.scan(account, spec).findings_resolved == 1
    repo = Repo(tmp_path / "repo")
    repo.commit({"a.txt": token(2)})
    repo.commit({"b.txt": "x"})
    spec = TargetSpec(TargetKind.FOLDER, str(repo.path))
    pipeline.scan(account, spec)
    assert paths(pipeline, account, source_type="commit") == ["None:a.txt"]
    repo.commit({"b.txt": "x"}, parents=[])
    assert pipeline.scan(account, spec).findings_resolved == 1


def test_a_local_clone_resolves_no_findings_of_its_origin(
    pipeline: Pipeline, account: Account, tmp_path: Path
) -> None:
    name = f"plain-{pipeline.add_owner()}/shop"
    served = Repo(pipeline.served / f"{name}.git")
    served.commit({"a.txt": token(1)})
    local = Repo(tmp_path / "clone")
    local.git("fetch", "--quiet", str(served.path), "main:refs/heads/main")
    local.git("config", "remote.origin.url", f"https://git.example/{name}.git")
    served.commit({"b.txt": token(2)})
    pipeline.scan(account, plain_spec(name))
    run = pipeline.scan(account, TargetSpec(TargetKind.FOLDER, str(local.path)))
    assert (run.findings_new, run.findings_seen, run.findings_resolved) == (0, 1, 0)
    assert {finding["status"] for finding in pipeline.findings(account)} == {"active"}


def test_a_missing_folder_resolves_nothing(pipeline: Pipeline, account: Account, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.txt").write_text(token(1))
    spec = TargetSpec(TargetKind.FOLDER, str(folder))
    pipeline.scan(account, spec)
    folder.rename(tmp_path / "moved")
    run = pipeline.scan(account, spec)
    assert (run.findings_resolved, pipeline.finding(account)["status"]) == (0, "active")
    assert run.coverage_gaps or run.error


# --- failures


def test_a_token_revoked_during_listing_keeps_the_repositories_listed_so_far(
    pipeline: Pipeline, account: Account
) -> None:
    owner = pipeline.add_owner()
    pipeline.add_repository(f"{owner}/a", {"a.txt": token(1)})
    pipeline.add_gist(owner, {"b.txt": token(2)})
    pipeline.hub.tokens["tok-short"] = owner
    pipeline.hub.lifetimes["tok-short"] = (
        3  # requests: the owner, the token's user, the repositories; the one for gists fails
    )
    run = pipeline.scan_with(account, owner_spec(owner, gists=True), "tok-short")
    assert (run.status, run.error) == (ScanStatus.COMPLETED, None)
    assert has_gap(run, "answered 401: Bad credentials")
    assert paths(pipeline, account) == [f"{owner}/a:a.txt"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (error(401, "Bad credentials"), "Bad credentials"),
        (error(404, "Not Found"), "Not Found"),
        (Fault(200, b"<html>maintenance</html>"), "not JSON"),
        (Fault(200, b'[{"id": 1}, 7]', path="/repos"), "no "),
        (Fault(302, headers={"Location": "https://evil.example/"}), "another host"),
    ],
)
def test_a_target_that_cannot_be_listed_fails_with_the_reason(
    pipeline: Pipeline, account: Account, fault: Fault, words: str
) -> None:
    spec, _ = one_repository(pipeline)
    pipeline.scan(account, spec)
    pipeline.sql("DELETE FROM etags")
    pipeline.hub.faults.append(fault)
    run = pipeline.scan(account, spec)
    assert run.status is ScanStatus.FAILED
    assert words in (run.error or "")
    assert pipeline.finding(account)["status"] == "active"


def test_an_api_that_is_down_fails_the_run_and_resolves_nothing(pipeline: Pipeline, account: Account) -> None:
    spec, _ = one_repository(pipeline)
    pipeline.scan(account, spec)
    pipeline.hub.faults.extend(Fault(502) for _ in range(3))
    run = pipeline.scan(account, spec, pipeline.with_limits(retry_delays=(0.01, 0.01)))
    assert (run.status, run.error) == (ScanStatus.FAILED, f"{NAME} answered 502")
    assert pipeline.finding(account)["status"] == "active"
    assert pipeline.finding(account)["seen_count"] == 1


@pytest.mark.parametrize("deferred", [False, True])
def test_a_source_that_a_host_lists_twice_is_scanned_once(
    pipeline: Pipeline, account: Account, deferred: bool
) -> None:
    spec, shop = one_repository(pipeline)
    twin = pipeline.add_repository(f"{shop.full_name}-again")
    pipeline.hub.repos[twin.full_name]["id"] = shop.id
    run_id, names = pipeline.plan(account, spec, deferred=deferred)
    assert names == [shop.source]
    jobs = pipeline.sql(
        "SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'look_at_source' AND args ->> 'scan_id' = %s",
        str(run_id),
    )
    assert jobs == [(deferred,)]


def test_a_run_fails_if_none_of_its_sources_could_be_read(pipeline: Pipeline, account: Account) -> None:
    spec, shop = one_repository(pipeline)
    shop.repo.path.rename(shop.repo.path.with_suffix(".away"))
    run = pipeline.scan(account, spec)
    assert run.status is ScanStatus.FAILED
    assert "cannot be cloned" in (run.error or "")
    assert has_gap(run, shop.full_name)
    owner = shop.full_name.partition("/")[0]
    pipeline.add_repository(f"{owner}/other", {"a.txt": token(2)})
    run = pipeline.scan(account, spec)
    assert (run.status, run.error, run.findings_new) == (ScanStatus.COMPLETED, None, 1)
    assert has_gap(run, shop.full_name)


def test_waits_for_rate_limits_of_the_host_are_shown_in_the_run(pipeline: Pipeline, account: Account) -> None:
    spec, _ = one_repository(pipeline)
    pipeline.hub.faults.append(secondary_limit(retry_after=1))
    waits: list[str] = []
    run = pipeline.wait(
        run_in_foreground(
            pipeline.context, account, spec, lambda current: waits.append(current.waiting or ""), by="a test"
        )
    )
    assert run.status is ScanStatus.COMPLETED
    assert f"{NAME} asks for a pause: waiting 1 seconds" in waits
    assert run.waiting is None
    used_up = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "99999999999"}
    pipeline.hub.faults.append(replace(error(403, "API rate limit exceeded"), headers=used_up))
    run = pipeline.scan(account, spec)
    pipeline.sql("DELETE FROM host_limits")  # the other tests have no token either
    assert run.status is ScanStatus.FAILED
    assert "longer than we wait" in (run.error or "")


def kill_children(pipeline: Pipeline) -> None:
    """Kill all child processes of the process pool."""
    for child in list(pipeline.context.process_pool._children):
        child._process.kill()
        child._process.join()


def is_cloning(pipeline: Pipeline) -> bool:
    """Whether a git process of a killed child is still running; its folder is deleted after it has ended."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            command = (process / "cmdline").read_text(errors="replace").split("\0")
            if (
                Path(command[0]).name == "git"
                and str(pipeline.cache) in f"{command} {(process / 'cwd').readlink()}"
            ):
                return True
    return False


def test_a_child_process_that_dies_during_a_scan_fails_its_source_and_is_replaced(
    pipeline: Pipeline, account: Account
) -> None:
    spec, shop = one_repository(pipeline)

    def kill_at_work() -> None:
        until(lambda: pipeline.git.requests, "the clone to begin")
        kill_children(pipeline)

    pipeline.git.requests.clear()
    pipeline.git.delay = 1.0  # seconds, for each of three responses
    killing = threading.Thread(target=kill_at_work)
    killing.start()
    run = pipeline.wait(
        run_in_foreground(pipeline.context, account, spec, lambda _: None, by="a test")
    )  # the next scan deletes its work folder
    killing.join()
    pipeline.git.delay = 0
    until(lambda: not is_cloning(pipeline), "git to end")
    assert run.status is ScanStatus.FAILED
    assert "ended before its work was done" in (run.error or "")
    run = pipeline.scan(account, spec)
    assert (run.status, run.findings_seen) == (ScanStatus.COMPLETED, 1)
    assert shop.full_name == pipeline.finding(account)["repo_full_name"]


def test_an_idle_child_process_that_died_is_replaced(pipeline: Pipeline, account: Account) -> None:
    spec, _ = one_repository(pipeline)
    pipeline.scan(account, spec)
    kill_children(pipeline)
    run = pipeline.scan(account, spec)
    assert (run.status, run.findings_seen) == (ScanStatus.COMPLETED, 1)


def test_a_path_may_contain_any_bytes(pipeline: Pipeline, account: Account) -> None:
    spec, shop = one_repository(pipeline, {"a.txt": "x"})
    blob = shop.repo.git("hash-object", "-w", "--stdin", stdin=token(1).encode())
    tree = shop.repo.git("mktree", "-z", stdin=f"100644 blob {blob}\t".encode() + b'\xff\x01\n"%.txt\0')
    shop.repo.set_ref("refs/heads/main", shop.repo.git("commit-tree", tree, "-m", "x"))
    shop.update_api()
    pipeline.scan(account, spec)
    shop.push({"b.txt": "x"})
    assert pipeline.scan(account, spec).findings_seen == 1
    found = pipeline.finding(account)
    assert found["file_path"] == '\\xff\\x01\\n"%.txt'
    assert found["source_url"].endswith("/%FF%01%0A%22%25.txt#L1")
