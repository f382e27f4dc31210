"""Test that one leak is one finding: reports before, after and between runs, renames, and other repositories."""

import io
import json
import subprocess
from typing import Any
from uuid import UUID

import pytest

from outcrop.domain.account import Account
from outcrop.domain.clock import now
from outcrop.domain.target import OPTIONS, TargetKind, TargetSpec
from outcrop.services.exchange.formats import ImportFormat
from outcrop.services.exchange.importer import ImportSummary, import_findings
from outcrop.store.db import connect
from outcrop.store.findings import rollups
from tests.services.test_import_formats import gitleaks
from tests.support import github_host
from tests.support.pipeline import Pipeline, ServedRepository, repository_spec, token
from tests.support.rulesets import ruleset

FILES: dict[str, str | bytes] = {"a.txt": f"x\nkey {token(1)}\n", "b.txt": f"{token(2)}\n"}


def import_report(pipeline: Pipeline, account: Account, data: object, repo: str) -> ImportSummary:
    """Import a JSON report as `outcrop import --repo` does."""

    async def work() -> ImportSummary:
        async with await connect(pipeline.url) as db:
            return await import_findings(
                db,
                pipeline.context.keys,
                account,
                io.BytesIO(json.dumps(data).encode()),
                by="test",
                now=now(),
                progress=lambda _: None,
                format_=ImportFormat.AUTO,
                repo=repo,
                load_rules=ruleset,
            )

    return pipeline.wait(work())


def leaks(**fields: Any) -> list[dict[str, Any]]:
    """Return a report of gitleaks on FILES, which names no repository."""
    place = {"Link": "", "Commit": "", "Match": "x"} | fields
    return [
        gitleaks(Secret=token(1), File="a.txt", StartLine=2, **place),
        gitleaks(Secret=token(2), File="./b.txt", StartLine=1, **place),
    ]


def add_shop(pipeline: Pipeline) -> ServedRepository:
    return pipeline.add_repository(f"{pipeline.add_owner()}/shop", FILES)


def rename(pipeline: Pipeline, shop: ServedRepository) -> str:
    """Rename a repository on its host; return the new name."""
    new = shop.full_name.replace("/shop", "/store")
    pipeline.hub.rename(shop.full_name, new)
    shop.repo.path.rename(shop.repo.path.with_name("store.git"))
    return new


def page(name: str) -> str:
    return f"https://github.example/{name}"


def ids(pipeline: Pipeline, account: Account) -> list[UUID]:
    return [finding["id"] for finding in pipeline.findings(account)]


def assert_counts_are_right(pipeline: Pipeline, account: Account) -> None:
    """Check the stored counts, and that each finding belongs to the one source."""

    async def mismatches() -> list[Any]:
        async with await connect(pipeline.url) as db:
            return [row for row in await rollups.find_mismatches(db) if row[0] == account.id]

    assert pipeline.wait(mismatches()) == []
    found = pipeline.findings(account)
    assert len({finding["source"] for finding in found}) == 1
    assert pipeline.sql("SELECT count(*) FROM source_names WHERE account_id = %s", account.id) == [(1,)]


@pytest.mark.parametrize("order", ["report first", "run first", "report, run, rename", "run, rename"])
def test_a_report_and_a_run_are_the_same_findings(pipeline: Pipeline, account: Account, order: str) -> None:
    shop = add_shop(pipeline)
    name = shop.full_name
    expected = (2, 0) if order.startswith("report") else (0, 2)
    if order.startswith("run"):
        pipeline.scan(account, repository_spec(name))
    if order == "run, rename":
        old, name = name, rename(pipeline, shop)
        pipeline.scan(account, repository_spec(name))
        assert import_report(pipeline, account, leaks(), page(old)).new == 0, "the former address"
    first = import_report(pipeline, account, leaks(), page(name))
    assert (first.new, first.updated) == expected
    before = ids(pipeline, account)
    if not order.startswith("run"):
        pipeline.scan(account, repository_spec(name))
    if order == "report, run, rename":
        name = rename(pipeline, shop)
        pipeline.scan(account, repository_spec(name))
    address = f"git@github.example:{name.upper()}.git"
    assert import_report(pipeline, account, leaks(), address).new == 0
    pipeline.scan(account, repository_spec(name))
    assert ids(pipeline, account) == before
    assert {finding["status"] for finding in pipeline.findings(account)} == {"active"}
    assert_counts_are_right(pipeline, account)


