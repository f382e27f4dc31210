"""Where settings come from: never from the current folder, because it may be somebody else's repository."""

import os
from pathlib import Path

import pytest

from outcrop.domain.errors import OperatorError
from outcrop.settings import Settings
from outcrop.settings_sources import load_settings
from tests.support.command import Ran, run

WARNING = (
    "outcrop: warning: the settings in .env of this folder are not read; use --env-file FILE, or outcrop.env"
    " in the data folder\n"
)
ABSENT = "outcrop: --env-file absent: no such file\n"
FOREIGN = """
OUTCROP_GITHUB_API_URL=https://api.foreign.example
OUTCROP_EGRESS_ALLOW=10.0.0.0/8
OUTCROP_EGRESS_CONNECT_TO=api.github.com:443=127.0.0.1:9
OUTCROP_VALIDATE=full
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder; the environment has only OUTCROP_DATA_DIR, which names `data` beside it."""
    for name in [name for name in os.environ if name.startswith("OUTCROP_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "repository"
    folder.mkdir()
    (tmp_path / "data").mkdir(mode=0o700)
    monkeypatch.setenv("OUTCROP_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(folder)
    return folder


def outcrop(*arguments: str | Path, here: Path) -> Ran:
    return run(*arguments, folder=here, cache=here.parent / "cache")


def settings_file(here: Path) -> Path:
    """Return the path of the settings file in the data folder."""
    return here.parent / "data" / "outcrop.env"


def test_a_file_in_the_current_folder_sets_nothing(here: Path) -> None:
    usual = load_settings()
    (here / ".env").write_text(FOREIGN)
    (here / "outcrop.env").write_text(FOREIGN)
    assert load_settings() == usual


def test_programs_that_a_cloned_repository_names_are_not_run(here: Path) -> None:
    (here / ".env").write_text("OUTCROP_POSTGRES_BIN=./pgbin\n")
    programs = here / "pgbin"
    programs.mkdir()
    for name in ("initdb", "pg_ctl", "postgres"):
        (programs / name).write_text(f"#!/bin/sh\ntouch {here}/ran\nexit 1\n")
        (programs / name).chmod(0o755)
    ran = outcrop("scan", "--account", "acme", ".", here=here)
    assert not (here / "ran").exists()
    assert (ran.code, ran.err) == (2, WARNING + "outcrop: there is no account 'acme'\n")


def test_the_ignored_file_causes_one_warning(here: Path) -> None:
    (here / ".env").write_text("A=1\nexport OUTCROP_VALIDATE=off\nOUTCROP_LOG_LEVEL=debug\n")
    assert outcrop("--env-file", "absent", "account", "list", here=here).err == WARNING + ABSENT


@pytest.mark.parametrize("content", ["A=1\n", "# OUTCROP_VALIDATE=off\n", "MY_OUTCROP_VALIDATE=off\n", None])
def test_a_file_without_settings_causes_no_warning(here: Path, content: str | None) -> None:
    if content is not None:
        (here / ".env").write_text(content)
    assert outcrop("--env-file", "absent", "account", "list", here=here).err == ABSENT


def test_a_pipe_of_that_name_is_not_waited_for(here: Path) -> None:
    os.mkfifo(here / ".env")
    assert outcrop("--env-file", "absent", "account", "list", here=here).err == ABSENT


def test_the_environment_wins_then_the_named_file_then_the_data_folder(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = here / "named.env"
    settings_file(here).write_text("OUTCROP_NOTICE=c\nOUTCROP_LOG_LEVEL=debug\nOUTCROP_VALIDATE=off\n")
    named.write_text("OUTCROP_NOTICE=b\nOUTCROP_LOG_LEVEL=error\nOUTCROP_VALIDATE=\n")
    monkeypatch.setenv("OUTCROP_NOTICE", "a")
    settings = load_settings(named)
    assert (settings.notice, settings.log_level, settings.validate_) == ("a", "error", "off")
    assert load_settings().log_level == "debug"


def test_the_named_file_can_name_the_data_folder_whose_file_is_read(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OUTCROP_DATA_DIR")
    settings_file(here).write_text("OUTCROP_NOTICE=from the folder\n")
    (here / "named.env").write_text("OUTCROP_DATA_DIR=../data\n")
    settings = load_settings(Path("named.env"))
    assert (os.path.realpath(settings.data_dir), settings.notice) == (
        os.path.realpath(here.parent / "data"),
        "from the folder",
    )


def test_the_file_in_the_data_folder_cannot_name_another_one(here: Path) -> None:
    settings_file(here).write_text("OUTCROP_DATA_DIR=/elsewhere\n")
    with pytest.raises(OperatorError, match="OUTCROP_DATA_DIR cannot be set in this file"):
        load_settings()
    settings_file(here).write_text(f"OUTCROP_DATA_DIR={here.parent / 'data'}\n")
    assert load_settings() == Settings(data_dir=here.parent / "data")


def test_a_relative_path_starts_at_the_folder_of_its_file(here: Path) -> None:
    settings_file(here).write_text("OUTCROP_POSTGRES_BIN=pgbin\n")
    assert load_settings().postgres_bin == here.parent / "data" / "pgbin"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--env-file", "absent"], "--env-file absent: no such file"),
        (["--env-file=wrong.env"], "OUTCROP_VALIDATE: must be off, safe or full"),
        (["--env-file", "binary.env"], "cannot read the settings in {here}/binary.env: it is not UTF-8"),
        (["--env-file", "."], "cannot read the settings in {here}: is a directory"),
    ],
)
def test_a_wrong_file_is_one_line(here: Path, arguments: list[str], line: str) -> None:
    (here / "wrong.env").write_text("OUTCROP_VALIDATE=perhaps\n")
    (here / "binary.env").write_bytes(b"OUTCROP_NOTICE=\xff\n")
    ran = outcrop(*arguments, "account", "list", here=here)
    assert (ran.code, ran.err) == (2, f"outcrop: {line.format(here=here)}\n")


def test_a_file_that_is_named_is_read_without_a_warning(here: Path) -> None:
    (here / ".env").write_text("OUTCROP_VALIDATE=perhaps\n")
    ran = outcrop("--env-file", ".env", "account", "list", here=here)
    assert ran.err == "outcrop: OUTCROP_VALIDATE: must be off, safe or full\n"
