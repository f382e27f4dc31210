"""The demo's account: it shares no database with anybody, for stand-ins would answer for them."""

from pathlib import Path

import pytest

from outcrop.cli.run_demo import demo_settings
from outcrop.demo.account import find_account
from outcrop.domain.clock import now
from outcrop.domain.errors import OperatorError
from outcrop.runtime import CommandSession
from tests.support.backend import Backend


def test_a_database_that_others_use_is_not_touched(backend: Backend) -> None:
    backend.tenant()
    before = backend.sql("SELECT count(*) FROM accounts")
    with pytest.raises(OperatorError, match="set OUTCROP_DATA_DIR to another folder"):
        backend.run(lambda db: find_account(CommandSession(db, backend.keys, now()), now()))
    assert backend.sql("SELECT count(*) FROM accounts") == before


def test_the_demo_has_a_folder_of_its_own_unless_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert demo_settings().data_dir == tmp_path / ".local/share/outcrop/demo"
    monkeypatch.setenv("OUTCROP_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("OUTCROP_BASE_URL", "https://outcrop.example.com")
    assert demo_settings().data_dir == tmp_path / "data"
    assert demo_settings().base_url is None, "the demo is for this machine"
