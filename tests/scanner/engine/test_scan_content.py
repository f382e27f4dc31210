"""A content gives the same hits whole, in pieces, and among others in one buffer."""

import gzip
import io
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine import companions, scan
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.scan import (
    ContentBatch,
    ScanResult,
    deserialize_result,
    scan_batch,
    scan_content,
    scan_part,
    scan_stream,
    serialize_result,
    split_into_parts,
)
from tests.support.rulesets import BASE64, drawn, github_token, ruleset

MEDIUM = Confidence.MEDIUM


def told(found: ScanResult) -> list[tuple]:
    return [
        (
            name,
            hit.rule.id,
            reveal(hit.secret),
            hit.start,
            hit.end,
            hit.line,
            hit.column,
            hit.allowed,
            hit.encoding,
            sorted(hit.companions),
        )
        for name, hit in found.hits
    ]


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(scan, "STREAM_PIECE_SIZE", 2_000)
    monkeypatch.setattr(scan, "MAX_PART_SIZE", 1_500)
    monkeypatch.setattr(scan, "MAX_CREDENTIAL_SIZE", 700)
    monkeypatch.setattr(scan, "MAX_CONTEXT_SIZE", 700)
    monkeypatch.setattr(scan, "MAX_TRIGGER_DISTANCE", 300)
    monkeypatch.setattr(companions, "MAX_ROW", 150)


def lines_of(chance: random.Random, count: int) -> bytes:
    """Write lines some of which hold something; each value is there once."""
    out = []
    for _ in range(count):
        kind = chance.randrange(8)
        seed = chance.random()
        out.append(
            {
                0: f"token = {github_token(seed)}",
                1: f"café {github_token(seed)} # outcrop:allow",
                2: f"password = '{drawn(BASE64, 24, seed)}'",
                3: f"aws_access_key_id = AKIA{drawn('ABCDEFGH234567', 16, seed)}\naws_secret_access_key = {drawn(BASE64, 40, seed)}",
            }.get(kind, "x" * chance.randint(0, 90))
        )
    return "\n".join(out).encode() + chance.choice([b"", b"\n"])


def in_parts(data: bytes, jobs: int) -> ScanResult:
    """Scan each part from nothing but its own bytes."""
    parts = list(split_into_parts(io.BytesIO(data).read, len(data), jobs))
    read = [data[part.offset :][: part.size] for part in parts]
    assert sum(part.own_size(len(own)) for part, own in zip(parts, read, strict=True)) == len(data)
    return ScanResult(
        [
            hit
            for part, own in zip(parts, read, strict=True)
            for hit in scan_part(ruleset(), own, part, MEDIUM).hits
        ]
    )


@pytest.mark.parametrize("seed", range(40))
def test_pieces_and_parts_give_what_the_whole_gives(small, seed):
    data = lines_of(random.Random(seed), 60)
    whole = told(scan_content(ruleset(), data, MEDIUM))
    assert told(scan_stream(ruleset(), io.BytesIO(data).read, MEDIUM)) == whole
    assert [told(in_parts(data, jobs)) for jobs in (1, 2, 3)] == [whole] * 3


@pytest.mark.parametrize("size", [0, 1, 1_299, 1_300, 1_301, 1_999, 2_000, 2_001, 2_599, 2_600, 2_601, 3_300])
@pytest.mark.parametrize(
    "at", [0, 560, 580, 600, 1_260, 1_280, 1_299, 1_300, 1_955, 1_965, 1_999, 2_000, 2_550]
)
def test_a_token_at_any_place_around_the_border_of_a_piece(small, size, at):
    token = github_token((size, at)).encode()
    data = b"\n".join([b"x" * 50] * 60)[:at] + b" " + token + b" "
    data = data + b"y" * max(0, size - len(data))
    whole = told(scan_content(ruleset(), data, MEDIUM))
    assert told(scan_stream(ruleset(), io.BytesIO(data).read, MEDIUM)) == whole
    assert [told(in_parts(data, jobs)) for jobs in (1, 2, 3)] == [whole] * 3


