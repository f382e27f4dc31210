"""Addresses: one spelling, one site, and what identifies a file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcrop.sources.web.asset_names import stable_path
from outcrop.sources.web.urls import is_same_site, normalise_url, redact_url

HOME = "https://h.example/"


@pytest.mark.parametrize(
    ("reference", "base", "spelled"),
    [
        ("HTTPS://H.Example:443/a/../b#part", "", "https://h.example/b"),
        ("https://h.example", "", "https://h.example/"),
        ("http://h.example:80/?q=1", "", "http://h.example/?q=1"),
        ("https://me:secret@h.example/a", "", "https://h.example/a"),
        ("//cdn.example/x.js", HOME, "https://cdn.example/x.js"),
        ("  a\n b ", HOME, "https://h.example/a%20b"),
        ("\\x\\y", HOME, "https://h.example/x/y"),
        ("?page=2", "https://h.example/list?page=1", "https://h.example/list?page=2"),
        ("", "https://h.example/a?b#c", "https://h.example/a?b"),
        ("mailto:me@h.example", HOME, None),
        ("javascript:void(0)", HOME, None),
        ("data:text/html,x", HOME, None),
        ("http://[broken/", HOME, None),
        ("https://h.example:99999/", HOME, None),
        ("http://exa mple/", HOME, None),
        ("/" + "a" * 5_000, HOME, None),
    ],
)
def test_an_address_has_one_spelling(reference, base, spelled):
    assert normalise_url(reference, base) == spelled


@pytest.mark.parametrize(
    ("url", "start", "same"),
    [
        ("https://h.example/a", "https://h.example/", True),
        ("https://www.h.example/a", "https://h.example/", True),
        ("https://h.example/a", "https://www.h.example/", True),
        ("https://h.example/a", "http://h.example/", True),
        ("http://h.example/a", "https://h.example/", False),
        ("https://h.example:8443/a", "https://h.example/", False),
        ("https://api.h.example/a", "https://h.example/", False),
        ("https://h.example.evil.example/", "https://h.example/", False),
    ],
)
def test_what_is_of_the_same_site(url, start, same):
    assert is_same_site(url, start) is same


def test_an_address_is_told_without_what_may_be_secret():
    assert (
        redact_url("https://me:hunter2@h.example/a?token=abc&page=2&eyJhbGciOi#x")
        == "https://h.example/a?token&page"
    )
    assert redact_url("http://[broken") == "a malformed URL"


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("app.3f9a12bc.js", "app.*.js"), ("app.3f9a.js", "app.*.js"),
        ("chunk-ABCDEF12.mjs", "chunk-*.mjs"), ("chunk-QWERTYUI.js", "chunk-*.js"),
        ("main.d587bbd6.chunk.js", "main.*.chunk.js"), ("2.3f9a12bc.chunk.js", "2.*.chunk.js"), ("index-DiwrgTda.js", "index-*.js"),
        ("index-BUP6VxnQ.js", "index-*.js"), ("index-B7oRx3_x.js", "index-*.js"),
        ("index-BxQ-a1Zk.js", "index-*.js"), ("DXm2Qfaz.js", "*.js"),
        ("4bd1b696-cc7298b5.js", "*-*.js"), ("framework-ecc4130bc7a58a64.js", "framework-*.js"), ("en.3f9a12bc.json", "en.*.json"),
        ("app.1699999999999.js", "app.*.js"), ("a.1b2c3d4e-1b2c-1b2c-1b2c-1b2c3d4e5f60.js", "a.*.js"),
        ("main-es2015.3f9a12bc.js", "main-es2015.*.js"),
    ],
)  # fmt: skip
def test_a_content_hash_is_no_part_of_a_files_identity(name, kept):
    assert stable_path(f"/static/{name}") == f"/static/{kept}"


@pytest.mark.parametrize(
    "name",
    [
        "jquery.3.7.1.js", "angular.min.js", "lodash-4.17.21.min.js", "core-js.3.30.0.js", "d3.v7.min.js",
        "three.r128.js", "bootstrap5.bundle.js",
        "noble-ed25519.js", "noble.ed25519.js", "Web3Modal.js", "page-HomePage.js", "x-UserSettingsPage.js", "x-XMLHttpRequest.js",
        "x-OAuth2Client.js", "sha256.js", "base64url.js", "CHANGELOG.txt", "README.html", "report-20240101.json", "3f9a12bc.json",
        "polyfills-legacy.js", "vendors-node_modules_foo_index_js.js", "swagger-ui-bundle.js", "3f9a12bc", "index.html", "serviceWorker.js",
    ],
)  # fmt: skip
def test_ordinary_names_stay(name):
    assert stable_path(f"/static/{name}") == f"/static/{name}"


@given(st.text(max_size=100), st.text(max_size=50))
def test_any_address_can_be_read(reference, base):
    assert (spelled := normalise_url(reference, HOME)) is None or normalise_url(spelled) == spelled
    normalise_url(reference, base)
    redact_url(reference)
    stable_path(reference)
