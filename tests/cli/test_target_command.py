"""`outcrop target`, as operators script against it."""

import re

import psycopg
import pytest

from outcrop.domain.target import OPTIONS, TargetKind
from tests.cli.conftest import Outcrop, Ran

TOKEN = "ghp_" + "made0up1for2tests3only" * 2


@pytest.fixture
def target(outcrop: Outcrop) -> Outcrop:
    """Create an account `acme`; return a function that runs `outcrop target` for it."""
    assert outcrop("account", "create", "acme", "--plan", "growth", "--email", "sec@acme.example").code == 0

    def run(verb: str, *arguments: str, **more: str) -> Ran:
        return outcrop("target", verb, "--account", "acme", *arguments, **more)

    return run


def test_a_target_is_added_listed_and_removed(target: Outcrop, outcrop: Outcrop) -> None:
    added = target(
        "add",
        "github:acme",
        "--schedule",
        "daily",
        "--include",
        "shop-*",
        "--include",
        "b",
        "--exclude",
        "c",
        "--json",
    ).json
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", added["created_at"])
    assert added == {
        "id": added["id"],
        "kind": "owner",
        "target": "github:acme",
        "schedule": "daily",
        "include": ["shop-*", "b"],
        "exclude": ["c"],
        "options": OPTIONS[TargetKind.OWNER],
        "has_credential": False,
        "created_at": added["created_at"],
        "next_run_at": added["created_at"],
    }
    assert target("list", "--json").json == [added]
    shown = target("list").out.splitlines()
    assert shown[0].split() == [
        "id",
        "kind",
        "target",
        "schedule",
        "has_credential",
        "created_at",
        "next_run_at",
    ]
    assert added["id"] in shown[1]
    assert target("remove", added["id"], "--json").json == {"id": added["id"], "removed": True}
    assert target("list", "--json").json == []
    actions = [
        (line["actor"], line["action"], line["target"])
        for line in outcrop("audit", "--account", "acme", "--json").json
    ]
    assert actions[1:] == [
        ("operator", "target.add", added["id"]),
        ("operator", "target.remove", added["id"]),
    ]


def test_without_a_schedule_there_is_no_next_run(target: Outcrop) -> None:
    added = target("add", "https://example.com", "--type", "page", "--json").json
    assert (added["kind"], added["schedule"], added["next_run_at"]) == ("page", "off", None)
    assert added["include"] == added["exclude"] == []
    assert "https://example.org/" in target("add", "https://example.org").out


def test_every_option_is_stored(target: Outcrop) -> None:
    owner = target(
        *("add", "github:acme", "--forks", "--no-archived", "--no-wikis", "--gists", "--discussions"),
        *("--poll", "--pr-status", "--pr-comment", "--json"),
    ).json
    assert owner["options"] == {
        "forks": True,
        "archived": False,
        "wikis": False,
        "gists": True,
        "discussions": True,
        "poll": True,
        "pr_status": True,
        "pr_comment": True,
    }
    default = target(
        "add", "github:other", "--no-forks", "--archived", "--wikis", "--no-gists", "--json"
    ).json
    assert default["options"] == {
        "forks": False,
        "archived": True,
        "wikis": True,
        "gists": False,
        "discussions": False,
        "poll": False,
        "pr_status": False,
        "pr_comment": False,
    }
    site = target(
        "add",
        "https://example.com",
        "--leak-places",
        "--ignore-robots",
        "--depth",
        "0",
        "--pages",
        "7",
        "--json",
    ).json
    assert site["options"] == {"depth": 0, "pages": 7, "leak_places": True, "robots": False}


