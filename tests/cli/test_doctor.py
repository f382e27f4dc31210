"""`outcrop doctor` names what is wrong with the machine and the settings, and still checks the rest."""

import asyncio
import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from outcrop.domain import clock
from outcrop.runtime import prepare_database
from outcrop.settings import SecretText, Settings
from outcrop.store import disk
from tests.support.command import Ran, run
from tests.support.databases import migrated_database
from tests.support.deliveries import SECRET_KEY
from tests.support.rulesets import cached_in
from tests.support.servers import free_port

Doctor = Callable[..., tuple[Ran, dict[str, Any]]]


@pytest.fixture(scope="module")
def own_database(cluster: str, worker_id: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Migrate a database that no other test writes to: `doctor` checks the rows of all accounts."""
    url = migrated_database(cluster, f"doctor_{worker_id}")
    made = Settings(
        database_url=url, data_dir=tmp_path_factory.mktemp("doctor"), secret_key=SecretText(SECRET_KEY)
    )
    asyncio.run(prepare_database(made, url))
    return made


@pytest.fixture
def doctor(own_database: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """Return a function that runs the command with these variables, and returns its checks by name too."""
    settings = own_database
    assert settings.database_url is not None
    assert settings.secret_key is not None
    monkeypatch.setenv("OUTCROP_DATA_DIR", str(settings.data_dir))
    monkeypatch.setenv("OUTCROP_DATABASE_URL", settings.database_url)
    monkeypatch.setenv("OUTCROP_SECRET_KEY", settings.secret_key.get_secret_value())

    def check(**variables: str) -> tuple[Ran, dict[str, Any]]:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            ran = run("doctor", "--json", folder=tmp_path, cache=cached_in(tmp_path / "cache"))
        return ran, {record["check"]: record for record in ran.json}

    return check


def test_every_part_is_checked(doctor: Doctor) -> None:
    ran, checks = doctor()
    assert ran.code == 0, ran.out
    assert {"database", "schema", "clock", "settings", "git", "rules", "egress", "disk", "sandbox"} <= set(
        checks
    )
    assert all(set(record) == {"check", "ok", "detail"} for record in ran.json)
    assert all(record["ok"] is True for record in ran.json)


@pytest.mark.parametrize(
    ("variables", "check", "detail"),
    [
        ({"OUTCROP_VALIDAT": "off"}, "settings", "did you mean OUTCROP_VALIDATE?"),
        ({"OUTCROP_HOST": "0.0.0.0"}, "settings", "OUTCROP_BASE_URL must be https"),
        ({"OUTCROP_RULES": "/nonexistent/rules"}, "rules", "/nonexistent/rules"),
        ({"OUTCROP_EGRESS_CA_FILE": "/etc/hostname"}, "egress", "OUTCROP_EGRESS_CA_FILE: "),
        ({"OUTCROP_EGRESS_SOURCE": "192.0.2.1"}, "egress", "OUTCROP_EGRESS_SOURCE: "),
        ({"PATH": "/nonexistent"}, "git", "not installed"),
    ],
)
def test_what_is_wrong_is_named(doctor: Doctor, variables: dict[str, str], check: str, detail: str) -> None:
    ran, checks = doctor(**variables)
    assert ran.code == 2
    assert checks[check]["ok"] is False
    assert detail in checks[check]["detail"]
    assert [name for name, record in checks.items() if not record["ok"]] == [check]


def test_without_a_database_the_machine_is_still_checked(doctor: Doctor) -> None:
    ran, checks = doctor(OUTCROP_DATABASE_URL=f"postgresql://me:a-password@127.0.0.1:{free_port()}/outcrop")
    assert ran.code == 2
    assert "a-password" not in ran.out + ran.err
    assert checks["database"]["ok"] is False
    assert checks["git"]["ok"] is True
    (line,) = ran.err.splitlines()
    assert line.startswith("outcrop: cannot reach the database: ")


def test_a_setting_with_a_wrong_value_is_a_failed_check(doctor: Doctor) -> None:
    ran, checks = doctor(OUTCROP_PORT="http")
    assert ran.code == 2
    assert list(checks) == ["settings"]
    assert checks["settings"]["detail"].startswith("OUTCROP_PORT: ")


def test_a_wrong_clock_fails(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = datetime.now(UTC) + timedelta(minutes=3)
    monkeypatch.setattr(clock, "now", lambda: wrong)
    ran, checks = doctor()
    assert ran.code == 2
    assert checks["clock"]["ok"] is False
    assert checks["clock"]["detail"].startswith("+1")


def test_a_full_disk_fails(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "count_free_bytes", lambda _: 50 << 20)
    _, checks = doctor()
    assert checks["disk"]["ok"] is False
    assert checks["disk"]["detail"].startswith("data folder: 50 MB free")


def test_an_old_git_fails(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    git = tmp_path / "bin" / "git"
    git.write_text("#!/bin/sh\necho git version 1.8.3.1\n")
    git.chmod(git.stat().st_mode | stat.S_IXUSR)
    ran, checks = doctor(PATH=f"{git.parent}{os.pathsep}{os.environ['PATH']}")
    assert ran.code == 2
    assert checks["git"]["detail"] == "git version 1.8.3.1: 2.30 or newer is needed"