def test_a_value_that_a_border_cuts_is_told_once_and_whole(small):
    for at in range(1_100, 2_000, 47):
        value = drawn("abcdefghijkmnpqrstuvwxyz23456789", 120, at)
        data = ("z" * at + f"\npassword = {value}\n" + "z\n" * 500).encode()
        assert [hit[2] for hit in told(scan_stream(ruleset(), io.BytesIO(data).read, MEDIUM))] == [value]


def test_columns_of_a_line_that_is_longer_than_a_piece(small):
    token = github_token("long line")
    data = ("first\n" + "é " * 3_000 + token + " z" * 500).encode()
    for found in (scan_stream(ruleset(), io.BytesIO(data).read, MEDIUM), in_parts(data, 2)):
        ((_, hit),) = found.hits
        assert (hit.line, hit.column) == (2, 6_001)


def test_short_reads_are_no_end(small):
    data = lines_of(random.Random("short"), 60)
    stream = io.BytesIO(data)
    found = scan_stream(ruleset(), lambda size: stream.read(min(size, 570)), MEDIUM)
    assert told(found) == told(scan_content(ruleset(), data, MEDIUM))


def test_an_archive_that_does_not_fit_is_read_as_far_as_it_does(small, monkeypatch):
    data = gzip.compress(b"token = " + github_token(1).encode() + b"\n" + random.Random(1).randbytes(9_000))
    assert told(scan_stream(ruleset(), io.BytesIO(data).read, MEDIUM)) == told(
        scan_content(ruleset(), data, MEDIUM)
    )
    monkeypatch.setattr(scan, "MAX_ARCHIVE_SIZE", 4_000)
    found = scan_stream(ruleset(), io.BytesIO(data).read, MEDIUM)
    assert len(found.hits) == 1
    assert "only the beginning of this archive was unpacked" in found.gaps


def test_an_empty_content():
    assert (
        told(scan_stream(ruleset(), io.BytesIO().read, MEDIUM))
        == told(scan_content(ruleset(), b"", MEDIUM))
        == []
    )


def test_hits_travel_between_processes_unchanged():
    found = scan_content(ruleset(), lines_of(random.Random(5), 40), MEDIUM)
    assert found.hits
    back = deserialize_result(serialize_result(found), ruleset().rules)
    assert told(back) == told(found)
    assert [hit.secret.masked() for _, hit in back.hits] == [hit.secret.masked() for _, hit in found.hits]


pieces = st.lists(
    st.one_of(
        st.sampled_from(
            [
                b"\n",
                b" ",
                b"x",
                b'"',
                b"token = ",
                b"password = '",
                b"'",
                b"AKIA",
                b"\r\n",
                b"-----BEGIN PRIVATE KEY-----",
            ]
        ),
        st.integers(0, 5).map(lambda seed: github_token(seed).encode()),
        st.integers(0, 5).map(lambda seed: drawn(BASE64, 40, seed).encode()),
        st.integers(0, 3).map(lambda seed: f"AKIA{drawn('ABCDEFGH234567', 16, seed)}".encode()),
        st.just(gzip.compress(github_token(9).encode())),
        st.binary(max_size=5),
    ),
    max_size=12,
).map(b"".join)


@settings(max_examples=150, deadline=None)
@given(st.lists(pieces, max_size=8))
def test_many_blobs_in_one_buffer_give_what_each_gives_alone(blobs):
    buffer, places = bytearray(b"\n"), []
    for number, blob in enumerate(blobs):
        buffer += b"%040x blob %d\n" % (number, len(blob))
        places.append((b"%040x" % number, len(buffer), len(buffer) + len(blob)))
        buffer += blob + b"\n"
    stretch = ContentBatch(buffer, len(buffer), places)
    together = [(oid, found, size) for oid, found, size in scan_batch(ruleset(), stretch, MEDIUM)]
    assert [oid for oid, _, _ in together] == [oid for oid, _, _ in places]
    for blob, (_, found, size) in zip(blobs, together, strict=True):
        assert told(found) == told(scan_content(ruleset(), blob, MEDIUM))
        assert size == len(blob)


def test_a_plain_content_is_what_find_gives():
    data = lines_of(random.Random(6), 30)
    assert told(scan_content(ruleset(), data, MEDIUM)) == told(
        ScanResult([("", hit) for hit in find(ruleset(), data, MEDIUM)])
    )
