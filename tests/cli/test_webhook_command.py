"""`outcrop webhook` and `outcrop audit`, as operators script against them."""

import json
import re

import psycopg
import pytest

from tests.cli.conftest import Outcrop, Ran

URL = "https://hooks.acme.example/in/T0KEN?key=5ECRET"
ID = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def webhook(outcrop: Outcrop) -> Outcrop:
    """Create an account `acme`; return a function that runs `outcrop webhook` for it."""
    assert outcrop("account", "create", "acme", "--plan", "growth", "--email", "sec@acme.example").code == 0

    def run(verb: str, *arguments: str, **more: str) -> Ran:
        return outcrop("webhook", verb, "--account", "acme", *arguments, **more)

    return run


def test_a_webhook_is_saved_shown_saved_again_and_removed(
    webhook: Outcrop, outcrop: Outcrop, environment: dict[str, str]
) -> None:
    first = webhook("set", URL, "--json").json
    assert first == {"url": URL, "secret": first["secret"]}
    assert re.fullmatch(r"[0-9a-f]{64}", first["secret"])
    shown = webhook("show", "--json").json
    assert shown == {
        "url": URL,
        "created_at": shown["created_at"],
        "last_success_at": None,
        "failures_in_a_row": 0,
        "unknown_in_a_row": 0,
    }
    second = webhook("set", "https://other.example", "--json").json
    assert second["secret"] != first["secret"]
    assert webhook("show", "--json").json["url"] == "https://other.example"
    with psycopg.connect(environment["OUTCROP_DATABASE_URL"]) as db:
        everything = db.execute(
            "SELECT w::text FROM webhooks w UNION ALL SELECT a::text FROM audit a"
        ).fetchall()
    for secret in (first["secret"], second["secret"], "https://"):
        assert secret not in str(everything)
        assert secret.encode().hex() not in str(everything)
    assert webhook("remove", "--json").json == {"account": "acme", "removed": True}
    for call in ("show", "remove", "test"):
        ran = webhook(call)
        assert (ran.code, ran.err) == (2, "outcrop: the account has no webhook\n")
    assert webhook("set", URL, "--json").json["secret"] not in {first["secret"], second["secret"]}
    trail = outcrop("audit", "--account", "acme", "--action", "webhook", "--json").json
    assert [(line["actor"], line["action"], line["target"], line["detail"]) for line in trail] == [
        ("operator", "webhook.save", "hooks.acme.example", {"replaced": False}),
        ("operator", "webhook.save", "other.example", {"replaced": True}),
        ("operator", "webhook.remove", "other.example", {}),
        ("operator", "webhook.save", "hooks.acme.example", {"replaced": False}),
    ]
    assert "T0KEN" not in str(trail)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://hooks.acme.example/",
            "hooks.acme.example",
            "ftp://hooks.acme.example",
            "https://",
            "https:///x",
            "",
            "https://a b.example/",
        ),
        *(
            "https://user@hooks.acme.example/",
            "https://user:pw@hooks.acme.example/",
            "https://hooks.acme.example:0/",
            "https://h:99999/",
        ),
        *(
            "https://hooks.acme.example/\r\nX: y",
            "https://hooks.acme.example\\@evil.example/",
            f"https://h.example/{'x' * 2000}",
        ),
    ],
)
def test_an_address_that_is_no_https_address_is_refused_and_nothing_changes(
    webhook: Outcrop, url: str
) -> None:
    before = webhook("set", URL, "--json").json
    ran = webhook("set", "--", url)
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    assert webhook("show", "--json").json["url"] == before["url"]


def test_a_plan_without_webhooks_is_reported_and_can_still_remove_one(
    webhook: Outcrop, outcrop: Outcrop
) -> None:
    webhook("set", URL)
    outcrop("account", "set-plan", "acme", "starter")
    for call in (("set", URL), ("test",), ("again", ID)):
        ran = webhook(*call)
        assert (ran.code, ran.err) == (
            2,
            "outcrop: the plan starter has no webhook: it takes growth or higher\n",
        )
    assert webhook("remove").code == 0
    outcrop("account", "set-plan", "acme", "enterprise")
    assert webhook("set", URL).code == 0


