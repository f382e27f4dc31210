"""A zip after a script, a program or another zip is unpacked, and the data before it is scanned."""

import gzip
import io
import random
import struct
import zipapp
import zipfile
from pathlib import Path

import pytest

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.excerpt import excerpts_of_file
from outcrop.scanner.engine.scan import ScanResult, ScanSizes, scan_content, scan_stream
from outcrop.scanner.text.archive_members import UnpackBudget
from outcrop.scanner.text.archives import unpack_texts
from outcrop.scanner.text.magic import ZIP_TAIL_BYTES, ends_with_zip, needs_unpacking
from tests.support.rulesets import github_token, ruleset

INSIDE, BEFORE = (github_token(seed).encode() for seed in ("inside a zip", "before a zip"))
SCRIPT = b"#!/bin/bash\n# a launcher\ntoken=" + BEFORE + b"\nexec java -jar $0\nexit 0\n"
PROGRAM = b"\x7fELF\2\1\1" + bytes(9) + random.Random(1).randbytes(20_000)


def zipped(members: dict[str, bytes], comment: bytes = b"", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a zip with these members."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
        archive.comment = comment
    return out.getvalue()


MEMBER = b"".join(b"line %d\n" % number for number in range(200)) + b"token = " + INSIDE + b"\n"
ZIP = zipped({"a/b.txt": MEMBER})
TEXT_LINE = b"x" * 40 + b"\n"


def located_hits(found: ScanResult) -> list[tuple[str, bytes, int, int]]:
    """Return member name, value, line and column of each hit."""
    return [(name, reveal(hit.secret).encode(), hit.line, hit.column) for name, hit in found.hits]


def scan_without_gaps(data: bytes) -> list[tuple[str, bytes, int, int]]:
    """Return the located hits of a file, whose scan must have no gaps."""
    found = scan_content(ruleset(), data, Confidence.MEDIUM)
    assert found.gaps == []
    return located_hits(found)


IN_MEMBER = ("a/b.txt", INSIDE, 201, 9)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (SCRIPT + ZIP, [("", BEFORE, 3, 7), IN_MEMBER]),
        (PROGRAM + ZIP, [IN_MEMBER]),
        (TEXT_LINE * 5_000 + ZIP, [IN_MEMBER]),
        (SCRIPT + ZIP + b"\n", [("", BEFORE, 3, 7), IN_MEMBER]),
        (PROGRAM + zipped({"a/b.txt": MEMBER}, b"a comment " * 6_000), [IN_MEMBER]),
        (PROGRAM + ZIP + random.Random(2).randbytes(20_000), [IN_MEMBER]),
        (zipped({"c.txt": b"token " + BEFORE}) + ZIP, [("c.txt", BEFORE, 1, 7), IN_MEMBER]),
    ],
    ids=["script", "program", "long text", "line break after it", "comment", "signature after it", "zip"],
)
def test_a_zip_after_other_data_is_unpacked(data, expected):
    assert needs_unpacking(data)
    assert scan_without_gaps(data) == expected


