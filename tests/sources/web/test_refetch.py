"""Fetching the URL of a finding again."""

import asyncio
import base64
import json

from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.sources.web.crawl import CrawlOptions
from outcrop.sources.web.refetch import RefetchResult, refetch, refetch_client
from tests.support.web_host import WebHost, page, redirect, script, text, web_host


def refetch_path(
    host: WebHost, path: str, egress: Egress | None = None, *, authenticated: bool = True
) -> RefetchResult:
    """Refetch a path of a host."""

    async def run() -> RefetchResult:
        async with open_http(egress or host.egress) as http:
            client = refetch_client(
                http,
                CrawlOptions("http://site.example/", headers={"X-Key": "k"}),
                authenticated=authenticated,
            )
            return await refetch(client, f"http://site.example{path}")

    return asyncio.run(run())


def test_a_refetch_returns_the_current_response():
    with web_host(
        {
            "/a.js": script("key"),
            "/moved": redirect("/a.js"),
            "/challenge": page("<title>Just a moment...</title>"),
        }
    ) as host:
        assert refetch_path(host, "/a.js") == RefetchResult(200, "application/javascript", b"key")
        assert host.requests[-1].headers["X-Key"] == "k"
        assert refetch_path(host, "/a.js", authenticated=False).status == 200
        assert "X-Key" not in host.requests[-1].headers
        assert refetch_path(host, "/none").status == 404
        assert refetch_path(host, "/moved").status == 302
        assert refetch_path(host, "/challenge") == RefetchResult(error="answered with a bot challenge page")
        assert refetch_path(host, "/a.js", Egress()).error
        assert refetch_path(host, "/a.js", Egress()).status is None


def test_a_refetch_includes_the_files_of_source_maps():
    source_map = json.dumps({"sources": ["a.ts"], "sourcesContent": ['key = "a\\b"']})
    inline = (
        "//# sourceMappingURL=data:application/json;base64," + base64.b64encode(source_map.encode()).decode()
    )
    with web_host({"/a.map": text(source_map, "application/json"), "/a.js": script(inline)}) as host:
        assert b'key = "a\\b"' in refetch_path(host, "/a.map").body
        assert b'key = "a\\b"' in refetch_path(host, "/a.js").body
