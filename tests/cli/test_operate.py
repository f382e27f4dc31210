"""`outcrop migrate`, `doctor`, `secrets rotate` and `import`; settings that are wrong."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from outcrop import __version__
from outcrop.store.schema import newest_version
from tests.cli.conftest import Outcrop
from tests.support.backups import write_key_file
from tests.support.command import Ran
from tests.support.databases import migrated_database, new_database
from tests.support.factories import make_line


@pytest.fixture
def environment(cluster: str, tmp_path: Path, worker_id: str) -> dict[str, str]:
    """Return an environment with a new database and an empty data folder."""
    url = migrated_database(cluster, f"operate_{worker_id}")
    return os.environ | {
        "OUTCROP_DATABASE_URL": url,
        "OUTCROP_DATA_DIR": str(tmp_path / "data"),
        "COLUMNS": "200",
    }


@pytest.fixture
def empty_database(environment: dict[str, str], cluster: str, worker_id: str) -> None:
    """Put an empty database into the environment."""
    environment["OUTCROP_DATABASE_URL"] = new_database(cluster, f"operate_{worker_id}")


def test_the_version_is_reported(outcrop: Outcrop) -> None:
    ran = outcrop("--version")
    assert (ran.code, ran.out) == (0, f"outcrop {__version__}\n")


def test_a_command_loads_nothing_that_only_others_need() -> None:
    loaded = "import sys; from outcrop.cli.commands import tree; tree({!r}); print(*sys.modules)"
    for command, others in {
        "account": {"fastapi", "hyperscan", "outcrop.worker"},
        "serve": {"fastapi", "outcrop.worker"},
    }.items():
        ran = subprocess.run(
            [sys.executable, "-c", loaded.format(command)], capture_output=True, text=True, check=True
        )
        assert others & set(ran.stdout.split()) == set()


MACHINE = ("settings", "git", "rules", "egress", "disk", "sandbox")
UNUSABLE_SCHEMA = {"database": True, "schema": False, "clock": True, "database disk": True} | dict.fromkeys(
    MACHINE, True
)


@pytest.mark.usefixtures("empty_database")
def test_migrate_applies_once(outcrop: Outcrop) -> None:
    first = outcrop("migrate", "--json").json["applied"]
    assert first[0] == "0001_accounts"
    assert first == sorted(first)
    assert outcrop("migrate", "--json").json == {"applied": []}


@pytest.mark.usefixtures("empty_database")
def test_doctor_is_content_with_a_new_database_and_names_a_wrong_count(
    outcrop: Outcrop, environment: dict[str, str]
) -> None:
    before = outcrop("doctor", "--json")
    assert before.code == 2
    checks = {c["check"]: c["ok"] for c in json.loads(before.out)}
    assert checks == UNUSABLE_SCHEMA, "nothing is migrated yet"
    outcrop("migrate")
    assert all(c["ok"] for c in outcrop("doctor", "--json").json)
    with psycopg.connect(environment["OUTCROP_DATABASE_URL"], autocommit=True) as db:
        db.execute("INSERT INTO rollups VALUES (1, 0, '', 0, 3, 1)")
    after = outcrop("doctor", "--json")
    assert after.code == 2
    assert {c["check"]: c["ok"] for c in json.loads(after.out)}["counts"] is False


def test_a_newer_database_is_refused(outcrop: Outcrop, environment: dict[str, str]) -> None:
    outcrop("migrate")
    with psycopg.connect(environment["OUTCROP_DATABASE_URL"], autocommit=True) as db:
        db.execute("INSERT INTO migrations VALUES (9999, 'from the future', now())")
    ran = outcrop("account", "list")
    assert ran.code == 2
    assert "newer than this version" in ran.err
    checks = outcrop("doctor", "--json")
    assert checks.code == 2
    assert {c["check"]: c["ok"] for c in json.loads(checks.out)} == UNUSABLE_SCHEMA
    assert "newer than this version of Outcrop: 9999" in checks.out


def test_a_newer_schema_that_this_version_fits_is_used(outcrop: Outcrop, environment: dict[str, str]) -> None:
    outcrop("migrate")
    with psycopg.connect(environment["OUTCROP_DATABASE_URL"], autocommit=True) as db:
        db.execute("INSERT INTO migrations VALUES (9999, 'from the future', now(), %s)", [newest_version()])
    assert outcrop("account", "list", "--json").json == []
    assert outcrop("migrate", "--json").json == {"applied": []}
    assert outcrop("doctor", "--json").code == 2, "an upgrade is due, although nothing is wrong"


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_schema_that_needs_a_newer_program_stops_serve_and_worker(
    environment: dict[str, str], command: str, outcrop: Outcrop
) -> None:
    outcrop("migrate")
    with psycopg.connect(environment["OUTCROP_DATABASE_URL"], autocommit=True) as db:
        db.execute(
            "INSERT INTO migrations VALUES (9999, 'from the future', now(), %s)", [newest_version() + 1]
        )
    options = ["--port", "0"] if command == "serve" else []
    ran = subprocess.run(
        [sys.executable, "-m", "outcrop", command, *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1].endswith("newer than this version of Outcrop: upgrade this one")


def test_a_database_that_is_not_utf8_is_refused(outcrop: Outcrop, cluster: str, worker_id: str) -> None:
    name = f"latin_{worker_id}"
    with psycopg.connect(cluster, autocommit=True) as db:
        db.execute(f"DROP DATABASE IF EXISTS {name}")
        db.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    ran = outcrop(
        "account", "list", OUTCROP_DATABASE_URL=psycopg.conninfo.make_conninfo(cluster, dbname=name)
    )
    assert ran.code == 2
    assert "LATIN1" in ran.err


def test_the_secret_key_is_made_once_kept_private_and_must_fit(
    outcrop: Outcrop, environment: dict[str, str]
) -> None:
    outcrop("account", "list")
    file = Path(environment["OUTCROP_DATA_DIR"]) / "secret.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    made = file.read_text()
    outcrop("account", "list")
    assert file.read_text() == made
    wrong = outcrop("account", "list", OUTCROP_SECRET_KEY="some other key of enough length")
    assert (wrong.code, len(wrong.err.splitlines())) == (2, 1)
    assert "does not fit" in wrong.err
    file.unlink()
    lost = outcrop("account", "list")
    assert (lost.code, len(lost.err.splitlines())) == (2, 1)
    assert not file.exists(), "no key is made for a database that has one"
    assert outcrop("account", "list", OUTCROP_SECRET_KEY=made.strip()).code == 0
    assert outcrop("account", "list", OUTCROP_SECRET_KEY="short").code == 2


def test_rotating_replaces_the_file_and_keeps_what_is_stored_readable(
    outcrop: Outcrop, environment: dict[str, str], tmp_path: Path
) -> None:
    outcrop("account", "create", "acme", "--plan", "growth", "--email", "a@b.example")
    secret = "made-up-" + "Zk4" * 8
    (tmp_path / "one.jsonl").write_text(json.dumps(make_line(secret=secret)) + "\n")
    assert outcrop("import", "--account", "acme", "one.jsonl").code == 0
    file = Path(environment["OUTCROP_DATA_DIR"]) / "secret.key"
    old = file.read_text().strip()
    rotated = outcrop("secrets", "rotate", "--json").json
    assert rotated == {"rotated": True, "key_file": str(file), "new_key": None}
    assert file.read_text().strip() != old
    assert outcrop("account", "list").code == 0
    assert outcrop("account", "list", OUTCROP_SECRET_KEY=old).code == 2
    new = "x" * 40
    assert outcrop("secrets", "rotate", "--new-key-stdin", stdin=new + "\n").code == 0
    assert file.read_text().strip() == new
    lines = outcrop("audit", "--operator", "--action", "secrets.rotate", "--json").json
    assert [(line["actor"], line["outcome"]) for line in lines] == [("operator", "ok")] * 2
    assert outcrop("audit", "--account", "acme", "--action", "secrets.rotate", "--json").json == []
    for options in ([], ["--account", "acme", "--operator"]):
        assert outcrop("audit", *options).err == "outcrop: give either --account or --operator\n"
    # An operator who keeps the key elsewhere is shown the new one.
    shown = outcrop("secrets", "rotate", "--json", OUTCROP_SECRET_KEY=new).json
    assert outcrop("account", "list", OUTCROP_SECRET_KEY=shown["new_key"]).code == 0
    assert (
        outcrop(
            "secrets", "rotate", "--new-key-stdin", stdin="short\n", OUTCROP_SECRET_KEY=shown["new_key"]
        ).code
        == 2
    )


def test_a_rotation_that_died_before_the_file_was_renamed_is_finished(
    outcrop: Outcrop, environment: dict[str, str]
) -> None:
    outcrop("account", "list")
    file = Path(environment["OUTCROP_DATA_DIR"]) / "secret.key"
    old = file.read_text()
    outcrop("secrets", "rotate")
    new = file.read_text()
    write_key_file(file, old)
    write_key_file(file.with_name("secret.key.new"), new)
    assert outcrop("account", "list").code == 0
    assert file.read_text() == new
    write_key_file(file.with_name("secret.key.new"), old)  # died before the database was changed
    assert outcrop("account", "list").code == 0
    assert file.read_text() == new
    assert not file.with_name("secret.key.new").exists()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_key_file_that_others_can_read_is_refused(
    outcrop: Outcrop, environment: dict[str, str], mode: int
) -> None:
    outcrop("account", "list")
    file = Path(environment["OUTCROP_DATA_DIR"]) / "secret.key"
    file.chmod(mode)
    ran = outcrop("account", "list")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"outcrop: others can read the secret key in {file}: run `chmod 600 {file}`,"
        " and `outcrop secrets rotate` if somebody may have read it\n"
    )
    file.chmod(0o600)
    assert outcrop("account", "list").code == 0


def test_the_data_key_is_replaced_while_nobody_is_connected(
    outcrop: Outcrop, environment: dict[str, str], tmp_path: Path
) -> None:
    outcrop("account", "create", "acme", "--plan", "growth", "--email", "a@b.example")
    (tmp_path / "one.jsonl").write_text(json.dumps(make_line(secret="made-up-" + "Zk4" * 8)) + "\n")
    assert outcrop("import", "--account", "acme", "one.jsonl").code == 0
    key = (Path(environment["OUTCROP_DATA_DIR"]) / "secret.key").read_text()
    with psycopg.connect(environment["OUTCROP_DATABASE_URL"]) as db:
        before = db.execute("SELECT secret_box FROM findings").fetchall()
        refused = outcrop("secrets", "rotate", "--data-key")
        assert (refused.code, refused.err) == (
            2,
            "outcrop: 1 other connection to the database: stop the service and all other programs first\n",
        )
    rotated = outcrop("secrets", "rotate", "--data-key", "--json").json
    assert rotated == {"rotated": True, "values": 1, "damaged": 0}
    with psycopg.connect(environment["OUTCROP_DATABASE_URL"]) as db:
        assert db.execute("SELECT secret_box FROM findings").fetchall() != before
    assert (Path(environment["OUTCROP_DATA_DIR"]) / "secret.key").read_text() == key
    assert outcrop("doctor", "--json").json[3] == {
        "check": "encrypted values",
        "ok": True,
        "detail": "all 1 can be decrypted",
    }
    lines = outcrop("audit", "--account", "acme", "--json").json
    assert "secrets.rotate" not in [line["action"] for line in lines], "it is the operator's"
    combined = outcrop("secrets", "rotate", "--data-key", "--new-key-stdin")
    assert (combined.code, combined.err) == (
        2,
        "outcrop: --data-key cannot be combined with --new-key-stdin\n",
    )


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["{}"], "line 1: is not a finding"),
        (['{"secret": "made-up"}', "{"], "line 2: is not JSON"),
        (['{"secret": "made-up"}', "", "[1]"], "line 3: is not a JSON object"),
        (['{"status": "open"}'], "line 1: status:"),
        (['{"composite_score": 101}'], "line 1: composite_score:"),
        (['{"composite_score": "5"}'], "line 1: composite_score:"),
        (['{"id": "5"}'], "line 1: id:"),
        (['{"matched_text": "plain text credential"}'], "line 1: matched_text"),
        (['{"first_seen_at": 20240101}'], "line 1: first_seen_at:"),
        (['{"source_url": "a\\u0000b"}'], "line 1: source_url:"),
        (['{"source_url": "\\ud800"}'], "line 1: is not JSON"),
        (
            ['{"validation_detail": {"enabled_services": "aws"}}'],
            "line 1: validation_detail.enabled_services:",
        ),
        (['{"resolution_note": "' + "n" * 501 + '"}'], "line 1: resolution_note:"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_imported(outcrop: Outcrop, lines: list[str], said: str) -> None:
    outcrop("account", "create", "acme", "--plan", "growth", "--email", "a@b.example")
    good = [json.dumps(make_line()) for _ in range(3)]
    ran = outcrop("import", "--account", "acme", "-", stdin="\n".join(lines) + "\n")
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert outcrop("import", "--account", "acme", "-", "--json", stdin="\n".join(good)).json == {
        "lines": 3,
        "new": 3,
        "updated": 0,
    }


def test_the_value_of_a_bad_line_is_never_repeated(outcrop: Outcrop) -> None:
    outcrop("account", "create", "acme", "--plan", "growth", "--email", "a@b.example")
    secret = "made-up-" + "Zk4" * 8
    for line in (
        {"secret": secret, "status": secret},
        {"secret": [secret]},
        {"matched_text": secret},
        {"id": secret},
    ):
        ran = outcrop("import", "--account", "acme", "-", stdin=json.dumps(line))
        assert ran.code == 2
        assert secret not in ran.err


def test_a_file_or_account_that_is_not_there_is_one_line(outcrop: Outcrop) -> None:
    assert (
        outcrop("import", "--account", "acme", "missing.jsonl").err
        == "outcrop: cannot read missing.jsonl: No such file or directory\n"
    )
    assert outcrop("import", "--account", "acme", "-").code == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OUTCROP_BASE_URL", "http://outcrop.example.com"),
        ("OUTCROP_BASE_URL", "nonsense"),
        ("OUTCROP_RATE_LIMIT_PER_MINUTE", "-1"),
        ("OUTCROP_RATE_LIMIT_PER_MINUTE", "many"),
        ("OUTCROP_TRUSTED_PROXIES", "10.0.0.0/8,nonsense"),
        ("OUTCROP_LOG_LEVEL", "loud"),
        ("OUTCROP_DATABASE_URL", "postgresql://127.0.0.1:1/nothing"),
        ("OUTCROP_DATABASE_URL", "garbage"),
    ],
)
def test_a_wrong_setting_is_named_in_one_line(outcrop: Outcrop, name: str, value: str) -> None:
    ran = outcrop("account", "list", **{name: value})
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.strip().splitlines()) == 1
    assert name in ran.err or "database" in ran.err


def test_serving_in_the_clear_beyond_loopback_is_refused(outcrop: Outcrop) -> None:
    for call in (
        ("serve", "--host", "0.0.0.0"),
        ("serve", "--tls-cert", "missing.pem"),
        ("serve", "--tls-cert", "a", "--tls-key", "b"),
    ):
        ran = outcrop(*call)
        assert (ran.code, ran.out) == (2, ""), ran.err
        assert len(ran.err.strip().splitlines()) == 1


def lines_without_updated_at(ran: Ran) -> list[dict[str, object]]:
    """Return the lines of an export. `updated_at` is the time of the import, an incident is the account's."""
    return [json.loads(line) | {"updated_at": None, "incident_id": None} for line in ran.out.splitlines()]