def test_an_archive_made_by_zipapp_is_unpacked(tmp_path: Path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_bytes(MEMBER)
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz", "/usr/bin/env python3", compressed=True)
    assert scan_without_gaps((tmp_path / "app.pyz").read_bytes()) == [("__main__.py", INSIDE, 201, 9)]


def test_a_zip_after_a_script_is_unpacked_inside_another_archive():
    packed = gzip.compress(zipped({"app.jar": SCRIPT + ZIP}, method=zipfile.ZIP_STORED))
    assert scan_without_gaps(packed) == [("app.jar", BEFORE, 3, 7), ("app.jar!a/b.txt", INSIDE, 201, 9)]


def test_a_zip_whose_offsets_count_from_the_start_of_the_file_is_read():
    out = io.BytesIO(SCRIPT)
    out.seek(0, io.SEEK_END)
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/b.txt", MEMBER)
    assert scan_without_gaps(out.getvalue()) == [("", BEFORE, 3, 7), IN_MEMBER]


def test_a_zip64_archive_is_unpacked():
    start, end = ZIP.index(b"PK\1\2"), ZIP.index(b"PK\5\6")
    record = struct.pack("<4sQHHLLQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, end - start, start)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, end, 1)
    last = struct.pack("<4sHHHHLLH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    found = list(unpack_texts(PROGRAM + ZIP[:end] + record + locator + last, UnpackBudget()))
    assert ("a/b.txt", MEMBER) in found


@pytest.mark.parametrize("at", [0, 1, 4, 10, 12, 13, 16, 19])
def test_data_that_only_looks_like_the_end_of_a_zip_is_scanned_as_it_is(at):
    end = bytearray(ZIP[ZIP.index(b"PK\5\6") :])
    assert not ends_with_zip(b"unzip: \0 " + BEFORE + bytes(end))
    assert scan_without_gaps(b"unzip: \0 " + BEFORE + b" PK\3\4 " + bytes(end) + b"PK\5\6") == [
        ("", BEFORE, 1, 10)
    ]
    end[at] ^= 0xFF
    data = SCRIPT + ZIP[: ZIP.index(b"PK\5\6")] + bytes(end)
    assert ("", BEFORE) in [
        (name, value) for name, value, *_ in located_hits(scan_content(ruleset(), data, Confidence.MEDIUM))
    ]


def test_a_zip_with_wrong_offsets_in_its_directory_is_scanned_completely():
    data = bytearray(SCRIPT + ZIP)
    place = data.index(b"PK\1\2") + 42
    data[place : place + 4] = struct.pack("<L", 7)
    found = scan_content(ruleset(), bytes(data), Confidence.MEDIUM)
    assert {value for _, value, *_ in located_hits(found)} == {BEFORE, INSIDE}
    assert found.gaps


def test_the_number_of_zips_one_after_the_other_is_limited():
    found = list(unpack_texts(ZIP * 50, budget := UnpackBudget()))
    assert len(found) < 100
    assert budget.gaps == ["archive: nested too deeply, was not unpacked"]


def test_data_before_a_zip_counts_for_the_size_limit():
    budget = UnpackBudget(bytes_left=10_000)
    assert not [name for name, _ in unpack_texts(PROGRAM + ZIP, budget) if name]
    assert budget.gaps == ["archive: too large when unpacked, the rest was skipped"]


def test_a_stream_is_unpacked_if_the_archive_fits_into_memory():
    sizes = ScanSizes(piece=2_000, credential=700, context=700, trigger_distance=300, archive=30_000)

    def stream(data: bytes) -> ScanResult:
        return scan_stream(ruleset(), io.BytesIO(data).read, Confidence.MEDIUM, sizes)

    short = SCRIPT + zipped({"x": random.Random(3).randbytes(15_000), "a/b.txt": MEMBER})
    assert len(short) > sizes.piece
    assert (
        located_hits(stream(short))
        == located_hits(scan_content(ruleset(), short, Confidence.MEDIUM))
        == [("", BEFORE, 3, 7), IN_MEMBER]
    )
    none = SCRIPT + b"PK\3\4" + random.Random(3).randbytes(40_000) + MEMBER
    assert located_hits(stream(none)) == located_hits(scan_content(ruleset(), none, Confidence.MEDIUM))
    assert stream(none).gaps == []
    for long in (
        TEXT_LINE * 100 + SCRIPT + ZIP,
        SCRIPT + zipped({"x": random.Random(3).randbytes(40_000), "a/b.txt": MEMBER}),
    ):
        assert [value for _, value, *_ in located_hits(stream(long))] == [BEFORE]
        assert stream(long).gaps == ["ends with a zip archive that is too large to be unpacked"]


def test_the_end_of_a_zip_is_searched_in_the_last_bytes_only():
    assert ends_with_zip(PROGRAM + ZIP + b"\n" * (ZIP_TAIL_BYTES - 22))
    assert not ends_with_zip(PROGRAM + ZIP + b"\n" * (ZIP_TAIL_BYTES - 21))
    assert ends_with_zip(b"..." + ZIP + b"...", 3, 3 + len(ZIP))
    assert ends_with_zip(ZIP[-60:], before=len(ZIP) - 60)


def test_members_of_a_zip_after_a_script_have_excerpts():
    data = SCRIPT + ZIP
    hits = scan_content(ruleset(), data, Confidence.MEDIUM).hits
    given = excerpts_of_file(
        ruleset(), data, [(b"app.jar" + (b"!" + name.encode() if name else b""), hit) for name, hit in hits]
    )
    assert [excerpt is not None and excerpt.first for excerpt in given] == [1, 199]
