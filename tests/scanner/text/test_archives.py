"""Archives are unpacked recursively, within limits; damaged archives are still scanned."""

import bz2
import gzip
import io
import itertools
import lzma
import random
import tarfile
import tracemalloc
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.scan import scan_content
from outcrop.scanner.text.archive_members import UnpackBudget
from outcrop.scanner.text.archives import unpack_texts
from outcrop.scanner.text.magic import needs_unpacking
from tests.support.rulesets import github_token, ruleset

TOKEN = github_token("unpack").encode()


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a zip with these members."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def tarred(members: dict[str, bytes], format_: int = tarfile.PAX_FORMAT) -> bytes:
    """Return a tar with these members."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format_) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


FILES = {"b/c.txt": b"one\ntwo " + TOKEN + b"\n", "d.txt": b"nothing"}
PLAIN = sorted(FILES.items())
ARCHIVES = {
    "zip": zipped(FILES),
    "stored zip": zipped(FILES, zipfile.ZIP_STORED),
    "bzip2 zip": zipped(FILES, zipfile.ZIP_BZIP2),
    "lzma zip": zipped(FILES, zipfile.ZIP_LZMA),
    "tar": tarred(FILES),
    "gnu tar": tarred(FILES, tarfile.GNU_FORMAT),
    "ustar": tarred(FILES, tarfile.USTAR_FORMAT),
    "tar.gz": gzip.compress(tarred(FILES)),
    "tar.bz2": bz2.compress(tarred(FILES)),
    "tar.xz": lzma.compress(tarred(FILES)),
}


def unpack(data: bytes, **limits) -> tuple[list[tuple[str, bytes]], list[str]]:
    """Return the texts of a file with their names, and the gaps."""
    budget = UnpackBudget(**limits)
    return list(unpack_texts(data, budget)), budget.gaps


@pytest.mark.parametrize("data", ARCHIVES.values(), ids=ARCHIVES)
def test_every_member_is_read_with_its_name(data):
    assert needs_unpacking(data[:512])
    found, gaps = unpack(data)
    assert (sorted(found), gaps) == (PLAIN, [])
    scanned = scan_content(ruleset(), data, Confidence.MEDIUM)
    assert [(name, reveal(hit.secret).encode(), hit.line, hit.column) for name, hit in scanned.hits] == [
        ("b/c.txt", TOKEN, 2, 5)
    ]


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_file_has_no_inner_name(compress):
    assert unpack(compress(b"x" * 100 + TOKEN)) == ([("", b"x" * 100 + TOKEN)], [])
    twice = compress(b"first ") + compress(b"second")
    assert unpack(twice) == ([("", b"first second")], [])


def test_names_in_nested_archives_begin_with_the_outermost_archive():
    layer = tarred({"app/.env": TOKEN})
    image = tarred(
        {
            "manifest.json": b"{}",
            "abc/layer.tar": layer,
            "def.tar.gz": gzip.compress(tarred({"x.jar": zipped({"p/q": TOKEN})})),
        }
    )
    found, gaps = unpack(image)
    assert gaps == []
    assert sorted(found) == [
        ("abc/layer.tar!app/.env", TOKEN),
        ("def.tar.gz!x.jar!p/q", TOKEN),
        ("manifest.json", b"{}"),
    ]


def test_utf16_in_an_archive_is_decoded():
    found, _ = unpack(zipped({"a.reg": "key".encode("utf-16") + "=value that is long".encode("utf-16-le")}))
    assert found == [("a.reg", b"key=value that is long")]


def test_the_depth_of_nested_archives_is_limited():
    data = TOKEN
    for _ in range(9):
        data = gzip.compress(data)
    found, gaps = unpack(data)
    assert len(found) == 1
    assert gaps == ["archive: nested too deeply, was not unpacked"]
    data = TOKEN
    for _ in range(6):
        data = gzip.compress(data)
    assert unpack(data) == ([("", TOKEN)], [])


def test_the_unpacked_size_is_limited():
    found, gaps = unpack(zipped({str(n): b"x" * 1000 for n in range(10)}), bytes_left=3_500)
    assert sum(len(text) for _, text in found) <= 3_500
    assert gaps[-1] == "archive: too large when unpacked, the rest was skipped"
    for bomb in (
        gzip.compress(b"\0" * 10_000_000),
        bz2.compress(b"\0" * 10_000_000),
        lzma.compress(b"\0" * 10_000_000),
    ):
        found, gaps = unpack(bomb, max_member_bytes=5_000)
        assert [len(text) for _, text in found] == [5_000]
        assert gaps == ["compressed data: too large, only the beginning was read"]
    for bomb in (zipped({"a": b"\0" * 10_000_000}), tarred({"a": b"\0" * 10_000_000})):
        found, gaps = unpack(bomb, max_member_bytes=5_000)
        assert len(found[0][1]) <= 5_001
        assert gaps == ["a: too large, only the beginning was read"]


def test_the_number_of_members_is_limited():
    found, gaps = unpack(tarred({str(n): b"x" for n in range(50)}), members_left=20)
    assert len(found) < 21
    assert gaps == ["archive: too many members, the rest was skipped"]


def test_the_time_to_unpack_is_limited():
    now = [0.0]

    def clock() -> float:
        now[0] += 7
        return now[0]

    found, gaps = unpack(zipped({str(n): b"x" for n in range(50)}), clock=clock)
    assert 0 < len(found) < 12
    assert gaps == ["archive: took too long to unpack, the rest was skipped"]


def scan(data: bytes) -> tuple[set[bytes], list[str]]:
    """Return the values that a scan finds in a file, and the gaps."""
    found = scan_content(ruleset(), data, Confidence.MEDIUM)
    return {reveal(hit.secret).encode() for _, hit in found.hits}, found.gaps


def test_a_stored_member_with_a_wrong_checksum_is_a_gap_and_scanned():
    data = zipped({"a": b"token " + TOKEN + b" end"}, zipfile.ZIP_STORED).replace(b" end", b" END")
    found, gaps = scan(data)
    assert found == {TOKEN}
    assert gaps == ["a: cannot be unpacked (BadZipFile)"]


def test_a_truncated_archive_is_a_gap_and_scanned():
    complete = zipped({"a": b"token " + TOKEN + b" end"}, zipfile.ZIP_STORED)
    found, gaps = scan(complete[: complete.index(b"PK\x01\x02")])
    assert (found, gaps) == ({TOKEN}, ["archive: cannot be unpacked (BadZipFile)"])
    tar = tarred({"a": b"nothing", "b": b"x" * 3000 + b" " + TOKEN + b" " + b"x" * 3000})
    found, gaps = scan(tar[:-10_240] + b"" if len(tar) > 20_000 else tar[:5_500])
    assert found == {TOKEN}
    assert len(gaps) == 1


def test_truncated_compressed_data_is_read_up_to_its_end():
    noise = bytes(ch * 7 % 251 for ch in range(200_000))
    data = gzip.compress(b"token " + TOKEN + b" end " + noise)
    assert scan(data[:-20])[0] == {TOKEN}
    assert scan(data + b"rubbish")[0] == {TOKEN}
    assert scan(data[:-20])[1] == ["compressed data: truncated"]
    assert scan(data + b"rubbish")[1] == ["compressed data: damaged, only a part was unpacked"]


@pytest.mark.parametrize("head", [b"\x1f\x8b", b"PK\x03\x04", b"BZh91AY&SY", b"\xfd7zXZ\x00"])
def test_a_file_that_only_begins_like_an_archive_is_scanned_as_it_is(head):
    found, gaps = scan(head + b" " * 300 + TOKEN)
    assert found == {TOKEN}
    assert len(gaps) == 1


def test_an_encrypted_member_is_a_gap():
    data = bytearray(zipped({"a": b"x" * 50}))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    assert scan(bytes(data))[1] == ["a: cannot be unpacked (RuntimeError)"]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(ARCHIVES)),
    st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 255)), max_size=6),
    st.integers(0, 400),
)
def test_damaged_archives_yield_texts_or_gaps_and_never_crash(kind, changes, cut):
    data = bytearray(ARCHIVES[kind])
    for at, value in changes:
        data[at % len(data)] = value
    found, gaps = unpack(bytes(data[: len(data) - cut]))
    assert found or gaps


# Words that compress well, so that no part of the text is in an archive unchanged.
WORDS = b"".join(b"line %d of the text, and the text goes on\n" % number for number in range(3_000))
HIDDEN = WORDS + b"token " + TOKEN + b"\n" + WORDS


def flip_byte(data: bytes, at: int) -> bytes:
    """Return the data with all bits of one byte changed."""
    changed = bytearray(data)
    changed[at] ^= 0xFF
    return bytes(changed)


def test_compressed_data_with_a_wrong_checksum_is_read_completely():
    data = gzip.compress(HIDDEN)
    assert TOKEN not in data
    assert scan(flip_byte(data, -6)) == ({TOKEN}, ["compressed data: damaged, only a part was unpacked"])


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_data_is_read_up_to_damage_in_the_middle(compress):
    data = compress(b"token " + TOKEN + b"\n" + WORDS + random.Random(1).randbytes(2_000_000))
    assert scan(flip_byte(data, len(data) // 2)) == (
        {TOKEN},
        ["compressed data: damaged, only a part was unpacked"],
    )


def test_a_token_in_the_last_of_very_many_streams_is_found():
    assert scan(gzip.compress(b"word\n", mtime=0) * 5_000 + gzip.compress(HIDDEN)) == ({TOKEN}, [])


def test_after_compressed_data_zeros_are_padding_and_other_bytes_are_scanned():
    assert scan(gzip.compress(WORDS) + bytes(1_000)) == (set(), [])
    assert scan(gzip.compress(WORDS) + b"token " + TOKEN + b"\n") == (
        {TOKEN},
        ["compressed data: damaged, only a part was unpacked"],
    )


def test_a_deflated_member_with_a_wrong_checksum_is_unpacked():
    data = zipped({"a": HIDDEN})
    changed = flip_byte(flip_byte(data, 14), data.index(b"PK\1\2") + 16)
    assert scan(changed) == ({TOKEN}, ["a: cannot be unpacked (BadZipFile)"])


@pytest.mark.parametrize("place", ["behind", "comment", "of a member"])
def test_comments_and_data_after_a_zip_are_scanned(place):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        member = zipfile.ZipInfo("a.txt")
        member.comment = b"key " + TOKEN if place == "of a member" else b""
        archive.writestr(member, b"nothing")
        archive.comment = b"token = " + TOKEN if place == "comment" else b"a plain one"
    data = out.getvalue() + (b"token = " + TOKEN + b"\n" if place == "behind" else b"")
    assert [reveal(hit.secret) for _, hit in scan_content(ruleset(), data, Confidence.MEDIUM).hits] == [
        TOKEN.decode()
    ]


def test_members_of_a_zip_without_a_directory_are_unpacked():
    data = zipped({"a": WORDS, "b": HIDDEN, "c": WORDS})
    found, gaps = unpack(data[: data.index(b"PK\1\2")])
    assert [(name, text) for name, text in found if name] == [("a", WORDS), ("b", HIDDEN), ("c", WORDS)]
    assert gaps == ["archive: cannot be unpacked (BadZipFile)"]
    assert dict(unpack(data[: data.index(b"PK\3\4", 4) + 60])[0])["a"] == WORDS, (
        "the member before the truncated one is complete"
    )


def test_a_zip_member_with_the_name_of_a_folder_is_read():
    assert scan(zipped({"folder/": HIDDEN})) == ({TOKEN}, [])


def test_a_zip_directory_with_very_many_members_is_not_kept_in_memory():
    data = zipped({"a": HIDDEN})
    start, stop = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    entry = data[start:stop]
    end = bytearray(data[stop:])
    end[12:16] = (len(entry) * 300_000).to_bytes(4, "little")
    tracemalloc.start()
    found, _ = unpack(data[:start] + entry * 300_000 + bytes(end))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert ("a", HIDDEN) in found
    assert peak < 80 << 20


def test_a_damaged_tar_header_is_a_gap_and_the_rest_is_scanned():
    data = tarred({"a": b"x", "b": b"y", "c": HIDDEN}, tarfile.GNU_FORMAT)
    assert scan(flip_byte(data, 1024 + 150)) == (
        {TOKEN},
        ["archive: damaged, only a part was unpacked"],
    )


def test_a_tar_after_a_tar_is_read():
    assert [name for name, _ in unpack(tarred({"a": b"x"}) + tarred({"b": b"y"}))[0]] == ["a", "b"]


@pytest.mark.parametrize("size", [-512, -1024, -1536])
@pytest.mark.parametrize("kind", [b"Z", b"0"])
def test_a_tar_whose_offsets_point_backwards_is_not_read_forever(size, kind):
    folder = tarfile.TarInfo("folder").tobuf(tarfile.GNU_FORMAT)
    raw = bytearray(folder)
    raw[124:136] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)  # type: ignore[attr-defined]
    raw[156:157] = kind
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    found, gaps = scan(folder * 3 + bytes(raw) + HIDDEN)
    assert found == {TOKEN}
    assert gaps


def test_folders_in_a_tar_are_limited_by_time_and_not_kept_in_memory():
    folder = tarfile.TarInfo("folder")
    folder.type = tarfile.DIRTYPE
    data = folder.tobuf(tarfile.GNU_FORMAT) * 4_000
    tracemalloc.start()
    assert unpack(data) == ([], [])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20  # a TarInfo takes more than 500 bytes
    ticks = itertools.count(step=1)
    assert unpack(data, clock=lambda: float(next(ticks))) == (
        [],
        ["archive: took too long to unpack, the rest was skipped"],
    )


def truncated_zip() -> bytes:
    """Return a zip without its directory."""
    complete = zipped({"a": WORDS, "b": WORDS})
    return complete[: complete.index(b"PK\1\2")]


def damaged_tar() -> bytes:
    """Return a tar in which one header is damaged."""
    return flip_byte(tarred({"a": b"x\n" * 3, "b": b"y", "c": HIDDEN}, tarfile.GNU_FORMAT), 1024 + 150)


@pytest.mark.parametrize(
    "data",
    [
        b"PK\3\4\n\n  " + TOKEN + b"\n",
        b"PK\5\6" + bytes(20) + b"\n  " + TOKEN,
        truncated_zip() + b"\n\n  " + TOKEN + b"\n",
        b"PK\3\4 a\n b " + TOKEN + b"\n" + truncated_zip(),
        truncated_zip() + b"\n" + TOKEN + b"\n" + truncated_zip() + b"end",
        damaged_tar(),
    ],
)
def test_hits_in_damaged_archives_keep_their_line_and_column(data):
    (found,) = {
        (name, hit.line, hit.column) for name, hit in scan_content(ruleset(), data, Confidence.MEDIUM).hits
    }
    at = data.index(TOKEN)
    assert found == ("", 1 + data.count(b"\n", 0, at), at - data.rfind(b"\n", 0, at))


def test_data_after_compressed_data_is_scanned_as_a_text_of_its_own():
    found = scan_content(ruleset(), gzip.compress(b"a\nb\n") + b"\n x " + TOKEN, Confidence.MEDIUM)
    assert [(hit.line, hit.column) for _, hit in found.hits] == [(2, 4)]


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"7z\xbc\xaf\x27\x1c\x00\x04", "7z"),
        (b"Rar!\x1a\x07\x01\x00", "rar"),
        (b"\x04\x22\x4d\x18\x64", "lz4"),
        (b"\x1f\x9d\x90", "compress"),
    ],
)
def test_the_gap_of_an_unsupported_format_names_the_format(head, kind):
    data = head + b"\xff\xfe\xfd" * 50 + b" " + TOKEN
    assert scan(data) == ({TOKEN}, [f"archive: cannot be unpacked, {kind} is not supported"])
    assert scan(tarred({"layer": data}))[1] == [f"layer: cannot be unpacked, {kind} is not supported"]
