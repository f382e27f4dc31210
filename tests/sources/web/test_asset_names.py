"""Build hashes in file names: a file keeps its identity from one build to the next."""

import pytest

from outcrop.sources.web.asset_names import stable_path


@pytest.mark.parametrize(
    ("name", "stable"),
    [
        ("app.3f9a12bc.js", "app.*.js"),
        ("app.3f9a.js", "app.*.js"),
        ("chunk-ABCDEF12.mjs", "chunk-*.mjs"),
        ("chunk-QWERTYUI.js", "chunk-*.js"),
        ("main.d587bbd6.chunk.js", "main.*.chunk.js"),
        ("2.3f9a12bc.chunk.js", "2.*.chunk.js"),
        ("index-DiwrgTda.js", "index-*.js"),
        ("index-BUP6VxnQ.js", "index-*.js"),
        ("index-B7oRx3_x.js", "index-*.js"),
        ("index-BxQ-a1Zk.js", "index-*.js"),
        ("DXm2Qfaz.js", "*.js"),
        ("4bd1b696-cc7298b5.js", "*-*.js"),
        ("framework-ecc4130bc7a58a64.js", "framework-*.js"),
        ("en.3f9a12bc.json", "en.*.json"),
        ("app.1699999999999.js", "app.*.js"),
        ("a.1b2c3d4e-1b2c-1b2c-1b2c-1b2c3d4e5f60.js", "a.*.js"),
        ("main-es2015.3f9a12bc.js", "main-es2015.*.js"),
    ],
)
def test_build_hashes_are_replaced(name, stable):
    assert stable_path(f"/static/{name}") == f"/static/{stable}"


@pytest.mark.parametrize(
    "name",
    [
        "jquery.3.7.1.js", "angular.min.js", "lodash-4.17.21.min.js", "core-js.3.30.0.js", "d3.v7.min.js",
        "three.r128.js", "bootstrap5.bundle.js", "noble-ed25519.js", "noble.ed25519.js", "Web3Modal.js",
        "page-HomePage.js", "x-UserSettingsPage.js", "x-XMLHttpRequest.js", "x-OAuth2Client.js", "sha256.js",
        "base64url.js", "CHANGELOG.txt", "README.html", "report-20240101.json", "3f9a12bc.json",
        "polyfills-legacy.js", "vendors-node_modules_foo_index_js.js", "swagger-ui-bundle.js", "3f9a12bc",
        "index.html", "serviceWorker.js",
    ],
)  # fmt: skip
def test_other_names_stay(name):
    assert stable_path(f"/static/{name}") == f"/static/{name}"
