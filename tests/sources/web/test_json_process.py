"""Foreign JSON is parsed with a memory limit: a text that needs more is one gap, and the caller goes on."""

import json
import resource
from dataclasses import replace

import pytest

from outcrop.limits import PARSER_LIMITS
from outcrop.net.http import HttpResponse
from outcrop.sources.web.json_process import ParserDiedError, read_json_links, read_source_map
from outcrop.sources.web.links import json_links
from outcrop.sources.web.response_reader import full_text, parse_response
from outcrop.sources.web.source_map import SourceMapError, original_files
from outcrop.sources.web.urls import WebLinkKind

IN_CHILD = replace(PARSER_LIMITS, own_bytes=0)
MAP = json.dumps(
    {"version": 3, "sources": ["a.ts", "b.ts"], "sourcesContent": ["const a = 'é'", "\ud800"]}
).encode()
BOMB = b'{"version":3,"sources":[],"sourcesContent":[' + b"[]," * 12_000_000 + b"0]}"


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def response(body: bytes, name: str = "app.js.map") -> HttpResponse:
    return HttpResponse(f"https://shop.example/{name}", 200, {"content-type": "application/json"}, body)


def test_a_child_reads_the_same_files_and_links():
    assert read_source_map(MAP, IN_CHILD) == (list(original_files(MAP)), None)
    url = "https://shop.example/manifest.json"
    body = b'{"start_url":"/start?a=%C3%A9","files":["/a.js","./b.js","c"]}'
    assert read_json_links(body, url, IN_CHILD) == json_links(body, url) != []


def test_a_malformed_map_has_the_same_reason():
    for limits in (PARSER_LIMITS, IN_CHILD):
        with pytest.raises(SourceMapError, match="the source map is not JSON"):
            read_source_map(b"{", limits)


def test_a_map_with_too_many_files_is_read_in_part():
    body = json.dumps({"sourcesContent": ["x"] * 100}).encode()
    for limits in (replace(PARSER_LIMITS, files=10), replace(IN_CHILD, files=10)):
        files, problem = read_source_map(body, limits)
        assert len(files) == 10
        assert problem == "more than 10 original files in a source map: the rest was not read"


def test_a_map_that_needs_gigabytes_is_a_problem_and_costs_this_process_nothing():
    before = peak_memory()
    parsed = parse_response(response(BOMB), WebLinkKind.SOURCE_MAP, "")
    assert parsed.resources == []
    assert parsed.problem == "the JSON needs more than 600 MB or is too slow to read"
    assert peak_memory() - before < 300_000_000


def test_links_in_json_that_needs_gigabytes_are_a_problem():
    parsed = parse_response(response(BOMB, "data.json"), WebLinkKind.EMBEDDED, "")
    assert parsed.links == []
    assert parsed.problem == "the JSON needs more than 600 MB or is too slow to read"


def test_a_finding_is_not_gone_when_its_map_can_no_longer_be_read():
    with pytest.raises(ParserDiedError):
        full_text(response(BOMB))
