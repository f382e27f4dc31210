"""`outcrop hook`, as operators script against it."""

import re
from uuid import UUID

import psycopg
import pytest

from outcrop.domain.push import HookHost
from tests.cli.conftest import Outcrop


@pytest.fixture(autouse=True)
def _accounts(outcrop: Outcrop) -> None:
    for slug in ("acme", "other"):
        created = outcrop("account", "create", slug, "--plan", "growth", "--email", f"sec@{slug}.example")
        assert created.code == 0


@pytest.mark.parametrize("host", list(HookHost))
def test_a_created_hook_is_shown_once(outcrop: Outcrop, environment: dict[str, str], host: HookHost) -> None:
    ran = outcrop(
        *("hook", "create", "--account", "acme", host, "--json"), OUTCROP_BASE_URL="https://o.example/x"
    )
    assert ran.err == ""
    new = ran.json
    assert list(new) == ["id", "url", "secret"]
    assert str(UUID(new["id"])) == new["id"]
    assert re.fullmatch(rf"https://o\.example/x/hooks/{host}/[A-Za-z0-9_-]{{43}}", new["url"])
    listed = outcrop("hook", "list", "--account", "acme", "--json")
    (record,) = listed.json
    assert (record["id"], record["account"], record["host"]) == (new["id"], "acme", host)
    assert (record["last_delivery_at"], record["ignored"], record["is_behind"]) == (None, 0, False)
    audit = outcrop("audit", "--account", "acme", "--json").out
    with psycopg.connect(environment["OUTCROP_DATABASE_URL"]) as db:
        stored = str(db.execute("SELECT h::text FROM hooks h").fetchall())
    for secret in (new["secret"], new["url"].rpartition("/")[2]):
        assert secret not in listed.out + audit + stored
        assert secret.encode().hex() not in stored


def test_hooks_are_listed_and_removed_with_and_without_an_account(outcrop: Outcrop) -> None:
    created = outcrop("hook", "create", "--account", "acme", "github", "--json")
    assert "set OUTCROP_BASE_URL" in created.err
    first = created.json
    second = outcrop("hook", "create", "--account", "other", "gitea", "--json").json
    assert first["url"].startswith("http://127.0.0.1:8000/hooks/github/")
    assert [hook["account"] for hook in outcrop("hook", "list", "--json").json] == ["acme", "other"]
    assert second["id"] in outcrop("hook", "list").out
    wrong = outcrop("hook", "remove", "--account", "other", first["id"])
    assert (wrong.code, wrong.err) == (2, f"outcrop: there is no push hook {first['id']!r}\n")
    assert outcrop("hook", "remove", first["id"], "--json").json == {"id": first["id"], "removed": True}
    assert outcrop("hook", "remove", "--account", "other", second["id"]).code == 0
    assert outcrop("hook", "list", "--json").json == []
    for unknown in (first["id"], "x", ""):
        assert outcrop("hook", "remove", unknown).code == 2
    trail = outcrop("audit", "--account", "acme", "--action", "hook", "--json").json
    assert [(line["actor"], line["action"], line["target"]) for line in reversed(trail)] in (
        [("operator", "hook.remove", first["id"]), ("operator", "hook.create", first["id"])],
        [("operator", "hook.create", first["id"]), ("operator", "hook.remove", first["id"])],
    )


def test_an_unknown_host_or_account_is_one_line(outcrop: Outcrop) -> None:
    ran = outcrop("hook", "create", "--account", "acme", "sourceforge")
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "github, gitlab, gitea, bitbucket, azuredevops" in ran.err
    assert outcrop("hook", "create", "--account", "nobody", "github").code == 2
    assert outcrop("hook", "list", "--account", "nobody").code == 2
