"""`outcrop secrets keep`, and the setting `OUTCROP_KEEP_SECRETS`, which all processes of a database share."""

import json
from pathlib import Path

import psycopg

from tests.cli.conftest import Outcrop
from tests.support.factories import make_line


def keep_setting(environment: dict[str, str]) -> str | None:
    """Return the stored value of the setting."""
    with psycopg.connect(environment["OUTCROP_DATABASE_URL"]) as db:
        row = db.execute("SELECT keep_secrets FROM keyring").fetchone()
    return None if row is None else row[0]


def create_account(outcrop: Outcrop) -> None:
    """Create the account `acme`."""
    outcrop("account", "create", "acme", "--plan", "growth", "--email", "it@acme.example")


def test_a_process_with_another_setting_exits_with_the_command_that_changes_it(
    outcrop: Outcrop, environment: dict[str, str], tmp_path: Path
) -> None:
    create_account(outcrop)
    assert outcrop("secrets", "keep", "active", "--json").json == {"keep": "active"}
    environment["OUTCROP_KEEP_SECRETS"] = "none"
    for arguments in (["account", "list"], ["scan", "--account", "acme", str(tmp_path)], ["worker"]):
        ran = outcrop(*arguments)
        assert ran.code == 2
        (line,) = ran.err.splitlines()
        assert "OUTCROP_KEEP_SECRETS" in line
        assert "outcrop secrets keep none" in line
    (failed,) = [c for c in json.loads(outcrop("doctor", "--json").out) if not c["ok"]]
    assert failed["check"] == "kept secrets"
    assert outcrop("secrets", "keep", "none").code == 0
    assert outcrop("account", "list").code == 0
    assert outcrop("doctor").code == 0


def test_the_setting_is_stored_by_the_first_process_that_states_it_or_scans(
    outcrop: Outcrop, environment: dict[str, str], tmp_path: Path
) -> None:
    create_account(outcrop)
    assert keep_setting(environment) is None, "no process has stored a credential yet"
    environment["OUTCROP_KEEP_SECRETS"] = "none"
    outcrop("account", "list")
    assert keep_setting(environment) == "none"
    del environment["OUTCROP_KEEP_SECRETS"]
    assert outcrop("scan", "--account", "acme", str(tmp_path)).code == 0, "unset means the database's value"
    assert keep_setting(environment) == "none"


def test_a_scan_stores_the_default_setting(
    outcrop: Outcrop, environment: dict[str, str], tmp_path: Path
) -> None:
    create_account(outcrop)
    assert outcrop("scan", "--account", "acme", str(tmp_path)).code == 0
    assert keep_setting(environment) == "active"


def test_an_import_follows_the_stored_setting_and_each_change_is_audited(
    outcrop: Outcrop, environment: dict[str, str], tmp_path: Path
) -> None:
    create_account(outcrop)
    outcrop("secrets", "keep", "none")
    file = tmp_path / "findings.jsonl"
    file.write_text(json.dumps(make_line() | {"secret": "x8Kq2vLm9RtY4wZp"}) + "\n")
    assert outcrop("import", "--account", "acme", str(file), "--json").json["new"] == 1
    with psycopg.connect(environment["OUTCROP_DATABASE_URL"]) as db:
        assert db.execute("SELECT secret_box, fingerprint IS NULL FROM findings").fetchall() == [
            (None, False)
        ]
        lines = db.execute("SELECT actor, detail FROM audit WHERE action = 'secrets.keep'").fetchall()
    assert [detail for _, detail in lines] == [{"from": None, "to": "none"}]
