"""Packages of Linux distributions are unpacked; damaged packages are still scanned."""

import gzip
import lzma
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.scan import scan_content
from outcrop.scanner.text.archive_members import UnpackBudget
from outcrop.scanner.text.archives import unpack_texts
from outcrop.scanner.text.magic import needs_unpacking
from tests.scanner.text.test_archives import tarred
from tests.support.rulesets import github_token, ruleset

TOKEN = github_token("packages").encode()
WORDS = b"".join(b"line %d of the text\n" % number for number in range(300))
HIDDEN = WORDS + b"token = " + TOKEN + b"\n"


def ar(members: dict[str, bytes]) -> bytes:
    """Return an ar archive, as a deb is, with these members."""
    out = b"!<arch>\n"
    for name, content in members.items():
        out += (
            b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (name.encode(), 0, 0, 0, b"100644", len(content))
            + content
            + b"\n" * (len(content) % 2)
        )
    return out


def cpio(members: dict[str, bytes]) -> bytes:
    """Return a cpio archive with these members."""
    out = b""
    for number, (name, content) in enumerate([*members.items(), ("TRAILER!!!", b"")]):
        name_field = name.encode() + b"\0"
        fields = (number, 0o100644, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name_field), 0)
        out += b"070701" + b"".join(b"%08x" % field for field in fields) + name_field
        out += bytes(-len(out) % 4) + content
        out += bytes(-len(out) % 4)
    return out


def rpm(payload: bytes, script: bytes = b"") -> bytes:
    """Return an rpm with this payload, and with `script` in its header."""
    lead = b"\xed\xab\xee\xdb\3\0" + bytes(90)
    signature = b"\x8e\xad\xe8\1" + struct.pack(">LLL", 0, 1, 3) + bytes(16 + 3)
    header = b"\x8e\xad\xe8\1" + struct.pack(">LLL", 0, 1, len(script)) + bytes(16) + script
    return lead + signature + bytes(-len(signature) % 8) + header + payload


FILES = {"./etc/app.env": HIDDEN, "./etc/folder": b"", "./x": b"odd"}
DEB = ar(
    {
        "debian-binary": b"2.0\n",
        "control.tar.gz": gzip.compress(tarred({"./control": WORDS})),
        "data.tar.xz": lzma.compress(tarred(FILES)),
    }
)
PACKAGES = {
    "deb": (DEB, "data.tar.xz!./etc/app.env"),
    "rpm": (rpm(gzip.compress(cpio(FILES))), "./etc/app.env"),
    "rpm of xz": (rpm(lzma.compress(cpio(FILES))), "./etc/app.env"),
    "cpio": (cpio(FILES), "./etc/app.env"),
    "cpio.gz": (gzip.compress(cpio(FILES)), "./etc/app.env"),
    "two of them": (cpio({"early": b"x"}) + bytes(200) + gzip.compress(cpio(FILES)), "./etc/app.env"),
    "lzma": (lzma.compress(HIDDEN, lzma.FORMAT_ALONE), ""),
}


@pytest.mark.parametrize(("data", "name"), PACKAGES.values(), ids=PACKAGES)
def test_the_files_of_a_package_are_scanned_with_their_names(data, name):
    assert needs_unpacking(data)
    found = scan_content(ruleset(), data, Confidence.MEDIUM)
    assert [(inner, reveal(hit.secret).encode(), hit.line, hit.column) for inner, hit in found.hits] == [
        (name, TOKEN, 301, 9)
    ]
    assert found.gaps == []


def test_the_scripts_of_an_rpm_are_scanned():
    data = rpm(gzip.compress(cpio({"a": b"x"})), b"\0echo " + TOKEN + b"\0")
    assert [inner for inner, _ in scan_content(ruleset(), data, Confidence.MEDIUM).hits] == [""]


@pytest.mark.parametrize("data", [DEB, rpm(gzip.compress(cpio(FILES))), cpio(FILES)])
def test_a_truncated_package_is_a_gap_and_read_up_to_its_end(data):
    for cut in (10, len(data) // 2, len(data) - 90):
        budget = UnpackBudget()
        found = list(unpack_texts(data[:-cut], budget))
        assert found
        assert budget.gaps


def test_a_file_that_only_begins_like_a_package_is_scanned_as_it_is():
    for head in (
        b"!<arch>\ndebian-binary",
        b"\xed\xab\xee\xdb\3\0",
        b"070701",
        b"\x5d\0\0\x80\0" + b"\xff" * 8,
    ):
        found = scan_content(ruleset(), head + b"\0 " + TOKEN, Confidence.MEDIUM)
        assert [reveal(hit.secret).encode() for _, hit in found.hits] == [TOKEN]
        assert len(found.gaps) == 1
    assert not needs_unpacking(b"]" + b"\0" * 40 + TOKEN)


def test_a_member_that_is_too_large_is_cut_off_with_a_gap():
    found = list(unpack_texts(cpio({"a": b"x" * 5_000}), budget := UnpackBudget(max_member_bytes=1_000)))
    assert [(name, len(text)) for name, text in found] == [("a", 1_001)]
    assert budget.gaps == ["a: too large, only the beginning was read"]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(PACKAGES)),
    st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 255)), max_size=6),
    st.integers(0, 400),
)
def test_damaged_packages_yield_texts_or_gaps_and_never_crash(kind, changes, cut):
    data = bytearray(PACKAGES[kind][0])
    for at, value in changes:
        data[at % len(data)] = value
    found = list(unpack_texts(bytes(data[: max(1, len(data) - cut)]), budget := UnpackBudget()))
    assert found or budget.gaps
