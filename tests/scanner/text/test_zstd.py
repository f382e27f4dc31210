"""zstd: archives, damaged data, and data that asks for too much memory or becomes too large."""

import random

import pytest
import zstandard

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.scan import scan_content
from outcrop.scanner.text.archive_members import UnpackBudget
from outcrop.scanner.text.archives import unpack_texts
from outcrop.scanner.text.magic import needs_unpacking
from tests.scanner.text.test_archives import tarred
from tests.support.rulesets import github_token, ruleset

TOKEN = github_token("zstd").encode()
TEXT = b"".join(b"line %d of the text\n" % number for number in range(300)) + TOKEN + b"\n"
NOISE = random.Random(1).randbytes(300_000)
SKIPPABLE = b"\x50\x2a\x4d\x18\4\0\0\0abcd"


def packed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


@pytest.mark.parametrize(
    ("data", "name", "line"),
    [
        (packed(TEXT), "", 301),
        (packed(TEXT[:100]) + packed(TEXT[100:]), "", 301),
        (SKIPPABLE + packed(TEXT), "", 301),
        (packed(tarred({"etc/a.env": TEXT})), "etc/a.env", 301),
        (tarred({"inner.tar.zst": packed(tarred({"etc/a.env": TEXT}))}), "inner.tar.zst!etc/a.env", 301),
    ],
    ids=["file", "two frames", "skippable frame", "tar", "tar in a tar"],
)
def test_what_zstd_contains_is_scanned(data, name, line):
    assert needs_unpacking(data)
    found = scan_content(ruleset(), data, Confidence.MEDIUM)
    assert [(inner, reveal(hit.secret).encode(), hit.line) for inner, hit in found.hits] == [
        (name, TOKEN, line)
    ]
    assert found.gaps == []


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data[:200_000] + b"\xff" * 999])
def test_damaged_data_is_read_up_to_the_damage_and_a_gap(damage):
    data = damage(packed(TEXT + NOISE))
    found = scan_content(ruleset(), data, Confidence.MEDIUM)
    assert TOKEN in [reveal(hit.secret).encode() for _, hit in found.hits]
    assert len(found.gaps) == 1


def test_data_that_becomes_too_large_is_cut_off_with_a_gap():
    data = packed(bytes(64 << 20))
    assert len(data) < 10_000
    ((_, text),) = unpack_texts(data, budget := UnpackBudget(max_member_bytes=1 << 20))
    assert len(text) == 1 << 20
    assert budget.gaps == ["compressed data: too large, only the beginning was read"]


def test_data_that_asks_for_too_much_memory_is_a_gap():
    parameters = zstandard.ZstdCompressionParameters(window_log=28)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = stream.compress(b"x") + stream.flush()
    assert list(unpack_texts(data, budget := UnpackBudget())) == [("", data)]
    assert budget.gaps == ["archive: cannot be unpacked (ValueError)"]
