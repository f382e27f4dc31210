"""`outcrop account`, `user`, `key` and `audit`, as operators script against them."""

import re
from datetime import datetime, timedelta

from outcrop.domain.account import token_digest
from tests.cli.conftest import Outcrop


def create(outcrop: Outcrop, slug: str = "acme") -> None:
    assert outcrop("account", "create", slug, "--plan", "growth", "--email", "sec@acme.example").code == 0


def one_line(text: str) -> bool:
    return len(text.strip().splitlines()) == 1 and "Traceback" not in text


def test_an_account_is_made_listed_changed_and_deleted(outcrop: Outcrop) -> None:
    made = outcrop(
        "account", "create", "acme", "--plan", "starter", "--email", "sec@acme.example", "--json"
    ).json
    assert made == {
        "slug": "acme",
        "plan": "starter",
        "email": "sec@acme.example",
        "created_at": made["created_at"],
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", made["created_at"])
    assert outcrop("account", "set-plan", "acme", "growth", "--json").json == made | {"plan": "growth"}
    assert outcrop("account", "list", "--json").json == [made | {"plan": "growth"}]
    assert outcrop("account", "delete", "acme", "--json").json == {"slug": "acme", "deleted": True}
    assert outcrop("account", "list", "--json").json == []


def test_wrong_calls_are_one_line_and_exit_2(outcrop: Outcrop) -> None:
    create(outcrop)
    for call in (
        ("account", "create", "acme", "--plan", "growth", "--email", "a@b.example"),  # taken
        ("account", "create", "A", "--plan", "growth", "--email", "a@b.example"),
        ("account", "create", "ok", "--plan", "growth", "--email", "nobody"),
        ("account", "set-plan", "missing", "growth"),
        ("account", "delete", "missing"),
        ("user", "create", "--account", "missing", "a@b.example"),
        ("user", "remove", "missing@b.example"),
        ("key", "create", "--account", "acme", "--name", ""),
        ("key", "create", "--account", "acme", "--name", "x", "--expires-at", "yesterday"),
        ("key", "create", "--account", "acme", "--name", "x", "--expires-at", "2020-01-01"),
        ("key", "revoke", "no-id"),
        ("key", "revoke", "00000000-0000-4000-8000-000000000000"),
        ("audit", "--account", "missing"),
    ):
        ran = outcrop(*call)
        assert (ran.code, ran.out) == (2, ""), call
        assert one_line(ran.err), ran.err
    for call in (  # type: ignore[assignment]
        ("account", "create", "x2", "--plan", "gold", "--email", "a@b.example"),
        ("nonsense",),
        ("key", "create"),
    ):
        ran = outcrop(*call)
        assert ran.code == 2
        assert "Traceback" not in ran.err


def test_a_member_gets_a_password_that_is_shown_once(outcrop: Outcrop) -> None:
    create(outcrop)
    made = outcrop("user", "create", "--account", "acme", "jo@acme.example", "--role", "owner", "--json").json
    assert made["email"] == "jo@acme.example"
    assert made["role"] == "owner"
    assert len(made["password"]) >= 16
    given = outcrop(
        "user",
        "create",
        "--account",
        "acme",
        "al@acme.example",
        "--password-stdin",
        "--json",
        stdin="a long pass phrase\n",
    ).json
    assert given == {"email": "al@acme.example", "role": "member", "password": None}
    assert (
        outcrop(
            "user", "create", "--account", "acme", "short@acme.example", "--password-stdin", stdin="short\n"
        ).code
        == 2
    )
    assert outcrop("user", "create", "--account", "acme", "JO@acme.example").code == 2, (
        "one address, whatever its case"
    )
    listed = outcrop("user", "list", "--account", "acme", "--json").json
    assert [(u["email"], u["role"], u["account"]) for u in listed] == [
        ("al@acme.example", "member", "acme"),
        ("jo@acme.example", "owner", "acme"),
    ]
    reset = outcrop("user", "reset-password", "jo@acme.example", "--json").json
    assert reset["password"] not in {None, made["password"]}
    assert outcrop("user", "remove", "jo@acme.example", "--json").json == {
        "email": "jo@acme.example",
        "removed": True,
    }
    assert [u["email"] for u in outcrop("user", "list", "--json").json] == ["al@acme.example"]


def test_a_link_lets_a_member_join_or_set_a_new_password(outcrop: Outcrop) -> None:
    create(outcrop)
    made = outcrop("user", "invite", "--account", "acme", "jo@acme.example", "--role", "owner", "--json").json
    assert made == {
        "email": "jo@acme.example",
        "role": "owner",
        "link": made["link"],
        "expires_at": made["expires_at"],
    }
    assert re.fullmatch(r"http://127\.0\.0\.1:8000/join/[\w-]{43}", made["link"])
    assert outcrop("user", "list", "--json").json == [], "nobody has joined yet"
    outcrop("user", "create", "--account", "acme", "al@acme.example")
    base = "https://outcrop.example.com"
    reset = outcrop(
        "user", "reset-password", "al@acme.example", "--link", "--json", OUTCROP_BASE_URL=base + "/"
    ).json
    assert reset == {"email": "al@acme.example", "link": reset["link"], "expires_at": reset["expires_at"]}
    assert re.fullmatch(re.escape(base) + r"/join/[\w-]{43}", reset["link"])
    assert datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(
        reset["expires_at"]
    ) > timedelta(days=5)
    assert outcrop("user", "totp-off", "al@acme.example", "--json").json == {
        "email": "al@acme.example",
        "totp": False,
    }
    for call in (
        ("invite", "--account", "acme", "al@acme.example"),
        ("invite", "--account", "missing", "x@acme.example"),
        ("invite", "--account", "acme", "nobody"),
        ("reset-password", "missing@acme.example", "--link"),
        ("reset-password", "al@acme.example", "--link", "--password-stdin"),
        ("totp-off", "missing@acme.example"),
    ):
        ran = outcrop("user", *call)
        assert (ran.code, ran.out) == (2, ""), call
        assert one_line(ran.err), ran.err
    trail = outcrop("audit", "--account", "acme", "--json")
    assert [line["action"] for line in trail.json] == [
        "account.create",
        "user.invite",
        "user.create",
        "user.reset_link",
    ]
    assert all(link.rpartition("/")[2] not in trail.out for link in (made["link"], reset["link"]))


def test_a_key_is_shown_once_and_only_its_digest_is_kept(
    outcrop: Outcrop, environment: dict[str, str]
) -> None:
    import psycopg  # noqa: PLC0415

    create(outcrop)
    made = outcrop(
        "key", "create", "--account", "acme", "--name", "ci", "--expires-at", "2999-01-01T00:00:00Z", "--json"
    ).json
    assert made == {
        "id": made["id"],
        "name": "ci",
        "key": made["key"],
        "expires_at": "2999-01-01T00:00:00+00:00",
    }
    assert token_digest(made["key"]) is not None
    (listed,) = outcrop("key", "list", "--account", "acme", "--json").json
    assert made["key"] not in str(listed)
    assert made["key"].startswith(listed["hint"])
    with psycopg.connect(environment["OUTCROP_DATABASE_URL"]) as db:
        (row,) = db.execute("SELECT k::text FROM api_keys k").fetchall()
    assert made["key"] not in row[0]
    assert outcrop("key", "revoke", made["id"], "--json").json == {"id": made["id"], "revoked": True}
    assert outcrop("key", "revoke", made["id"]).code == 0, "a second time changes nothing"
    assert outcrop("key", "list", "--account", "acme", "--json").json[0]["revoked_at"] is not None


def test_every_change_is_in_the_audit_trail_and_no_secret_is(outcrop: Outcrop) -> None:
    create(outcrop)
    outcrop("account", "set-plan", "acme", "enterprise")
    outcrop("account", "set-plan", "acme", "enterprise")
    password = outcrop("user", "create", "--account", "acme", "jo@acme.example", "--json").json["password"]
    key = outcrop("key", "create", "--account", "acme", "--name", "ci", "--json").json
    outcrop("key", "revoke", key["id"])
    outcrop("key", "revoke", key["id"])
    outcrop("user", "remove", "jo@acme.example")
    trail = outcrop("audit", "--account", "acme", "--json")
    assert [line["action"] for line in trail.json] == [
        "account.create",
        "account.set_plan",
        "user.create",
        "key.create",
        "key.revoke",
        "user.remove",
    ]
    assert all(set(line) == {"at", "actor", "action", "target", "outcome", "detail"} for line in trail.json)
    assert all(line["outcome"] == "ok" for line in trail.json)
    assert password not in trail.out
    assert key["key"] not in trail.out


def test_tables_are_for_people_and_json_is_alone_on_stdout(outcrop: Outcrop) -> None:
    create(outcrop)
    shown = outcrop("account", "list")
    assert shown.out.splitlines()[0].split() == ["slug", "plan", "email", "created_at"]
    assert "acme" in shown.out
    assert outcrop("account", "list", "--json").out.count("\n") == 1
