"""Excerpts: stored encrypted, shown for the right place, erased together with the credential."""

from pathlib import Path
from uuid import uuid4

import pytest

from outcrop.domain.account import Account
from outcrop.domain.excerpt import Excerpt
from outcrop.domain.secret import Secret
from outcrop.domain.target import TargetKind, TargetSpec
from outcrop.store.keyring import DamagedValueError
from tests.support.pipeline import Pipeline, owner_spec, token
from tests.support.site_runs import served
from tests.support.web_host import page, script

KEY, OTHER = token("excerpt"), token("beside")


def test_a_finding_in_git_has_the_lines_around_it_as_they_were_where_its_line_is_counted(
    pipeline: Pipeline, account: Account
) -> None:
    owner = pipeline.add_owner()
    shop = pipeline.add_repository(
        f"{owner}/shop", {"a.py": f"one\ntwo\nkey = '{KEY}'\nother = '{OTHER}'\nlast\n"}
    )
    pipeline.scan(account, owner_spec(owner))
    shop.push({"a.py": f"quite\nelse\n\n\nkey = '{KEY}'\n"})
    pipeline.scan(account, owner_spec(owner))
    by_mask = {found["matched_text"]: found for found in pipeline.findings(account)}
    found = by_mask[Secret(KEY).masked()]
    lines = ("one", "two", f"key = '{Secret(KEY).masked()}'", f"other = '{Secret(OTHER).masked()}'", "last")
    assert pipeline.excerpt(account, found["id"]) == Excerpt(1, lines, 2)
    assert (found["line_number"], found["current_line"]) == (3, 5)
    assert pipeline.excerpt(account, by_mask[Secret(OTHER).masked()]["id"]) == Excerpt(2, lines[1:], 2)
    for row in pipeline.findings(account):
        assert b"key" not in row["excerpt_box"]


def test_it_follows_the_finding_to_another_place(pipeline: Pipeline, account: Account) -> None:
    owner = pipeline.add_owner()
    shop = pipeline.add_repository(f"{owner}/shop", {"a.py": f"old\n{KEY}\n"})
    pipeline.scan(account, owner_spec(owner))
    before = pipeline.finding(account)
    shop.repo.commit({"a.py": f"new\nhistory\n{KEY}\n"}, parents=[])
    shop.update_api()
    pipeline.scan(account, owner_spec(owner))
    after = pipeline.finding(account)
    assert (after["id"], after["line_number"]) == (before["id"], 3)
    assert pipeline.excerpt(account, after["id"]) == Excerpt(1, ("new", "history", Secret(KEY).masked()), 2)


def test_an_excerpt_of_an_earlier_place_is_not_shown(pipeline: Pipeline, account: Account) -> None:
    owner = pipeline.add_owner()
    pipeline.add_repository(f"{owner}/shop", {"a.py": KEY})
    pipeline.scan(account, owner_spec(owner))
    id_ = pipeline.finding(account)["id"]
    assert pipeline.excerpt(account, id_) is not None
    pipeline.sql("UPDATE findings SET line_number = 9 WHERE id = %s", id_)
    assert pipeline.excerpt(account, id_) is None


def test_a_site_and_a_folder_have_them_too(pipeline: Pipeline, account: Account, tmp_path: Path) -> None:
    bundle = script("var a=1;" * 900 + f'k="{KEY}"' + ";b()" * 900)
    with served(
        pipeline, account, {"/": page('<script src="/app.js"></script>'), "/app.js": bundle}, "site.example"
    ) as runs:
        runs.scan()
    shown = pipeline.excerpt(account, pipeline.finding(account)["id"])
    assert shown is not None
    assert Secret(KEY).masked() in shown.lines[shown.at]
    assert len(shown.lines[shown.at]) == 202

    (tmp_path / "a.env").write_text(f"A=1\nKEY={OTHER}\n")
    pipeline.scan(account, TargetSpec(TargetKind.FOLDER, str(tmp_path)))
    (found,) = (found for found in pipeline.findings(account) if found["file_path"] == "a.env")
    assert pipeline.excerpt(account, found["id"]) == Excerpt(1, ("A=1", f"KEY={Secret(OTHER).masked()}"), 1)


def test_where_no_credential_is_kept_no_line_is(pipeline: Pipeline, account: Account) -> None:
    owner = pipeline.add_owner()
    pipeline.add_repository(f"{owner}/shop", {"a.py": KEY})
    with pipeline.keep_no_secrets():
        pipeline.scan(account, owner_spec(owner))
    found = pipeline.finding(account)
    assert (found["secret_box"], found["excerpt_box"]) == (None, None)
    assert pipeline.excerpt(account, found["id"]) is None


def test_erasing_the_credential_erases_its_lines(pipeline: Pipeline, account: Account) -> None:
    owner = pipeline.add_owner()
    pipeline.add_repository(f"{owner}/shop", {"a.py": KEY})
    pipeline.scan(account, owner_spec(owner))
    pipeline.sql(
        "UPDATE findings SET secret_box = secret_box, seen_count = 7 WHERE account_id = %s", account.id
    )
    assert pipeline.finding(account)["excerpt_box"] is not None
    pipeline.sql("UPDATE findings SET secret_box = NULL WHERE account_id = %s", account.id)
    assert pipeline.finding(account)["excerpt_box"] is None


def test_lines_open_as_such_and_for_their_own_finding_only(pipeline: Pipeline) -> None:
    keys, id_ = pipeline.context.keys, uuid4()
    box = keys.seal_excerpt(Excerpt(3, ("ä", "b"), 1), 1, id_)
    assert keys.open_excerpt(box, 1, id_) == Excerpt(3, ("ä", "b"), 1)
    for account_id, finding_id in ((2, id_), (1, uuid4())):
        with pytest.raises(DamagedValueError):
            keys.open_excerpt(box, account_id, finding_id)
    with pytest.raises(DamagedValueError):
        keys.open(box, 1, id_, mask_all=True)
