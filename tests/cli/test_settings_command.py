"""`outcrop settings`, secrets from files, names that are no setting, and the default data folder."""

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from outcrop.domain.errors import OperatorError
from outcrop.settings import SecretText, Settings
from outcrop.settings_sources import default_data_dir, load_settings
from tests.support.command import Ran, run


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the data folder. The environment has no other setting."""
    for name in [name for name in os.environ if name.startswith("OUTCROP_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("OUTCROP_DATA_DIR", str(folder))
    return folder


def outcrop(*arguments: str, data: Path) -> Ran:
    return run(*arguments, folder=data.parent, cache=data.parent / "cache")


def test_every_setting_is_printed_with_its_value_source_and_default(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTCROP_NOTICE", "Maintenance at noon")
    monkeypatch.setenv("OUTCROP_SECRET_KEY", "correct horse battery staple")
    (data / "outcrop.env").write_text("OUTCROP_WEBHOOK_PORTS=443, 8443\nOUTCROP_EGRESS_CLOSED=1\n")
    ran = outcrop("settings", "--json", data=data)
    assert (ran.code, ran.err) == (0, "")
    assert "horse" not in ran.out
    assert len(ran.json) == len(fields(Settings))
    shown = {record["setting"]: (record["value"], record["source"], record["default"]) for record in ran.json}
    stored = str(data / "outcrop.env")
    assert shown["OUTCROP_NOTICE"] == ("Maintenance at noon", "environment", None)
    assert shown["OUTCROP_SECRET_KEY"] == ("********", "environment", None)
    assert shown["OUTCROP_DATABASE_URL"] == (None, "default", None)
    assert shown["OUTCROP_WEBHOOK_PORTS"] == ("443,8443", stored, None)
    assert shown["OUTCROP_EGRESS_CLOSED"] == ("true", stored, "false")
    assert shown["OUTCROP_VALIDATE"] == ("safe", "default", "safe")
    assert shown["OUTCROP_PORT"] == ("8000", "default", "8000")


def test_every_typed_secret_is_among_the_secrets() -> None:
    typed = {field.name for field in fields(Settings) if SecretText.__name__ in str(field.type)}
    assert typed <= set(Settings.SECRET)


def test_a_secret_is_read_from_the_file_that_a_variable_names(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data / "key").write_text("0123456789abcdef\n")
    (data / "token").write_text("made-up token\r\n")
    monkeypatch.setenv("OUTCROP_SECRET_KEY_FILE", str(data / "key"))
    (data / "outcrop.env").write_text(
        "OUTCROP_SECRET_KEY=another key of enough characters\nOUTCROP_GITHUB_TOKEN_FILE=token\n"
    )
    settings = load_settings()
    assert settings.secret_key is not None
    assert settings.secret_key.get_secret_value() == "0123456789abcdef", "the environment wins"
    assert settings.github_token is not None
    assert settings.github_token.get_secret_value() == "made-up token"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "OUTCROP_SECRET_KEY_FILE: cannot read {file}: no such file or directory"),
        (b"\n", "OUTCROP_SECRET_KEY_FILE: {file} is empty"),
        (b"a" * 100_000, "OUTCROP_SECRET_KEY_FILE: {file} is too large"),
        (b"\xff" * 20, "OUTCROP_SECRET_KEY_FILE: cannot read {file}: it is not UTF-8"),
    ],
)
def test_a_wrong_secret_file_is_one_line(
    data: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, line: str
) -> None:
    file = data / "key"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("OUTCROP_SECRET_KEY_FILE", str(file))
    ran = outcrop("settings", data=data)
    assert (ran.code, ran.out, ran.err) == (2, "", f"outcrop: {line.format(file=file)}\n")


def test_a_value_and_a_file_in_one_place_are_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTCROP_SECRET_KEY", "0123456789abcdef")
    monkeypatch.setenv("OUTCROP_SECRET_KEY_FILE", str(data / "key"))
    with pytest.raises(OperatorError, match="OUTCROP_SECRET_KEY and OUTCROP_SECRET_KEY_FILE are both set"):
        load_settings()


def test_names_that_are_no_setting_are_warned_about_once_with_the_nearest(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTCROP_VALIDAT", "off")
    monkeypatch.setenv("OUTCROP_SECRET_KEY_FIL", "/run/key")
    monkeypatch.setenv("OUTCROP_BASE_URL_FILE", "/run/url")  # only secrets are read from files
    (data / "outcrop.env").write_text("OUTCROP_COLOUR_OF_THE_BIKESHED=red\nOTHER=1\n")
    ran = outcrop("settings", data=data)
    assert ran.code == 0
    assert sorted(ran.err.splitlines()) == [
        "outcrop: warning: OUTCROP_BASE_URL_FILE is not a setting; did you mean OUTCROP_BASE_URL?",
        "outcrop: warning: OUTCROP_COLOUR_OF_THE_BIKESHED is not a setting",
        "outcrop: warning: OUTCROP_SECRET_KEY_FIL is not a setting; did you mean OUTCROP_SECRET_KEY_FILE?",
        "outcrop: warning: OUTCROP_VALIDAT is not a setting; did you mean OUTCROP_VALIDATE?",
    ]


def test_the_default_data_folder_follows_xdg_unless_the_older_one_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    old = tmp_path / ".local/share/outcrop"
    assert default_data_dir({}) == (old, None)
    assert default_data_dir({"XDG_DATA_HOME": "relative"}) == (old, None)
    assert default_data_dir({"XDG_DATA_HOME": "/var/data"}) == (Path("/var/data/outcrop"), None)
    old.mkdir(parents=True)
    folder, note = default_data_dir({"XDG_DATA_HOME": "/var/data"})
    assert folder == old
    assert note is not None
    assert "/var/data/outcrop" in note
    assert default_data_dir({"XDG_DATA_HOME": str(tmp_path / ".local/share")}) == (old, None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take another user id")
def test_a_user_id_without_a_home_needs_the_data_folder_named() -> None:
    # The user id is taken after the imports: the folder of Python may be closed to it.
    code = (
        "import os; from outcrop.settings_sources import load_settings; os.setuid(47_111)\n"
        "print(load_settings().data_dir)"
    )
    environment = {"PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "this user has no home folder; set OUTCROP_DATA_DIR" in ran.stderr
    environment["OUTCROP_DATA_DIR"] = "/nowhere/outcrop"
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "/nowhere/outcrop\n"
