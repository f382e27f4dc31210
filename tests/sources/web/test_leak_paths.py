"""Files that were left on a site, and looking again at what was found."""

import asyncio
import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.sources.web.crawl import CrawlOptions
from outcrop.sources.web.refetch import RefetchResult, refetch, refetch_client
from tests.support.web_host import WebHost, crawl_site, page, redirect, script, text, web_host

# Places


def test_files_that_were_left_are_found():
    routes = {
        "/": page(),
        "/.env": text("KEY=1\n"),
        "/.git/HEAD": text("ref: refs/heads/main\n"),
        "/config.json": text("{}", "application/json"),
    }
    with web_host(routes) as host:
        found = crawl_site(host, leak_paths=True)
        assert found.paths == ["/", "/.env", "/.git/HEAD", "/config.json"]
        assert found.gaps == []
        assert crawl_site(host).paths == ["/"]


@pytest.mark.parametrize(
    "everything",
    [
        page("<!doctype html><div id=app></div>"),
        text("<!doctype html><div id=app></div>", "text/plain"),
        lambda h: text(f"nothing at {h.path}"),
        lambda _: text(f"nothing here, told at {time.monotonic()}"),
        lambda h: text(json.dumps({"error": "not found", "path": h.path}), "application/json"),
        redirect("/"),
        redirect("http://elsewhere.example/"),
        text("no", status=403),
        text("", status=200),
    ],
)
def test_a_site_that_answers_everything_has_no_files_left(everything: Callable[..., Any]):
    with web_host({"/": page("home"), "/sitemap.xml": text("", status=404)}, fallback=everything) as host:
        found = crawl_site(host, leak_paths=True)
    assert (found.paths, found.gaps) == (["/"], [])


def test_a_page_is_no_file_whatever_its_name():
    with web_host(
        {"/": page(), "/config.json": page("<p>log in"), "/.env": text("<!-- x --><!doctype html>log in")}
    ) as host:
        assert crawl_site(host, leak_paths=True).paths == ["/"]


def test_a_file_is_told_from_the_answer_for_everything():
    with web_host(
        {"/": page(), "/.env": text("KEY=" + "v" * 200), "/sitemap.xml": text("", status=404)},
        fallback=text("nothing here"),
    ) as host:
        assert crawl_site(host, leak_paths=True).paths == ["/", "/.env"]


def test_maps_that_no_script_names_are_tried_with_the_places():
    kept = json.dumps({"sources": ["src/a.ts"], "sourcesContent": ["a"]})
    with web_host(
        {"/": page("<script src='/a.js?v=1'></script>"), "/a.js?v=1": script("a()"), "/a.js.map": text(kept)}
    ) as host:
        assert "src/a.ts" not in crawl_site(host).paths
        assert "src/a.ts" in crawl_site(host, leak_paths=True).paths


# Looking again


def look(
    host: WebHost, path: str, egress: Egress | None = None, *, authenticated: bool = True
) -> RefetchResult:
    async def run() -> RefetchResult:
        async with open_http(egress or host.egress) as http:
            visitor = refetch_client(
                http,
                CrawlOptions("http://site.example/", headers={"X-Key": "k"}),
                authenticated=authenticated,
            )
            return await refetch(visitor, f"http://site.example{path}")

    return asyncio.run(run())


def test_looking_again_gives_what_stands_there_now():
    with web_host(
        {
            "/a.js": script("key"),
            "/moved": redirect("/a.js"),
            "/challenge": page("<title>Just a moment...</title>"),
        }
    ) as host:
        assert look(host, "/a.js") == RefetchResult(200, "application/javascript", b"key")
        assert host.requests[-1].headers["X-Key"] == "k"
        assert look(host, "/a.js", authenticated=False).status == 200
        assert "X-Key" not in host.requests[-1].headers
        assert look(host, "/none").status == 404
        assert look(host, "/moved").status == 302
        assert look(host, "/challenge") == RefetchResult(error="answered with a bot challenge page")
        assert look(host, "/a.js", Egress()).error
        assert look(host, "/a.js", Egress()).status is None


def test_looking_again_sees_into_source_maps():
    kept = json.dumps({"sources": ["a.ts"], "sourcesContent": ['key = "a\\b"']})
    inline = "//# sourceMappingURL=data:application/json;base64," + base64.b64encode(kept.encode()).decode()
    with web_host({"/a.map": text(kept, "application/json"), "/a.js": script(inline)}) as host:
        assert b'key = "a\\b"' in look(host, "/a.map").body
        assert b'key = "a\\b"' in look(host, "/a.js").body
