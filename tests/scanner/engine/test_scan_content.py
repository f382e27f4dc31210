"""Test that a content has the same hits in one piece, in several pieces and in a batch."""

import gzip
import io
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.companions import MAX_ROW
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.scan import (
    ContentBatch,
    ScanResult,
    ScanSizes,
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


def summarize(found: ScanResult) -> list[tuple]:
    """Return the fields of all hits that must be the same however a content is scanned."""
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


# Small pieces, parts and distances, so that short contents have several of them.
SMALL = ScanSizes(piece=2_000, part=1_500, credential=700, context=700, trigger_distance=300)
# The same for contents with pairs: a row of pairs is followed for MAX_ROW // 2 bytes to each side.
FOR_PAIRS = ScanSizes(
    piece=9_000, part=5_000, credential=3_000, context=3_000, trigger_distance=MAX_ROW // 2 + 500
)


def scan_in_pieces(data: bytes, sizes: ScanSizes = SMALL) -> ScanResult:
    """Scan a content as a stream."""
    return scan_stream(ruleset(), io.BytesIO(data).read, MEDIUM, sizes)


def make_pair(seed: float) -> str:
    """Return a key id and its secret key, on two lines."""
    return (
        f"aws_access_key_id = AKIA{drawn('ABCDEFGH234567', 16, seed)}\n"
        f"aws_secret_access_key = {drawn(BASE64, 40, seed)}"
    )


def make_lines(rng: random.Random, count: int) -> bytes:
    """Return lines, some with a credential. No value occurs twice, and few pairs are near each other."""
    out = []
    for _ in range(count):
        kind = rng.choice((0, 0, 1, 1, 2, 2, 3, *[4] * 9))
        seed = rng.random()
        out.append(
            {
                0: f"token = {github_token(seed)}",
                1: f"café {github_token(seed)} # outcrop:allow",
                2: f"password = '{drawn(BASE64, 24, seed)}'",
                3: make_pair(seed),
            }.get(kind, "x" * rng.randint(0, 90))
        )
    return "\n".join(out).encode() + rng.choice([b"", b"\n"])


def scan_in_parts(data: bytes, jobs: int, sizes: ScanSizes = SMALL) -> ScanResult:
    """Scan each part separately, with only the bytes that it needs."""
    parts = list(split_into_parts(io.BytesIO(data).read, len(data), jobs, sizes))
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
def test_pieces_and_parts_have_the_same_hits_as_the_complete_content(seed):
    data = make_lines(random.Random(seed), 220)
    assert len(data) > FOR_PAIRS.piece
    expected = summarize(scan_content(ruleset(), data, MEDIUM))
    assert summarize(scan_in_pieces(data, FOR_PAIRS)) == expected
    assert [summarize(scan_in_parts(data, jobs, FOR_PAIRS)) for jobs in (1, 2, 3)] == [expected] * 3


def test_row_of_pairs_across_several_parts_has_the_same_pairs():
    pairs = [make_pair(number) for number in range(400)]
    data = "\n".join(pairs).encode()
    assert len(data) > 2 * FOR_PAIRS.piece
    expected = summarize(scan_content(ruleset(), data, MEDIUM))
    assert len([hit for hit in expected if hit[-1]]) == len(pairs)
    assert summarize(scan_in_pieces(data, FOR_PAIRS)) == expected
    assert summarize(scan_in_parts(data, 2, FOR_PAIRS)) == expected


@pytest.mark.parametrize("size", [0, 1, 1_299, 1_300, 1_301, 1_999, 2_000, 2_001, 2_599, 2_600, 2_601, 3_300])
@pytest.mark.parametrize(
    "at", [0, 560, 580, 600, 1_260, 1_280, 1_299, 1_300, 1_955, 1_965, 1_999, 2_000, 2_550]
)
def test_token_near_the_border_of_a_piece_is_found_once(size, at):
    token = github_token((size, at)).encode()
    data = b"\n".join([b"x" * 50] * 60)[:at] + b" " + token + b" "
    data = data + b"y" * max(0, size - len(data))
    expected = summarize(scan_content(ruleset(), data, MEDIUM))
    assert summarize(scan_in_pieces(data)) == expected
    assert [summarize(scan_in_parts(data, jobs)) for jobs in (1, 2, 3)] == [expected] * 3


def test_value_across_a_border_is_found_once_and_complete():
    for at in range(1_100, 2_000, 47):
        value = drawn("abcdefghijkmnpqrstuvwxyz23456789", 120, at)
        data = ("z" * at + f"\npassword = {value}\n" + "z\n" * 500).encode()
        assert [hit[2] for hit in summarize(scan_in_pieces(data))] == [value]


def test_column_in_a_line_longer_than_a_piece():
    token = github_token("long line")
    data = ("first\n" + "é " * 3_000 + token + " z" * 500).encode()
    for found in (scan_in_pieces(data), scan_in_parts(data, 2)):
        ((_, hit),) = found.hits
        assert (hit.line, hit.column) == (2, 6_001)


def test_short_read_does_not_end_a_stream():
    data = make_lines(random.Random("short"), 220)
    stream = io.BytesIO(data)
    found = scan_stream(ruleset(), lambda size: stream.read(min(size, 570)), MEDIUM, FOR_PAIRS)
    assert summarize(found) == summarize(scan_content(ruleset(), data, MEDIUM))


def test_only_the_beginning_of_a_too_large_archive_is_unpacked():
    data = gzip.compress(b"token = " + github_token(1).encode() + b"\n" + random.Random(1).randbytes(9_000))
    assert summarize(scan_in_pieces(data)) == summarize(scan_content(ruleset(), data, MEDIUM))
    found = scan_in_pieces(data, replace(SMALL, archive=4_000))
    assert len(found.hits) == 1
    assert "only the beginning of this archive was unpacked" in found.gaps


def test_empty_content_has_no_hits():
    assert summarize(scan_in_pieces(b"")) == summarize(scan_content(ruleset(), b"", MEDIUM)) == []


def test_deserialized_result_equals_the_serialized_one():
    found = scan_content(ruleset(), make_lines(random.Random(5), 40), MEDIUM)
    assert found.hits
    back = deserialize_result(serialize_result(found), ruleset().rules)
    assert summarize(back) == summarize(found)
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
def test_batch_has_the_same_hits_as_each_content_alone(blobs):
    buffer, contents = bytearray(b"\n"), []
    for number, blob in enumerate(blobs):
        buffer += b"%040x blob %d\n" % (number, len(blob))
        contents.append((b"%040x" % number, len(buffer), len(buffer) + len(blob)))
        buffer += blob + b"\n"
    batch = ContentBatch(buffer, len(buffer), contents)
    together = [(oid, found, size) for oid, found, size in scan_batch(ruleset(), batch, MEDIUM)]
    assert [oid for oid, _, _ in together] == [oid for oid, _, _ in contents]
    for blob, (_, found, size) in zip(blobs, together, strict=True):
        assert summarize(found) == summarize(scan_content(ruleset(), blob, MEDIUM))
        assert size == len(blob)


def test_scan_content_returns_the_hits_of_find():
    data = make_lines(random.Random(6), 30)
    assert summarize(scan_content(ruleset(), data, MEDIUM)) == summarize(
        ScanResult([("", hit) for hit in find(ruleset(), data, MEDIUM)])
    )