@pytest.mark.parametrize("reported", ["before", "before and after", "after"])
def test_a_repository_that_is_renamed_between_report_and_first_run_is_one_source(
    pipeline: Pipeline, account: Account, reported: str
) -> None:
    """The former address was only ever in a report: the host says that it is the same repository."""
    shop = add_shop(pipeline)
    old = shop.full_name
    if reported != "after":
        assert import_report(pipeline, account, leaks(), page(old)).new == 2
        pipeline.sql("UPDATE findings SET first_seen_at = '2020-01-01' WHERE account_id = %s", account.id)
    before = ids(pipeline, account)
    new = rename(pipeline, shop)
    if reported != "before":
        if reported == "after":
            pipeline.scan(account, repository_spec(new))
            before = ids(pipeline, account)
            assert import_report(pipeline, account, leaks(), page(old)).new == 2, "nobody has asked yet"
        else:
            assert import_report(pipeline, account, leaks(), page(new)).new == 2, "nobody has asked yet"
    audited = "SELECT count(*) FROM audit WHERE account_id = %s AND action = 'finding.merge'"
    for _ in range(3):
        pipeline.scan(account, repository_spec(new))
        assert ids(pipeline, account) == before
    assert pipeline.sql(audited, account.id) == [(0 if reported == "before" else 2,)]
    for address in (old, new):
        assert import_report(pipeline, account, leaks(), page(address)).new == 0
    assert {finding["status"] for finding in pipeline.findings(account)} == {"active"}
    assert pipeline.sql("SELECT count(*) FROM outbox WHERE account_id = %s", account.id) == [
        (2 if reported == "after" else 0,)
    ], "no event says that a reported finding is new"
    assert_counts_are_right(pipeline, account)


def test_a_finding_at_a_former_address_is_resolved_by_the_scan_after_the_merge(
    pipeline: Pipeline, account: Account
) -> None:
    shop = add_shop(pipeline)
    gone = gitleaks(Secret=token(9), File="a.txt", Link="", Commit="")
    import_report(pipeline, account, [*leaks(), gone], page(shop.full_name))
    new = rename(pipeline, shop)
    for _ in range(2):
        pipeline.scan(account, repository_spec(new))
    statuses = sorted(f["status"] for f in pipeline.findings(account))
    assert statuses == ["active", "active", "resolved"]


def test_a_repository_that_only_shares_a_credential_stays_a_source_of_its_own(
    pipeline: Pipeline, account: Account
) -> None:
    """Not asked at the host: other paths. Asked: another repository, and one that the host does not know."""
    shop = add_shop(pipeline)
    owner = shop.full_name.partition("/")[0]
    other = pipeline.add_repository(f"{owner}/other", FILES)
    import_report(pipeline, account, leaks(), page(other.full_name))
    import_report(pipeline, account, leaks(), page(f"{owner}/deleted"))
    elsewhere = [gitleaks(Secret=token(1), File="else.txt", Link="", Commit="")]
    import_report(pipeline, account, elsewhere, page(f"{owner}/elsewhere"))
    asked = len(pipeline.hub.paths)
    pipeline.scan(account, repository_spec(shop.full_name))
    assert len(pipeline.findings(account)) == 7
    paths = pipeline.hub.paths[asked:]
    assert not [path for path in paths if "elsewhere" in path]
    assert {path for path in paths if "deleted" in path or "other" in path} == {
        f"/repos/{owner}/deleted".lower(),
        f"/repos/{owner}/other".lower(),
    }


def test_a_self_hosted_instance_that_gives_the_address_of_another_host_takes_nothing_over(
    pipeline: Pipeline, account: Account
) -> None:
    """The findings at that address would move to its repository, where they are gone."""
    name = f"{pipeline.add_owner()}/shop"
    pipeline.add_repository(name, {"c.txt": "nothing\n"})
    address = "https://git.other.example/team/app"
    pipeline.hub.repos[name]["html_url"] = address
    import_report(pipeline, account, leaks(), address)
    options = dict(OPTIONS[TargetKind.REPOSITORY])
    spec = TargetSpec(
        TargetKind.REPOSITORY, f"github:{name}", options=options, host_url=f"https://{github_host.NAME}"
    )
    pipeline.hub.prefix = "/api/v3"
    try:
        run = pipeline.scan(account, spec)
    finally:
        pipeline.hub.prefix = ""
    assert run.error is None
    assert {f["status"] for f in pipeline.findings(account)} == {"active"}
    assert {f["source"] for f in pipeline.findings(account)} == {address}
    assert import_report(pipeline, account, leaks(), address).new == 0


