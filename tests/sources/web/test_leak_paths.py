"""Private files that a site serves by mistake, and how they are distinguished from error pages."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.web_host import crawl_site, page, redirect, script, text, web_host


def test_files_at_leak_paths_are_found():
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
    "fallback",
    [
        page("<!doctype html><div id=app></div>"),
        text("<!doctype html><div id=app></div>", "text/plain"),
        lambda h: text(f"nothing at {h.path}"),
        lambda _: text(f"nothing here at {time.monotonic()}"),
        lambda h: text(json.dumps({"error": "not found", "path": h.path}), "application/json"),
        redirect("/"),
        redirect("http://elsewhere.example/"),
        text("no", status=403),
        text("", status=200),
    ],
)
def test_a_site_that_serves_one_page_for_every_path_has_no_leaked_files(fallback: Callable[..., Any]):
    with web_host({"/": page("home"), "/sitemap.xml": text("", status=404)}, fallback=fallback) as host:
        found = crawl_site(host, leak_paths=True)
    assert (found.paths, found.gaps) == (["/"], [])


def test_a_page_at_a_leak_path_is_no_leaked_file():
    with web_host(
        {"/": page(), "/config.json": page("<p>log in"), "/.env": text("<!-- x --><!doctype html>log in")}
    ) as host:
        assert crawl_site(host, leak_paths=True).paths == ["/"]


def test_a_file_differs_from_the_page_for_every_path():
    with web_host(
        {"/": page(), "/.env": text("KEY=" + "v" * 200), "/sitemap.xml": text("", status=404)},
        fallback=text("nothing here"),
    ) as host:
        assert crawl_site(host, leak_paths=True).paths == ["/", "/.env"]


def test_source_maps_that_no_script_names_are_tried_with_the_leak_paths():
    source_map = json.dumps({"sources": ["src/a.ts"], "sourcesContent": ["a"]})
    with web_host(
        {
            "/": page("<script src='/a.js?v=1'></script>"),
            "/a.js?v=1": script("a()"),
            "/a.js.map": text(source_map),
        }
    ) as host:
        assert "src/a.ts" not in crawl_site(host).paths
        assert "src/a.ts" in crawl_site(host, leak_paths=True).paths
