"""An archive that is embedded in a text as base64 is unpacked, within limits."""

import base64
import gzip
import io
import json
import random
import textwrap
import zipfile

import pytest

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.excerpt import excerpts_of_file
from outcrop.scanner.engine.scan import scan_content, scan_stream
from outcrop.scanner.text.decompress import read_stream
from tests.support.calls import recorded_calls
from tests.support.rulesets import BASE64, drawn, github_token, ruleset

TOKEN = github_token("embedded")
WORDS = "".join(f"line {number} of the text\n" for number in range(300))
HIDDEN = f"{WORDS}token: {TOKEN}\n"


def gz(text: str) -> bytes:
    """Return base64 of a text in gzip."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0))


def zipped(text: str) -> bytes:
    """Return base64 of a zip with one member."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("index.js", text)
    return base64.b64encode(out.getvalue())


def located_hits(data: bytes) -> list[tuple[str, int, int, tuple[str, ...]]]:
    """Return value, line, column and encoding of each hit in a text."""
    found = scan_content(ruleset(), data, Confidence.MEDIUM)
    assert [name for name, _ in found.hits] == [""] * len(found.hits)
    return [(reveal(hit.secret), hit.line, hit.column, hit.encoding) for _, hit in found.hits]


PACKED = ("base64", "packed")


@pytest.mark.parametrize(
    ("data", "at", "encoding"),
    [
        (b"x: 1\nuser_data: " + gz(HIDDEN) + b"\n", (2, 12), PACKED),
        (b'{"a": "' + gz(HIDDEN) + b'", "b": 1}', (1, 8), PACKED),
        (b"UserData=" + gz(HIDDEN) + b" next", (1, 10), PACKED),
        (gz(HIDDEN), (1, 1), PACKED),
        (
            b"code: |\n"
            + textwrap.indent("\n".join(textwrap.wrap(gz(HIDDEN).decode(), 76)), "  ").encode()
            + b"\nnext: x\n",
            (2, 3),
            PACKED,
        ),
        (b"data: " + gz(HIDDEN).replace(b"+", b"-").replace(b"/", b"_").rstrip(b"="), (1, 7), PACKED),
        (b"ZipFile: " + zipped(HIDDEN) + b"\n", (1, 10), PACKED),
        (
            b"data:\n  release: " + base64.b64encode(gz(json.dumps({"manifest": HIDDEN}))) + b"\n",
            (2, 12),
            ("base64", "base64", "packed"),
        ),
        (
            b"x: " + gz(WORDS + "token: " + base64.b64encode(TOKEN.encode()).decode()),
            (1, 4),
            ("base64", "packed", "base64"),
        ),
        (b"cut: " + gz(HIDDEN + drawn(BASE64, 5_000, 1))[:-1_000] + b"\n", (1, 6), PACKED),
    ],
    ids=[
        "yaml",
        "json",
        "equals",
        "only the archive",
        "lines",
        "URL-safe",
        "zip",
        "helm",
        "base64 inside",
        "truncated",
    ],
)
def test_hits_in_an_embedded_archive_are_located_at_its_start(data, at, encoding):
    assert located_hits(data) == [(TOKEN, *at, encoding)]


def test_companions_in_an_embedded_archive_are_found():
    key, secret = f"AKIA{drawn('ABCDEFGH234567', 16, 1)}", drawn(BASE64, 40, 1)
    data = b"x: " + gz(f"{WORDS}aws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
    ((_, hit),) = scan_content(ruleset(), data, Confidence.MEDIUM).hits
    assert {reveal(hit.secret), *map(reveal, hit.companions.values())} == {key, secret}


def test_several_archives_with_several_values_are_unpacked():
    others = [github_token(seed) for seed in range(4)]
    data = (
        b"a: "
        + gz(f"{WORDS}{others[0]}\n{others[1]}\n")
        + b"\n\nb: "
        + gz(f"{WORDS}{others[2]}\n")
        + b"\nc: "
        + others[3].encode()
    )
    assert [(value, line) for value, line, *_ in located_hits(data)] == [
        (others[0], 1),
        (others[1], 1),
        (others[2], 3),
        (others[3], 4),
    ]


def test_a_large_embedded_archive_is_read_to_its_end():
    noise = "".join(random.Random(7).choices(BASE64, k=1_000_000))
    assert [value for value, *_ in located_hits(b"x: " + gz(noise + "\n" + HIDDEN))] == [TOKEN]


def test_a_stream_with_an_embedded_archive_has_the_same_hits():
    data = b"words\n" * 1_000 + b"x: " + gz(HIDDEN) + b"\n"
    ((_, hit),) = scan_stream(ruleset(), io.BytesIO(data).read, Confidence.MEDIUM).hits
    assert [(reveal(hit.secret), hit.line, hit.column, hit.encoding)] == located_hits(data)


@pytest.mark.parametrize(
    "data",
    [b"H4sIA", b"x H4sIAAAA", b"UEsDBBQA", b"SDRzSUFB", b"SDRzSUFBQUFB" * 9, b"H4sIA=", b"a H4sIA\nH4sIA\n"],
)
def test_text_that_only_begins_like_an_archive_has_no_hits(data):
    assert located_hits(data) == []
    assert [value for value, *_ in located_hits(data + b" \n" + TOKEN.encode())] == [TOKEN]


def test_little_is_unpacked_of_a_text_full_of_decompression_bombs():
    bomb = b"x: " + gz("\0" * 500_000) + b"\n"
    data = bomb * 60 + b"y: " + gz((bomb * 80).decode()) + b"\n"
    with recorded_calls(read_stream) as calls:
        assert located_hits(data) == []
    sizes = [len(call.arguments["out"]) for call in calls]
    assert len(sizes) > 60
    assert sum(sizes) < 101 * len(data)


def test_the_base64_of_an_archive_is_not_in_the_excerpt():
    data = b"x: 1\ny: " + gz(HIDDEN) + b"\nz: 2\n"
    ((_, hit),) = scan_content(ruleset(), data, Confidence.MEDIUM).hits
    (excerpt,) = excerpts_of_file(ruleset(), data, [(b"a.yaml", hit)])
    assert excerpt is not None
    assert not any("H4sI" in line or data[60:90].decode() in line for line in excerpt.lines)


def test_base64_of_random_bytes_is_no_archive():
    noise = base64.b64encode(random.Random(1).randbytes(200_000))
    assert located_hits(noise + b"\nUEsDB" + noise) == []