def test_test_events_and_repetitions_wait_in_the_log(
    webhook: Outcrop, outcrop: Outcrop, environment: dict[str, str]
) -> None:
    webhook("set", URL)
    sent = webhook("test", "--json").json
    assert sent == {
        "id": sent["id"],
        "event": "webhook.test",
        "finding": "00000000-0000-0000-0000-000000000000",
        "state": "waiting",
        "status": None,
        "reason": None,
        "ms": None,
        "created_at": sent["created_at"],
        "sent_at": None,
        "answer": None,
        "again_of": None,
    }
    assert webhook("log", "--json").json == [sent]
    ran = webhook("again", sent["id"])
    assert (ran.code, ran.err) == (2, "outcrop: this delivery has not ended yet\n")
    with psycopg.connect(environment["OUTCROP_DATABASE_URL"]) as db:
        db.execute(
            "UPDATE outbox SET claimed_at = '2026-01-02T03:04:05.6Z', outcome = 'failed', "
            "status = 500, ms = 12, answer = '\\xff41'"
        )
    second_item = webhook("again", sent["id"], "--json").json
    assert (second_item["state"], second_item["again_of"]) == ("waiting", sent["id"])
    ended = sent | {
        "state": "failed",
        "status": 500,
        "ms": 12,
        "answer": "\ufffdA",
        "sent_at": "2026-01-02T03:04:05+00:00",
    }
    assert webhook("log", "--json").json == [second_item, ended]
    assert webhook("log", "--limit", "1", "--json").json == [second_item]
    assert webhook("log", "--before", second_item["id"], "--json").json == [ended]
    assert webhook("log").out.splitlines()[0].split()[:4] == ["id", "event", "finding", "state"]
    assert webhook("again", ID).err == f"outcrop: there is no delivery {ID}\n"
    assert webhook("again", "x").code == 2
    outcrop("account", "create", "other", "--plan", "growth", "--email", "a@b.example")
    outcrop("webhook", "set", "--account", "other", URL)
    assert outcrop("webhook", "again", "--account", "other", sent["id"]).code == 2, (
        "another account's delivery is none"
    )
    assert outcrop("webhook", "log", "--account", "other", "--json").json == []
    trail = outcrop("audit", "--account", "acme", "--action", "webhook.again", "--json").json
    assert [(line["target"], line["detail"]) for line in trail] == [
        (second_item["id"], {"event": "webhook.test", "again_of": sent["id"]})
    ]


def test_the_audit_trail_is_filtered_and_exported_line_by_line(webhook: Outcrop, outcrop: Outcrop) -> None:
    webhook("set", URL)
    key = outcrop("key", "create", "--account", "acme", "--name", "ci", "--json").json["id"]
    outcrop("key", "revoke", key)

    def actions(*options: str) -> list[str]:
        return [line["action"] for line in outcrop("audit", "--account", "acme", *options, "--json").json]

    assert actions() == ["account.create", "webhook.save", "key.create", "key.revoke"]
    assert actions("--action", "key") == ["key.create", "key.revoke"]
    assert actions("--action", "key.revoke") == ["key.revoke"]
    assert actions("--action", "key.c") == []
    assert actions("--target", key) == ["key.create", "key.revoke"]
    assert actions("--target", key, "--action", "key.create") == ["key.create"]
    assert (
        actions("--actor", "nobody")
        == actions("--outcome", "failed")
        == actions("--since", "2999-01-01")
        == []
    )
    assert (
        actions("--outcome", "ok", "--actor", "operator", "--since", "2020-01-01", "--until", "2999-01-01")
        == actions()
    )
    assert actions("--until", "2020-01-01") == []
    exported = outcrop("audit", "--account", "acme", "--format", "jsonl")
    assert [json.loads(line) for line in exported.out.splitlines()] == outcrop(
        "audit", "--account", "acme", "--json"
    ).json
    assert (
        outcrop("audit", "--account", "acme", "--format", "json").json
        == outcrop("audit", "--account", "acme", "--json").json
    )
    for wrong in (("--outcome", "fine"), ("--since", "yesterday"), ("--format", "xml")):
        ran = outcrop("audit", "--account", "acme", *wrong)
        assert (ran.code, ran.out) == (2, "")


@pytest.mark.parametrize(
    "statement",
    ["UPDATE audit SET actor = 'x'", "DELETE FROM audit", "TRUNCATE audit", "TRUNCATE accounts CASCADE"],
)
def test_the_audit_trail_refuses_to_be_changed(
    webhook: Outcrop, environment: dict[str, str], statement: str
) -> None:
    webhook("set", URL)
    with psycopg.connect(environment["OUTCROP_DATABASE_URL"], autocommit=True) as db:
        before = db.execute("SELECT * FROM audit ORDER BY id").fetchall()
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"):
            db.execute(statement.encode())
        assert db.execute("SELECT * FROM audit ORDER BY id").fetchall() == before


def test_the_operator_can_limit_the_ports_of_webhooks(webhook: Outcrop) -> None:
    ports = {"OUTCROP_WEBHOOK_PORTS": "443, 8443"}
    assert webhook("set", "https://hooks.acme.example:8443/in", **ports).code == 0
    assert webhook("set", "https://hooks.acme.example/in", **ports).code == 0
    refused = webhook("set", "https://hooks.acme.example:6379/", **ports)
    assert (refused.code, refused.err) == (
        2,
        "outcrop: the address must have one of these ports: 443, 8443\n",
    )
    wrong = webhook("show", OUTCROP_WEBHOOK_PORTS="443,70000")
    assert wrong.err == "outcrop: OUTCROP_WEBHOOK_PORTS: must be a list of ports such as 443,8443\n"
    assert webhook("set", "https://hooks.acme.example:6379/").code == 0, "any port by default"
