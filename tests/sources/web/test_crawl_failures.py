"""Failures of a crawl, and the gaps that report them."""

import asyncio
import gzip
import time
import tracemalloc
from typing import Any

import pytest

from outcrop.domain.finding import SourceType
from outcrop.net.http import open_http
from outcrop.sources.web.crawl import CrawlOptions, crawl
from tests.support.web_host import START, WebHost, crawl_site, page, redirect, script, text, web_host


@pytest.mark.parametrize("status", [401, 403, 404, 500, 502])
def test_a_start_that_cannot_be_read_is_a_gap_and_nothing_else_is_fetched(status):
    with web_host({"/": text("secret", status=status)}) as host:
        found = crawl_site(host, leak_paths=True)
        assert host.paths() == ["/"]
    assert (found.resources, found.gaps) == ([], [(START, f"answered {status}")])


def test_dead_links_are_no_gaps_but_dead_scripts_and_errors_are():
    routes = {
        "/": page(
            "<a href=/gone><a href=/error><a href=/closed>"
            "<script src=/none.js></script><script src=/page.js></script>"
        ),
        "/error": text("", status=500),
        "/closed": text("", status=403),
        "/page.js": page("<!doctype html><p>home"),
    }
    with web_host(routes) as host:
        found = crawl_site(host)
    assert found.paths == ["/"]
    assert sorted(found.gaps) == [
        ("http://site.example/closed", "answered 403"),
        ("http://site.example/error", "answered 500"),
        ("http://site.example/none.js", "answered 404"),
        ("http://site.example/page.js", "a page was served instead of a script"),
    ]


@pytest.mark.parametrize(
    "response",
    [
        text("<html><title>Just a moment...</title>", "text/html", 403),
        text("<html><title>Just a moment...</title>", "text/html", 200),
        text("<html>", "text/html", 403, **{"cf-mitigated": "challenge"}),
        text("<html><title>Attention Required! | Cloudflare</title>", "text/html", 503),
        text("<html><script>window._cf_chl_opt={}</script>", "text/html", 503, **{"Retry-After": "30"}),
    ],
)
def test_challenge_pages_are_gaps(response):
    with web_host({"/": page("<a href=/a>"), "/a": response}) as host:
        found = crawl_site(host)
    assert (found.paths, found.gap_reason("/a")) == (["/"], "answered with a bot challenge page")


def test_redirects_within_the_site_are_followed_and_others_are_gaps():
    routes = {
        "site.example/": redirect("http://www.site.example/home"),
        "www.site.example/home": page("<a href=/off><a href=/twice><a href=/here>"),
        "/off": redirect("http://evil.example/x"),
        "/twice": redirect("/here"),
        "/here": page("here"),
    }
    with web_host(routes, "site.example", "www.site.example", "evil.example") as host:
        found = crawl_site(host)
        assert host.paths("evil.example") == []
        assert host.paths().count("/here") == 1
    assert found.paths == ["/here", "/home"]
    assert found.gaps == [("http://www.site.example/off", "redirects to another site, evil.example")]


def test_redirects_in_a_circle_are_a_gap():
    routes = {
        "/": page("<a href=/a><a href=/b><a href=/self><a href=/long/0>"),
        "/a": redirect("/b"),
        "/b": redirect("/a"),
        "/self": redirect("/self"),
    }
    with web_host(routes | {f"/long/{n}": redirect(f"/long/{n + 1}") for n in range(30)}) as host:
        found = crawl_site(host)
    assert {why for _, why in found.gaps} == {"redirects in a circle", "more than 10 redirects"}
    assert len(host.paths()) < 20


def test_a_start_that_redirects_in_a_circle_is_a_gap():
    with web_host({"/": redirect("/")}) as host:
        assert crawl_site(host).gaps == [(START, "redirects in a circle")]


def test_a_crawl_of_endless_pages_ends_at_the_limit():
    def calendar(handler: Any) -> Any:
        day = int(handler.path.rpartition("/")[2])
        return page(
            "".join(f"<a href=/day/{day * 3 + n}>" for n in range(1, 4)) + f"<script src=/s{day}.js></script>"
        )

    routes = {"/": page("<a href=/day/1>")}
    with web_host(routes, fallback=lambda h: script() if h.path.endswith(".js") else calendar(h)) as host:
        host.routes["/sitemap.xml"] = text("", status=404)
        found = crawl_site(host, depth=1_000, max_pages=20)
        assert len([path for path in host.paths() if path.startswith("/day/")]) == 19
    assert len(found.resources) <= 40
    assert any("more than 20 pages" in why for _, why in found.gaps)


def test_scripts_have_their_own_limit():
    with web_host(
        {
            "/": page("".join(f"<script src=/{n}.js></script>" for n in range(9)) + "<a href=/p>"),
            "/p": page(),
        },
        fallback=script(),
    ) as host:
        found = crawl_site(host, max_pages=5, depth=1)
    assert len([r for r in found.resources if r.source_type is SourceType.JS_BUNDLE]) == 5
    assert "/p" in found.paths
    assert found.gaps == [(START, "more than 5 scripts and source maps: at least 4 were skipped")]


