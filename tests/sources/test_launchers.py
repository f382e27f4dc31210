"""A zip behind a script is unpacked wherever it lies: in a folder, in a history, on standard input, however large."""

import io
import random
import zipfile
from pathlib import Path

import pytest

from tests.sources.conftest import Outcrop, Repo, Scan, Scanned, token

BEFORE, INSIDE = token("before"), token("inside")
EXPECTED = [("app.jar", BEFORE, 2), ("app.jar!in/b.txt", INSIDE, 301)]


def launched(size: int) -> bytes:
    """A script and a zip behind it, of at least so many bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("in/b.txt", "a line\n" * 300 + f"token = {INSIDE}\n")
        archive.writestr("noise", random.Random(1).randbytes(size))
    return f"#!/bin/sh\ntoken={BEFORE}\nexit\n".encode() + out.getvalue()


def places(scanned: Scanned) -> list[tuple[str, str, int]]:
    return [
        (one["file_path"], secret, one["line_number"])
        for one, secret in zip(scanned.findings, scanned.secrets, strict=True)
    ]


@pytest.mark.parametrize("size", [100, 3 << 20, 5 << 20, 33 << 20])
def test_in_a_folder(tmp_path: Path, scan: Scan, size: int) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "app.jar").write_bytes(launched(size))
    (tmp_path / "x" / "notes.txt").write_text("nothing\n")
    scanned = scan(tmp_path / "x", jobs=2)
    assert places(scanned) == EXPECTED
    assert scanned.gaps == []


@pytest.mark.parametrize("size", [100, 3 << 20])
@pytest.mark.parametrize("packed", [False, True])
def test_in_a_history(repo: Repo, scan: Scan, size: int, *, packed: bool) -> None:
    repo.commit({"app.jar": launched(size), "notes.txt": "nothing\n"})
    repo.commit(remove=("app.jar",))
    if packed:
        repo.git("gc", "--quiet")
    scanned = scan(repo.path)
    assert places(scanned) == EXPECTED


@pytest.mark.parametrize("size", [100, 33 << 20])
def test_on_standard_input(outcrop: Outcrop, size: int) -> None:
    ran = outcrop("scan", "--json", "--no-validate", "-", given=launched(size))
    assert [(one["file_path"], one["line_number"]) for one in ran.findings] == [("-", 2), ("-!in/b.txt", 301)]
    assert ran.err == ""
