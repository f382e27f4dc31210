"""Archives are read to the bottom, within bounds, and a damaged one is still looked at."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner import unpack
from outcrop.scanner.content import scan_content
from outcrop.scanner.unpack import Budget, is_packed, texts
from tests.rulesets import github_token, ruleset

TOKEN = github_token("unpack").encode()


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def tarred(members: dict[str, bytes], format_: int = tarfile.PAX_FORMAT) -> bytes:
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


def opened(data: bytes, **limits) -> tuple[list[tuple[str, bytes]], list[str]]:
    budget = Budget(**limits)
    return list(texts(data, budget)), budget.gaps


@pytest.mark.parametrize("data", ARCHIVES.values(), ids=ARCHIVES)
def test_every_member_is_given_under_its_name(data):
    assert is_packed(data[:512])
    found, gaps = opened(data)
    assert (sorted(found), gaps) == (PLAIN, [])
    scanned = scan_content(ruleset(), data, Confidence.MEDIUM)
    assert [(name, reveal(hit.secret).encode(), hit.line, hit.column) for name, hit in scanned.hits] == [("b/c.txt", TOKEN, 2, 5)]


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_file_has_no_name_inside(compress):
    assert opened(compress(b"x" * 100 + TOKEN)) == ([("", b"x" * 100 + TOKEN)], [])
    twice = compress(b"first ") + compress(b"second")
    assert opened(twice) == ([("", b"first second")], [])


def test_archives_in_archives_are_named_from_the_outermost():
    layer = tarred({"app/.env": TOKEN})
    image = tarred({"manifest.json": b"{}", "abc/layer.tar": layer, "def.tar.gz": gzip.compress(tarred({"x.jar": zipped({"p/q": TOKEN})}))})
    found, gaps = opened(image)
    assert gaps == []
    assert sorted(found) == [("abc/layer.tar!app/.env", TOKEN), ("def.tar.gz!x.jar!p/q", TOKEN), ("manifest.json", b"{}")]


def test_utf_16_in_an_archive_is_read_as_text():
    found, _ = opened(zipped({"a.reg": "key".encode("utf-16") + "=value that is long".encode("utf-16-le")}))
    assert found == [("a.reg", b"key=value that is long")]


def test_depth_is_bounded():
    data = TOKEN
    for _ in range(9):
        data = gzip.compress(data)
    found, gaps = opened(data)
    assert len(found) == 1
    assert gaps == [": nested too deeply"]
    data = TOKEN
    for _ in range(6):
        data = gzip.compress(data)
    assert opened(data) == ([("", TOKEN)], [])


def test_size_is_bounded(monkeypatch):
    found, gaps = opened(zipped({str(n): b"x" * 1000 for n in range(10)}), bytes_left=3_500)
    assert sum(len(text) for _, text in found) <= 3_500
    assert gaps[-1] == "archive: unpacks to too much"
    monkeypatch.setattr(unpack, "_MEMBER", 5_000)
    for bomb in (gzip.compress(b"\0" * 10_000_000), bz2.compress(b"\0" * 10_000_000), lzma.compress(b"\0" * 10_000_000)):
        found, gaps = opened(bomb)
        assert [len(text) for _, text in found] == [5_000]
        assert gaps == ["compressed data is longer than what is read"]
    for bomb in (zipped({"a": b"\0" * 10_000_000}), tarred({"a": b"\0" * 10_000_000})):
        found, gaps = opened(bomb)
        assert len(found[0][1]) <= 5_001
        assert gaps == ["a: only its beginning was read"]


def test_members_are_bounded():
    found, gaps = opened(tarred({str(n): b"x" for n in range(50)}), members_left=20)
    assert len(found) < 21
    assert gaps == ["archive: has too many members"]


def test_time_is_bounded():
    now = [0.0]

    def clock() -> float:
        now[0] += 7
        return now[0]

    found, gaps = opened(zipped({str(n): b"x" for n in range(50)}), clock=clock)
    assert 0 < len(found) < 12
    assert gaps == ["archive: takes too long to unpack"]


def found_in(data: bytes) -> tuple[set[bytes], list[str]]:
    found = scan_content(ruleset(), data, Confidence.MEDIUM)
    return {reveal(hit.secret).encode() for _, hit in found.hits}, found.gaps


def test_a_member_with_a_wrong_checksum_is_a_gap_and_still_looked_at():
    data = zipped({"a": b"token " + TOKEN + b" end"}, zipfile.ZIP_STORED).replace(b" end", b" END")
    found, gaps = found_in(data)
    assert found == {TOKEN}
    assert gaps == ["a: cannot be unpacked (BadZipFile)"]


def test_an_archive_without_its_end_is_a_gap_and_its_bytes_are_looked_at():
    whole = zipped({"a": b"token " + TOKEN + b" end"}, zipfile.ZIP_STORED)
    found, gaps = found_in(whole[: whole.index(b"PK\x01\x02")])
    assert (found, gaps) == ({TOKEN}, ["archive: cannot be unpacked (BadZipFile)"])
    tar = tarred({"a": b"nothing", "b": b"x" * 3000 + b" " + TOKEN + b" " + b"x" * 3000})
    found, gaps = found_in(tar[:-10_240] + b"" if len(tar) > 20_000 else tar[:5_500])
    assert found == {TOKEN}
    assert len(gaps) == 1


def test_what_comes_before_damage_in_compressed_data_is_read():
    noise = bytes(ch * 7 % 251 for ch in range(200_000))
    data = gzip.compress(b"token " + TOKEN + b" end " + noise)
    assert found_in(data[:-20])[0] == {TOKEN}
    assert found_in(data + b"rubbish")[0] == {TOKEN}
    assert found_in(data[:-20])[1] == ["compressed data ends early"]
    assert found_in(data + b"rubbish")[1] == ["compressed data is damaged after its beginning"]


@pytest.mark.parametrize("head", [b"\x1f\x8b", b"PK\x03\x04", b"BZh91AY&SY", b"\xfd7zXZ\x00"])
def test_what_only_begins_like_an_archive_is_read_as_it_is(head):
    found, gaps = found_in(head + b" " * 300 + TOKEN)
    assert found == {TOKEN}
    assert len(gaps) == 1


def test_an_encrypted_member_is_a_gap():
    data = bytearray(zipped({"a": b"x" * 50}))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    assert found_in(bytes(data))[1] == ["a: cannot be unpacked (RuntimeError)"]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(ARCHIVES)), st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 255)), max_size=6), st.integers(0, 400))
def test_no_damage_is_a_crash(kind, changes, cut):
    data = bytearray(ARCHIVES[kind])
    for at, value in changes:
        data[at % len(data)] = value
    opened(bytes(data[: len(data) - cut]))