def test_export_gives_back_what_import_took_and_an_unknown_account_is_one_line(
    outcrop: Outcrop, tmp_path: Path
) -> None:
    outcrop("account", "create", "acme", "--plan", "growth", "--email", "a@acme.example")
    outcrop("account", "create", "copy", "--plan", "growth", "--email", "c@acme.example")
    given = [make_line(file_path=f"{n}.py") for n in range(3)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in given))
    outcrop("import", "--account", "acme", "in.jsonl")
    out = outcrop("export", "--account", "acme", "--format", "jsonl")
    assert (out.code, out.err) == (0, "")
    assert {line["id"] for line in map(json.loads, out.out.splitlines())} == {line["id"] for line in given}
    (tmp_path / "out.jsonl").write_text(out.out)
    assert outcrop("import", "--account", "copy", "out.jsonl", "--json").json == {
        "lines": 3,
        "new": 3,
        "updated": 0,
    }
    copied = outcrop("export", "--account", "copy", "--format", "jsonl")
    assert lines_without_updated_at(copied) == lines_without_updated_at(out)
    assert outcrop("export", "--account", "acme", "--format", "csv").out.startswith('"id","status",')
    nobody = outcrop("export", "--account", "nobody", "--format", "sarif")
    assert (nobody.code, nobody.out, nobody.err.count("\n")) == (2, "", 1)
    assert outcrop("export", "--account", "acme", "--format", "xml").code == 2