def test_a_credential_is_shown_nowhere_and_stored_encrypted(
    target: Outcrop, outcrop: Outcrop, environment: dict[str, str]
) -> None:
    runs = [
        target("add", "github:acme", "--credential-stdin", "--json", stdin=f"{TOKEN}\r\nmore\n"),
        target("add", "github:acme", "--credential-stdin", stdin=f"{TOKEN}\n"),  # refused: there already
        target("add", "https://git.example/a.git", "--credential-stdin", stdin=f"jo:{TOKEN}"),
        target("add", "https://example.com", "--credential-stdin", stdin=f"Bearer {TOKEN}\n"),
        target("list", "--json"),
        target("list"),
        outcrop("audit", "--account", "acme", "--json"),
        outcrop("audit", "--account", "acme"),
    ]
    assert [ran.code for ran in runs] == [0, 2, 0, 0, 0, 0, 0, 0]
    assert [t["has_credential"] for t in runs[4].json] == [True] * 3
    for ran in runs:
        assert TOKEN not in ran.out + ran.err
        assert TOKEN[4:16] not in ran.out + ran.err, "not even a part of it"
    with psycopg.connect(environment["OUTCROP_DATABASE_URL"]) as db:
        tables = [
            name for (name,) in db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        ]
        rows = [row for name in tables for (row,) in db.execute(f"SELECT t::text FROM {name} t")]
        boxes = [box for (box,) in db.execute("SELECT credential_box FROM targets")]
    assert "targets" in tables
    assert len(boxes) == 3
    assert not any(TOKEN in row or TOKEN.encode().hex() in row for row in rows)
    assert all(len(box) > len(TOKEN) for box in boxes)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--account", "missing", "github:acme"),
        ("--account", "acme", "github:acme", "--schedule", "yearly"),
        ("--account", "acme", "github:acme", "--type", "planet"),
        ("--account", "acme", "github:acme", "--type", "site"),
        ("--account", "acme", "github:acme", "--depth", "3"),
        ("--account", "acme", "github:acme", "--leak-places"),
        ("--account", "acme", "github:acme", "--ignore-robots"),
        ("--account", "acme", "github:acme", "--include", ""),
        ("--account", "acme", "github:acme", "--exclude", "x" * 501),
        ("--account", "acme", "https://example.com", "--pages", "0"),
        ("--account", "acme", "https://example.com", "--forks"),
        ("--account", "acme", "https://jo:hunter22@example.com/"),
        ("--account", "acme", "./folder"),
        ("--account", "acme", ""),
        ("--account", "acme", "https://example.com/\x07"),
        ("--account", "acme", "github:acme", "--credential-stdin"),  # nothing on standard input
    ],
)
def test_what_cannot_be_added_is_one_line_and_exit_2(
    target: Outcrop, outcrop: Outcrop, arguments: tuple[str, ...]
) -> None:
    ran = outcrop("target", "add", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert one_line(ran.err), ran.err
    assert "hunter22" not in ran.err
    assert target("list", "--json").json == []


def test_other_wrong_calls_are_one_line_and_exit_2(target: Outcrop, outcrop: Outcrop) -> None:
    target("add", "github:acme")
    outcrop("account", "create", "other", "--plan", "growth", "--email", "sec@other.example")
    theirs = outcrop("target", "add", "--account", "other", "github:other", "--json").json["id"]
    for ran in (
        target("remove", "no-id"),
        target("remove", "00000000-0000-4000-8000-000000000000"),
        target("remove", theirs),
        target("add", "https://github.com/ACME"),
        outcrop("target", "list", "--account", "missing"),
        outcrop("target", "remove", "--account", "missing", theirs),
    ):
        assert (ran.code, ran.out) == (2, "")
        assert one_line(ran.err), ran.err
    assert len(target("list", "--json").json) == 1
    assert len(outcrop("target", "list", "--account", "other", "--json").json) == 1
    for call in (
        ("add",),
        ("remove",),
        ("list", "--account"),
        ("add", "--account", "acme", "github:x", "--depth", "deep"),
        ("paint",),
    ):
        ran = outcrop("target", *call)
        assert ran.code == 2
        assert "Traceback" not in ran.err


def test_a_credential_that_is_no_text_is_refused(target: Outcrop) -> None:
    ran = target("add", "github:acme", "--credential-stdin", stdin=b"\xff\n")
    assert ran.code == 2
    assert one_line(ran.err)


def one_line(text: str) -> bool:
    return len(text.strip().splitlines()) == 1 and text.startswith("outcrop: ")
