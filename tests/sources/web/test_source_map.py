"""References to source maps, and the original files in a map."""

import base64
import json
from urllib.parse import quote

import pytest

from outcrop.sources.web.source_map import (
    SourceMapError,
    decode_inline,
    find_reference,
    is_inline,
    original_files,
    original_path,
)

MAP = {
    "version": 3,
    "sources": ["webpack:///./src/a.ts"],
    "sourcesContent": ["const key = 'é'\n"],
    "mappings": "AAAA",
}
RAW = json.dumps(MAP).encode()


def files_in(raw: bytes) -> list[tuple[str, bytes]]:
    """Return the names and contents of the original files in a map."""
    return [(file.name, file.content) for file in original_files(raw)]


@pytest.mark.parametrize(
    ("script", "reference"),
    [
        (b"a()\n//# sourceMappingURL=app.js.map", b"app.js.map"),
        (b"a()\n//# sourceMappingURL=app.js.map\n\n", b"app.js.map"),
        (b"a()\n//@ sourceMappingURL=old.map\r\n", b"old.map"),
        (b"a{}\n/*# sourceMappingURL=app.css.map */", b"app.css.map"),
        (b"//# sourceMappingURL=first.map\nb()\n//# sourceMappingURL=second.map", b"second.map"),
        (b"var a='sourceMappingURL=none.map'", None),
        (b'"/*# sourceMappingURL=data:application/json;base64,".concat(x)," */"', None),
        (b"//# sourceMappingURL=real.map\n", b"real.map"),
        (b"a()", None),
        (b"", None),
    ],
)
def test_the_last_comment_names_the_map(script, reference):
    assert find_reference(script, {}) == reference


def test_a_mention_in_code_after_the_comment_does_not_hide_it():
    assert find_reference(b"//# sourceMappingURL=a.map\nvar x='sourceMappingURL=';", {}) == b"a.map"


@pytest.mark.parametrize("header", ["SourceMap", "X-SourceMap"])
def test_a_header_is_preferred_to_a_comment(header):
    assert find_reference(b"//# sourceMappingURL=a.map", {header: "/maps/b.map"}) == b"/maps/b.map"


@pytest.mark.parametrize(
    "address",
    [
        b"data:application/json;base64," + base64.b64encode(RAW),
        b"data:application/json;charset=utf-8;base64," + base64.b64encode(RAW).rstrip(b"="),
        b"data:application/json;charset=utf-8," + quote(RAW).encode(),
        b"DATA:application/json;BASE64," + base64.b64encode(RAW),
    ],
)
def test_an_inline_map_is_decoded(address):
    reference = find_reference(b"a()\n//# sourceMappingURL=" + address, {})
    assert reference == address
    assert is_inline(reference)
    assert files_in(decode_inline(reference)) == [("src/a.ts", "const key = 'é'\n".encode())]


@pytest.mark.parametrize("address", [b"data:nothing", b"data:application/json;base64,A"])
def test_a_malformed_inline_map_is_an_error(address):
    with pytest.raises(SourceMapError):
        list(original_files(decode_inline(address)))


def test_a_guard_or_byte_order_mark_before_a_map_is_skipped():
    assert files_in(b")]}'\n" + RAW) == files_in(b"\xef\xbb\xbf" + RAW) == files_in(RAW) != []


def test_an_index_map_has_the_files_of_its_sections():
    other = {"sources": ["b.ts"], "sourcesContent": ["b"]}
    sections = [{"offset": {"line": 0, "column": 0}, "map": MAP}, {"map": other}, {"url": "elsewhere"}, 3]
    assert [name for name, _ in files_in(json.dumps({"sections": sections}).encode())] == ["src/a.ts", "b.ts"]


def test_files_without_content_are_skipped_and_files_without_name_are_not():
    source_map = {"sources": ["a.ts", "b.ts"], "sourcesContent": [None, "b", "c"]}
    assert files_in(json.dumps(source_map).encode()) == [("b.ts", b"b"), ("(unnamed)", b"c")]


@pytest.mark.parametrize(
    "raw", [b"", b"<html>", b"[1]", b"3", b"{", b"[" * 100_000, b'{"sections":[' + b'{"map":' * 50_000]
)
def test_other_data_is_an_error(raw):
    with pytest.raises(SourceMapError):
        list(original_files(raw))


@pytest.mark.parametrize(
    "fields",
    [{"sources": 3}, {"sourcesContent": "x"}, {"sourcesContent": [3, {}]}, {"sections": [{"map": 1}]}],
)
def test_a_map_of_the_wrong_shape_has_no_files(fields):
    assert files_in(json.dumps(fields).encode()) == []


def test_a_lone_surrogate_does_not_hide_the_rest():
    assert files_in(b'{"sources":["a"],"sourcesContent":["key\\ud800end"]}') == [("a", b"key?end")]


@pytest.mark.parametrize(
    ("name", "root", "path"),
    [
        ("webpack:///./src/a.ts", "", "src/a.ts"),
        ("webpack:///src/a.vue?abc1", "", "src/a.vue"),
        ("webpack://shop/./src/a.ts", "", "src/a.ts"),
        ("webpack://_N_E/../../node_modules/x/i.js", "", "node_modules/x/i.js"),
        ("webpack:///webpack/bootstrap", "", "webpack/bootstrap"),
        ("webpack:///(webpack)/buildin/global.js", "", "(webpack)/buildin/global.js"),
        ("turbopack:///[project]/src/a.tsx", "", "[project]/src/a.tsx"),
        ("ng:///app/a.ts", "", "app/a.ts"),
        ("../../src/App.tsx", "", "src/App.tsx"),
        ("../../../../etc/passwd", "", "etc/passwd"),
        ("/abs/a.ts", "", "abs/a.ts"),
        ("a.ts", "webpack:///src/", "src/a.ts"),
        ("a.ts", "/root", "root/a.ts"),
        ("https://h.example/x/a.ts?token=1#f", "", "x/a.ts"),
        ("C:\\work\\a.ts", "", "C:/work/a.ts"),
        ("\0virtual:x", "", "virtual:x"),
        ("", "", "(unnamed)"),
        ("..", "", "(unnamed)"),
    ],
)
def test_names_become_relative_paths(name, root, path):
    assert original_path(name, root) == path
