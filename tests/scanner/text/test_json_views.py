"""Notebooks and HAR files: what their JSON hides is found, and nothing is reported twice."""

import base64
import gzip
import json

import pytest

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.scan import scan_content
from outcrop.scanner.text.archive_members import UnpackBudget
from outcrop.scanner.text.archives import unpack_texts
from outcrop.scanner.text.magic import needs_unpacking
from tests.support.rulesets import github_token, ruleset

TOKEN, OTHER = github_token("json view"), github_token("json view 2")
PACKED = base64.b64encode(gzip.compress(f"x = '{OTHER}'\n".encode())).decode()


def notebook(*outputs: object, source: object = "print(1)\n") -> bytes:
    cell = {"cell_type": "code", "outputs": list(outputs), "source": source}
    return json.dumps(
        {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1
    ).encode()


def har(**content: object) -> bytes:
    request = {"url": "https://a.example/", "headers": [{"name": "Accept", "value": "*/*"}]}
    entry = {"request": request, "response": {"headers": [], "content": content}}
    return json.dumps({"log": {"version": "1.2", "entries": [entry]}}).encode()


def found_in(data: bytes) -> list[tuple[str, str]]:
    assert needs_unpacking(data)
    result = scan_content(ruleset(), data, Confidence.MEDIUM)
    assert result.gaps == []
    return [(name, reveal(hit.secret)) for name, hit in result.hits]


@pytest.mark.parametrize(
    "data",
    [
        notebook(source=["import os\n", f"x = '{TOKEN}'\n"]),
        notebook({"output_type": "stream", "text": [f"{TOKEN}\n"]}),
        notebook({"output_type": "execute_result", "data": {"text/html": [f"<b>{TOKEN}</b>"]}}),
        har(text=json.dumps({"token": TOKEN})),
        har(
            text=base64.b64encode(json.dumps({"a": "b", "token": TOKEN}).encode()).decode(), encoding="base64"
        ),
    ],
    ids=["source", "stream", "html", "body", "base64"],
)
def test_what_the_file_shows_is_reported_once_with_its_line(data):
    assert found_in(data) == [("", TOKEN)]


@pytest.mark.parametrize(
    "output",
    [
        {"output_type": "stream", "text": [TOKEN[:20], TOKEN[20:] + "\n"]},
        {"output_type": "error", "traceback": [f"\x1b[0;31m{TOKEN}\x1b[0m"]},
    ],
)
def test_what_only_the_decoded_values_show_is_reported_with_its_place(output):
    assert found_in(notebook(output)) == [("cell 1 output", TOKEN)]


@pytest.mark.parametrize(
    "data",
    [
        notebook({"output_type": "display_data", "data": {"application/zip": PACKED}}),
        har(text=PACKED, encoding="base64"),
    ],
)
def test_an_archive_in_base64_is_reported_once(data):
    assert found_in(data) == [("", OTHER)]


def test_a_private_key_in_an_array_of_lines_is_found():
    body = base64.b64encode(bytes(range(7, 250)) * 4).decode()
    lines = [f"{body[at : at + 64]}\n" for at in range(0, len(body), 64)]
    key = ["-----BEGIN EC PRIVATE KEY-----\n", *lines, "-----END EC PRIVATE KEY-----\n"]
    names = {name for name, _ in found_in(notebook(source=["key = '''", *key, "'''"]))}
    assert names


@pytest.mark.parametrize(
    "data",
    [
        notebook()[:-30],
        b'{"cells": [' + b"[" * 5_000 + b'"nbformat"',
        har(text="x")[:-2],
    ],
    ids=["truncated", "nested", "har"],
)
def test_damaged_files_are_a_gap_and_scanned_as_they_are(data):
    assert list(unpack_texts(data, budget := UnpackBudget())) == [("", data)]
    assert budget.gaps == ["JSON: damaged, its values were not decoded"]


def test_a_body_that_becomes_too_large_is_a_gap():
    bomb = base64.b64encode(gzip.compress(bytes(50 << 20))).decode()
    list(unpack_texts(har(text=bomb, encoding="base64"), budget := UnpackBudget(max_member_bytes=1 << 20)))
    assert budget.gaps == ["compressed data: too large, only the beginning was read"]


def test_json_of_another_kind_is_no_gap():
    for data in (
        b'{"metadata": {"name": "x"}, "spec": }',
        b'{"cells": [1, 2]}',
        b'{"log": {"level": "info"}}',
    ):
        list(unpack_texts(data, budget := UnpackBudget()))
        assert budget.gaps == []
    assert not needs_unpacking(b'{"name": "package", "version": "1.0"}')
