"""Scans with closed or full streams, or without git: one line of error and the right exit code."""

import os
import resource
import subprocess
from pathlib import Path

import pytest

from tests.sources.conftest import Outcrop, Repo, token

FIRST = token("first")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "ä日").write_text(FIRST)
    return folder


@pytest.mark.parametrize("closed", [0, 1, 2])
@pytest.mark.parametrize("kind", ["table", "json", "sarif"])
def test_a_closed_stream_is_no_failure(folder: Path, outcrop: Outcrop, closed: int, kind: str) -> None:
    ran = outcrop("scan", "--no-validate", "--format", kind, folder, "-", before=lambda: os.close(closed))
    assert (ran.code, ran.err) == (1, "")
    assert bool(ran.out) == (closed != 1)


@pytest.mark.parametrize(("name", "code"), [("folder", 1), ("empty", 0), ("nowhere", 2)])
@pytest.mark.parametrize("kind", ["table", "json"])
def test_a_reader_that_has_gone_changes_no_exit_code(
    folder: Path, command: tuple[list[str], dict[str, str]], kind: str, name: str, code: int
) -> None:
    (folder.parent / "empty").mkdir()
    reading, writing = os.pipe()
    os.close(reading)
    program, environment = command
    arguments = [*program, "scan", "--no-validate", "--format", kind, name]
    ran = subprocess.run(
        arguments, env=environment, cwd=folder.parent, stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (ran.returncode, b"Broken" in ran.stderr, ran.stderr.count(b"\n")) == (code, False, code // 2)


@pytest.mark.parametrize("kind", ["table", "json", "sarif"])
def test_an_output_that_cannot_be_written_is_one_line_and_code_2(
    folder: Path, command: tuple[list[str], dict[str, str]], kind: str
) -> None:
    program, environment = command
    with Path("/dev/full").open("wb") as full:
        arguments = [*program, "scan", "--no-validate", "--format", kind, str(folder)]
        ran = subprocess.run(arguments, env=environment, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (ran.returncode, ran.stderr) == (
        2,
        b"outcrop: cannot write the output: no space left on device\n",
    )


def test_a_name_that_the_output_cannot_encode_is_printed_with_escapes(folder: Path, outcrop: Outcrop) -> None:
    ran = outcrop("scan", "--no-validate", folder, PYTHONIOENCODING="ascii")
    assert (ran.code, ran.err) == (1, "")
    assert rb"\xe4\u65e5:1" in ran.out


def test_without_git_folders_are_scanned_and_repositories_are_an_error(
    folder: Path, outcrop: Outcrop, tmp_path: Path
) -> None:
    repo = Repo(tmp_path / "repo")
    repo.commit({"a": FIRST})
    ran = outcrop("scan", "--no-validate", "--json", repo.path, folder, PATH="/nonexistent")
    assert (ran.code, ran.err) == (2, "outcrop: git is needed to read a repository, and none is installed\n")
    assert [finding["file_path"] for finding in ran.findings] == ["ä日"]


def test_too_many_open_files_are_one_line_of_error(tmp_path: Path, outcrop: Outcrop) -> None:
    repo = Repo(tmp_path / "repo")
    repo.commit({"a": FIRST})
    ran = outcrop(
        "scan",
        "--no-validate",
        "--json",
        repo.path,
        before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10)),
    )
    assert (ran.code, ran.out, ran.err.count("\n"), "Traceback" in ran.err) == (2, b"[]\n", 1, False)
