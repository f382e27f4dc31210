"""A zip that is appended to a script is unpacked in a folder, in a history and on standard input."""

import io
import random
import zipfile
from pathlib import Path

import pytest

from tests.sources.conftest import Outcrop, Repo, Scan, Scanned, token

BEFORE, INSIDE = token("before"), token("inside")
EXPECTED = [("app.jar", BEFORE, 2), ("app.jar!in/b.txt", INSIDE, 301)]


def script_with_zip(size: int) -> bytes:
    """Return a script and an appended zip of at least `size` bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("in/b.txt", "a line\n" * 300 + f"token = {INSIDE}\n")
        archive.writestr("noise", random.Random(1).randbytes(size))
    return f"#!/bin/sh\ntoken={BEFORE}\nexit\n".encode() + out.getvalue()


def places(scanned: Scanned) -> list[tuple[str, str, int]]:
    """Return path, value and line of each finding."""
    return [
        (finding["file_path"], secret, finding["line_number"])
        for finding, secret in zip(scanned.findings, scanned.secrets, strict=True)
    ]


@pytest.mark.parametrize("size", [100, 3 << 20, 5 << 20, 33 << 20])
def test_an_appended_zip_is_unpacked_in_a_folder(tmp_path: Path, scan: Scan, size: int) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "app.jar").write_bytes(script_with_zip(size))
    (tmp_path / "x" / "notes.txt").write_text("nothing\n")
    scanned = scan(tmp_path / "x", jobs=2)
    assert places(scanned) == EXPECTED
    assert scanned.gaps == []


@pytest.mark.parametrize("size", [100, 3 << 20])
@pytest.mark.parametrize("packed", [False, True])
def test_an_appended_zip_is_unpacked_in_a_history(repo: Repo, scan: Scan, size: int, *, packed: bool) -> None:
    repo.commit({"app.jar": script_with_zip(size), "notes.txt": "nothing\n"})
    repo.commit(remove=("app.jar",))
    if packed:
        repo.git("gc", "--quiet")
    scanned = scan(repo.path)
    assert places(scanned) == EXPECTED


@pytest.mark.parametrize("size", [100, 33 << 20])
def test_an_appended_zip_is_unpacked_on_standard_input(outcrop: Outcrop, size: int) -> None:
    ran = outcrop("scan", "--json", "--no-validate", "-", given=script_with_zip(size))
    found = [(finding["file_path"], finding["line_number"]) for finding in ran.findings]
    assert found == [("-", 2), ("-!in/b.txt", 301)]
    assert ran.err == ""
