"""Requests of a crawl: robots.txt, crawl delay, Retry-After, and the hosts that get our headers."""

import asyncio
import threading
from itertools import pairwise
from typing import Any

import pytest

from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.sources.web.crawl import CrawlOptions, crawl
from tests.support.web_host import START, RecordedRequest, crawl_site, page, redirect, script, text, web_host


def test_robots_txt_is_obeyed_and_disallowed_urls_are_gaps():
    rules = text("User-agent: outcrop\nDisallow: /private/\n")
    with web_host(
        {"/": page("<a href=/a><a href='/private/b?token=s3cret'>"), "/a": page(), "/robots.txt": rules}
    ) as host:
        found = crawl_site(host)
        assert "/private/b?token=s3cret" not in host.paths()
        assert found.gaps == [("http://site.example/private/b?token", "disallowed by robots.txt")]
        assert crawl_site(host, robots=False).gaps == []
        assert "/private/b?token=s3cret" in host.paths()


def test_disallowed_urls_do_not_count_as_pages():
    routes = {
        "/": page("<a href=/no/1><a href=/no/2><a href=/yes>"),
        "/yes": page(),
        "/robots.txt": text("User-agent: *\nDisallow: /no/\n"),
    }
    with web_host(routes) as host:
        assert crawl_site(host, max_pages=2, concurrency=1).paths == ["/", "/yes"]


@pytest.mark.parametrize(("status", "read"), [(404, True), (401, True), (500, False), (503, False)])
def test_everything_is_disallowed_if_robots_txt_is_a_server_error(status, read):
    with web_host({"/": page(), "/robots.txt": text("oops", status=status)}) as host:
        found = crawl_site(host)
    assert bool(found.resources) is read
    assert read or found.gaps == [
        (START, f"robots.txt cannot be read (answered {status}), so nothing may be fetched")
    ]


def test_requests_to_one_host_are_paced():
    def is_paced(requests: list[RecordedRequest], pause: float) -> bool:
        """Whether requests are `pause` seconds apart; on a busy machine a few may arrive closer together."""
        times = sorted(request.at for request in requests)
        return (
            len(times) >= 4
            and times[-1] - times[0] > pause * (len(times) - 1.5)
            and min(b - a for a, b in pairwise(times)) > pause / 5
        )

    with web_host({"/": page("<a href=/a><a href=/b>"), "/a": page(), "/b": page()}) as host:
        crawl_site(host, pause=0.2)
        assert is_paced(host.requests, 0.2)
        host.requests.clear()
        host.routes["/robots.txt"] = text("User-agent: *\nCrawl-delay: 0.2\n")
        crawl_site(host)
        assert is_paced(host.requests[1:], 0.2), "crawl-delay"


@pytest.mark.parametrize("delay", ["nan", "-5", "inf", "x", "1e-9"])
def test_an_invalid_crawl_delay_is_ignored(delay):
    with web_host(
        {"/": page(), "/robots.txt": text(f"User-agent: *\nCrawl-delay: {delay}\nDisallow: /x\n")}
    ) as host:
        assert crawl_site(host, depth=0).paths == ["/"]


def test_concurrent_requests_are_limited():
    two_requests = threading.Barrier(2)

    def slow(_: Any) -> Any:
        two_requests.wait(60)  # until another request is there too
        return page()

    routes: dict[str, Any] = {"/": page("".join(f"<a href=/{n}>" for n in range(12)))} | {
        f"/{n}": slow for n in range(12)
    }
    with web_host(routes) as host:
        crawl_site(host, concurrency=3)
        assert 1 < host.max_concurrent <= 3


def test_retry_after_is_obeyed_once():
    replies = iter([text("wait", status=429, **{"Retry-After": "1"}), page("now")])
    with web_host(
        {
            "/": page("<a href=/a><a href=/b>"),
            "/a": lambda _: next(replies),
            "/b": text("", status=503, **{"Retry-After": "90"}),
        }
    ) as host:
        found = crawl_site(host)
        first, second = [request.at for request in host.requests if request.path == "/a"]
        assert second - first >= 0.95
        assert found.resource("/a").body == b"now"
        assert found.gaps == [("http://site.example/b", "answered 503")]
        assert host.paths().count("/b") == 1


def test_headers_are_sent_to_the_origin_of_the_start_only():
    routes = {
        "site.example/": page(
            "<script src='http://cdn.example/a.js'></script><script src=/b.js></script>"
            "<a href='http://www.site.example/w'>"
        ),
        "cdn.example/a.js": script(),
        "site.example/b.js": redirect("http://cdn.example/c.js"),
        "cdn.example/c.js": script(),
        "www.site.example/w": page(),
    }
    with web_host(routes, "site.example", "cdn.example", "www.site.example") as host:
        found = crawl_site(host, headers={"X-Api-Key": "k", "Authorization": "Bearer t"})
        assert found.gaps == []
        assert len(found.resources) == 4
        for request in host.requests:
            own = request.host == "site.example"
            assert ("X-Api-Key" in request.headers, "Authorization" in request.headers) == (own, own), request


def test_name_and_password_in_the_start_are_sent_as_a_header_and_never_shown():
    with web_host({"/?key=hunter2": text("no", status=401)}) as host:
        found = crawl_site(host, "http://me:hunter2@site.example/?key=hunter2")
        assert {request.headers["Authorization"] for request in host.requests} == {"Basic bWU6aHVudGVyMg=="}
    assert found.gaps == [("http://site.example/?key", "answered 401")]


def test_a_redirect_from_http_to_https_stays_on_the_site(tmp_path):
    with (
        web_host({"/": page("<a href=/a>"), "/a": page()}, tls=tmp_path) as safe,
        web_host({"/": redirect("https://site.example/")}) as plain,
    ):
        plain.ca = safe.ca
        both = Egress(
            connect_to=(("site.example", 80, "127.0.0.1", plain.port), *safe.egress.connect_to),
            ca_file=safe.ca,
        )

        async def run() -> list[tuple[str, str]]:
            async with open_http(both) as http:
                return [
                    (r.origin, r.file_path)
                    async for r in crawl(http, CrawlOptions(START), lambda *gap: pytest.fail(str(gap)))
                ]

        assert asyncio.run(run()) == [("https://site.example", "/"), ("https://site.example", "/a")]