def test_a_merge_keeps_the_older_id_the_later_decision_and_all_blobs(
    pipeline: Pipeline, account: Account
) -> None:
    """A report under an address that the run does not know, which becomes the address of the repository."""
    shop = add_shop(pipeline)
    new = shop.full_name.replace("/shop", "/store")
    import_report(pipeline, account, leaks(), page(new))
    reported = {f["file_path"]: f["id"] for f in pipeline.findings(account)}
    pipeline.scan(account, repository_spec(shop.full_name))
    scanned = {
        f["file_path"]: f["id"] for f in pipeline.findings(account) if f["id"] not in reported.values()
    }
    assert len(scanned) == 2
    for id_, status in ((scanned["a.txt"], "false_positive"), (reported["a.txt"], "customer_restricted")):
        triage(pipeline, account, id_, status)
    triage(pipeline, account, scanned["b.txt"], "false_positive")
    pipeline.sql(
        "UPDATE findings SET first_seen_at = '2020-01-01' WHERE id = ANY(%s)",
        [reported["a.txt"], scanned["b.txt"]],
    )
    blobs = pipeline.blobs(account)
    audit = pipeline.sql("SELECT count(*) FROM audit WHERE account_id = %s", account.id)[0][0]
    assert rename(pipeline, shop) == new
    pipeline.scan(account, repository_spec(new))
    found = {f["file_path"]: f for f in pipeline.findings(account)}
    assert (found["a.txt"]["id"], found["a.txt"]["status"]) == (reported["a.txt"], "customer_restricted")
    assert (found["b.txt"]["id"], found["b.txt"]["status"]) == (scanned["b.txt"], "false_positive")
    assert pipeline.blobs(account) == blobs
    assert (
        len(
            pipeline.sql("SELECT 1 FROM audit WHERE account_id = %s AND action = 'finding.merge'", account.id)
        )
        == 2
    )
    assert pipeline.sql("SELECT count(*) FROM audit WHERE account_id = %s", account.id)[0][0] > audit
    for finding in found.values():
        value = pipeline.context.keys.open(finding["secret_box"], account.id, finding["id"], mask_all=True)
        assert value is not None, "the credential is encrypted for the finding that stays"
    assert_counts_are_right(pipeline, account)


def triage(pipeline: Pipeline, account: Account, id_: UUID, status: str) -> None:
    """Close a finding as a person does."""
    pipeline.sql("UPDATE findings SET status = %s WHERE id = %s", status, id_)
    action = {"false_positive": "finding.false_positive", "customer_restricted": "finding.restrict"}[status]
    pipeline.sql(
        "INSERT INTO audit (account_id, at, actor, action, target, outcome, detail) "
        "VALUES (%s, now(), 'ada@example.org', %s, %s, 'ok', '{}')",
        account.id,
        action,
        str(id_),
    )


def test_a_repository_that_takes_an_address_over_gets_the_address_only(
    pipeline: Pipeline, account: Account
) -> None:
    shop = add_shop(pipeline)
    pipeline.scan(account, repository_spec(shop.full_name))
    old = shop.full_name
    rename(pipeline, shop)
    pipeline.hub.moved.pop(old)  # the host redirects no longer
    other = pipeline.add_repository(old, {"a.txt": f"key {token(1)}\n"})
    pipeline.scan(account, repository_spec(old))
    assert len(pipeline.findings(account)) == 3, "nothing is merged"
    owner = "SELECT source FROM source_aliases WHERE account_id = %s AND alias = %s"
    assert pipeline.sql(owner, account.id, page(old)) == [(other.source,)]
    assert import_report(pipeline, account, leaks()[:1], page(old)).new == 0


def test_a_redacted_report_is_no_finding_that_a_scan_resolves(pipeline: Pipeline, account: Account) -> None:
    shop = add_shop(pipeline)
    redacted = [gitleaks(Secret="REDACTED", File="gone.txt", Link="", Commit="")]
    import_report(pipeline, account, redacted, page(shop.full_name))
    pipeline.scan(account, repository_spec(shop.full_name))
    new = rename(pipeline, shop)
    pipeline.scan(account, repository_spec(new))
    assert import_report(pipeline, account, redacted, page(new)).new == 0, "known by the former address"
    (found,) = [f for f in pipeline.findings(account) if f["file_path"] == "gone.txt"]
    assert found["status"] == "active"


def test_a_finding_of_a_report_is_gone_when_the_repository_has_never_had_it(
    pipeline: Pipeline, account: Account
) -> None:
    shop = add_shop(pipeline)
    import_report(
        pipeline, account, [gitleaks(Secret=token(9), File="a.txt", Link="", Commit="")], page(shop.full_name)
    )
    pipeline.scan(account, repository_spec(shop.full_name))
    statuses = {f["status"] for f in pipeline.findings(account) if f["matched_text"] != "x"}
    assert statuses == {"active", "resolved"}
    assert len(pipeline.findings(account)) == 3


def test_a_clone_on_this_machine_is_the_same_source_and_resolves_nothing(
    pipeline: Pipeline, account: Account, tmp_path: Any
) -> None:
    shop = add_shop(pipeline)
    pipeline.scan(account, repository_spec(shop.full_name))
    before = ids(pipeline, account)
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / "a.txt").write_bytes(b"x\nkey " + token(1).encode() + b"\n")
    for command in (
        ["init", "-q"],
        ["remote", "add", "origin", f"{page(shop.full_name)}.git"],
        ["add", "-A"],
    ):
        subprocess.run(["git", *command], cwd=clone, check=True)
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "x"],
        cwd=clone,
        check=True,
    )
    pipeline.scan(account, TargetSpec(TargetKind.FOLDER, str(clone)))
    assert ids(pipeline, account) == before
    assert {f["status"] for f in pipeline.findings(account)} == {"active"}
    pipeline.scan(account, repository_spec(shop.full_name))
    assert ids(pipeline, account) == before
    assert_counts_are_right(pipeline, account)
