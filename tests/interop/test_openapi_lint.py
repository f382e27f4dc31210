"""Test the descriptions of both versions of the API with Spectral, a linter."""

import json

import pytest

from tests.interop.node import Node
from tests.support.backend import Server

SPECTRAL = "node_modules/@stoplight/spectral-cli/dist/index.js"


@pytest.mark.parametrize("path", ["/openapi.json", "/api/v2/openapi.json"])
def test_spectral_has_nothing_to_say_about_the_served_document(node: Node, server: Server, path: str) -> None:
    address = f"{server.base_url}{path}"
    options = ("--ruleset", "spectral.yaml", "--fail-severity", "hint", "--format", "json", "--quiet")
    done = node.run(SPECTRAL, "lint", *options, address)
    assert done.stderr == ""
    results = json.loads(done.stdout)
    assert [(result["code"], result["message"], result["path"]) for result in results] == []
    assert done.returncode == 0