def test_a_large_response_is_read_up_to_the_limit():
    with web_host({"/": page("x" * 5_000)}) as host:
        found = crawl_site(host, max_bytes=1_000)
    assert len(found.resource("/").body) == 1_000
    assert found.gaps == [(START, "larger than 1000 bytes: only the beginning was scanned")]


def trickle(handler: Any) -> None:
    """Send a response of one byte every 50 ms, for more than a minute."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/html")
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    for _ in range(2_000):
        handler.wfile.write(b"x")
        handler.wfile.flush()
        time.sleep(0.05)


def test_a_crawl_ends_at_its_time_limit():
    with web_host({"/": page("<a href=/slow><a href=/quick>"), "/slow": trickle, "/quick": page()}) as host:
        began = time.monotonic()
        found = crawl_site(host, seconds=2.0)
        assert time.monotonic() - began < 60
    assert found.paths == ["/", "/quick"]
    assert found.gaps == [(START, "time limit of 2 seconds: 1 known addresses were skipped")]


def test_a_start_that_takes_too_long_is_a_gap():
    with web_host({"/": trickle}) as host:
        assert crawl_site(host, seconds=0.3).gaps == [(START, "no complete response within 0.3 seconds")]


def test_the_time_limit_is_one_gap():
    routes = {"/": page("".join(f"<a href=/{n}>" for n in range(40)))}
    with web_host(routes, fallback=page()) as host:
        found = crawl_site(host, seconds=0.5, pause=0.1, concurrency=1)
    assert len(found.gaps) == 1
    assert "time limit of" in found.gaps[0][1]


def end_early(handler: Any) -> None:
    """Send a tenth of the announced body."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b"ten bytes!")
    handler.close_connection = True


COMPRESSED = gzip.compress(bytes(range(256)) * 40)


@pytest.mark.parametrize(
    "body",
    [
        b"not compressed",
        COMPRESSED[: len(COMPRESSED) // 2],
        COMPRESSED[:40] + b"\xff" * 40 + COMPRESSED[80:],
        COMPRESSED[:-8] + bytes(8),
    ],
)
def test_a_damaged_compressed_response_is_a_gap(body):
    with web_host(
        {
            "/": page("<a href=/a>"),
            "/a": (200, {"Content-Type": "text/html", "Content-Encoding": "gzip"}, body),
        }
    ) as host:
        found = crawl_site(host)
    assert (found.paths, found.gap_reason("/a")) == (
        ["/"],
        "the response ended early or its compressed body is damaged",
    )


def test_a_response_that_ends_early_is_a_gap():
    with web_host({"/": page("<a href=/early>"), "/early": end_early}) as host:
        found = crawl_site(host)
    assert (found.paths, found.gap_reason("/early")) == (
        ["/"],
        "the response ended early or its compressed body is damaged",
    )


def test_a_gzip_bomb_is_read_up_to_the_limit():
    bomb = gzip.compress(bytes(50_000_000))
    with web_host(
        {
            "/": page("<a href=/a>"),
            "/a": (200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, bomb),
        }
    ) as host:
        found = crawl_site(host, max_bytes=1_000_000)
    assert len(found.resource("/a").body) == 1_000_000
    assert "larger" in (found.gap_reason("/a") or "")


def test_a_gzip_response_is_decompressed():
    with web_host(
        {
            "/": (
                200,
                {"Content-Type": "text/html", "Content-Encoding": "gzip"},
                gzip.compress(b"<p>ke") + gzip.compress(b"y"),
            )
        }
    ) as host:
        assert crawl_site(host).resource("/").body == b"<p>key"


def test_internal_addresses_are_refused_with_a_gap():
    routes = {
        "/": page(
            "<script src='http://169.254.169.254/latest.js'></script><script src='http://localhost:1/a.js'></script>"
        )
    }
    with web_host(routes) as host:
        found = crawl_site(host)
    assert found.paths == ["/"]
    assert len(found.gaps) == 2
    assert all("address that is not public" in why for _, why in found.gaps)


@pytest.mark.parametrize("start", ["ftp://site.example/", "nothing", "http://", "http://[x"])
def test_a_start_that_is_no_url_is_a_gap(start):
    with web_host({}) as host:
        found = crawl_site(host, start)
        assert host.requests == []
    assert [why for _, why in found.gaps] == ["not an http or https URL"]


def test_closing_the_iterator_ends_all_requests():
    async def run(host: WebHost) -> int:
        async with open_http(host.egress) as http:
            found = crawl(http, CrawlOptions(START), lambda *_: None)
            async for _ in found:
                break
            await found.aclose()  # type: ignore[attr-defined]
            return len(asyncio.all_tasks())

    with web_host({"/": page("".join(f"<a href=/{n}>" for n in range(20)))}, fallback=trickle) as host:
        assert asyncio.run(run(host)) == 1


def test_memory_does_not_grow_with_the_site():
    big = "x" * 1_000_000

    async def run(host: WebHost) -> int:
        async with open_http(host.egress) as http:
            async for _ in crawl(http, CrawlOptions(START, concurrency=2), lambda *_: None):
                await asyncio.sleep(0)
        return tracemalloc.get_traced_memory()[1]

    with web_host({"/": page("".join(f"<a href=/{n}>" for n in range(30)))}, fallback=page(big)) as host:
        tracemalloc.start()
        try:
            assert asyncio.run(run(host)) < 20_000_000
        finally:
            tracemalloc.stop()
