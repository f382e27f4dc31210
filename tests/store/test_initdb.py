"""initdb for a user id that has no name: copies of the programs that do not ask for it."""

import os
import pwd
from pathlib import Path

import pytest

from outcrop.domain.errors import OperatorError
from outcrop.store.embedded.binaries import USER_NAMESPACE, PostgresPrograms, find_programs
from outcrop.store.embedded.initdb import open_initdb


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(user: int) -> pwd.struct_passwd:
        raise KeyError(user)

    monkeypatch.setattr(pwd, "getpwuid", unknown)


def test_a_user_with_a_name_runs_the_programs_themselves(tmp_path: Path) -> None:
    programs = find_programs(None)
    with open_initdb(programs, tmp_path) as initdb:
        assert initdb is programs


@pytest.mark.usefixtures("nameless")
def test_a_user_in_a_namespace_has_a_name_there(tmp_path: Path) -> None:
    programs = PostgresPrograms(Path("/bin"), 18, USER_NAMESPACE)
    with open_initdb(programs, tmp_path) as initdb:
        assert initdb is programs


@pytest.mark.usefixtures("nameless")
def test_the_copies_run_and_are_removed(tmp_path: Path) -> None:
    programs = find_programs(None)
    with open_initdb(programs, tmp_path) as initdb:
        assert initdb.bin_dir.is_relative_to(tmp_path)
        for name in ("initdb", "postgres"):
            code, text = initdb.run(name, "--version")
            assert code == 0, text
            assert f" {programs.major}." in text
            assert b"\0getpwuid\0" not in (initdb.bin_dir / name).read_bytes()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("nameless")
def test_programs_that_cannot_be_changed_are_an_error(tmp_path: Path) -> None:
    bin_dir = tmp_path / "pg" / "install" / "bin"
    bin_dir.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        (bin_dir / name).write_text("#!/bin/sh\n")
    home = tmp_path / "home"
    home.mkdir()
    with (
        pytest.raises(OperatorError, match=rf"an entry for the user id {os.geteuid()} in /etc/passwd"),
        open_initdb(PostgresPrograms(bin_dir, 18), home),
    ):
        pass
    assert list(home.iterdir()) == []
