"""A folder that is scanned may bring settings of its own, and they must not decide where credentials go."""

import pytest

from outcrop.settings import load_environment_settings, load_settings

FOREIGN = """
OUTCROP_GITHUB_API_URL=https://api.foreign.example
OUTCROP_EGRESS_ALLOW=10.0.0.0/8
OUTCROP_EGRESS_CONNECT_TO=api.github.com:443=127.0.0.1:9
OUTCROP_VALIDATE=full
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    for name in ("GITHUB_API_URL", "EGRESS_ALLOW", "EGRESS_CONNECT_TO", "VALIDATE", "EGRESS_CLOSED"):
        monkeypatch.delenv(f"OUTCROP_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_of_settings_in_what_is_scanned_opens_nothing(here):
    usual = load_environment_settings()
    (here / ".env").write_text(FOREIGN)
    assert load_settings().github_api_url == "https://api.foreign.example", (
        "the file is one that the service would read"
    )
    assert load_environment_settings() == usual


def test_what_it_forbids_is_forbidden(here):
    (here / ".env").write_text("OUTCROP_VALIDATE=off\nOUTCROP_EGRESS_CLOSED=true\n")
    settings = load_environment_settings()
    assert (settings.validate_, settings.egress_closed) == ("off", True)


def test_one_that_cannot_be_read_asks_nobody_and_ends_nothing(here):
    (here / ".env").write_text("OUTCROP_VALIDATE=perhaps\n")
    assert load_environment_settings().validate_ == "off"


def test_the_environment_counts(here, monkeypatch):
    monkeypatch.setenv("OUTCROP_GITHUB_API_URL", "https://github.corp.example/api/v3")
    assert load_environment_settings().github_api_url == "https://github.corp.example/api/v3"
