"""Complete crawls of sites on loopback: the requests that are sent, and the resources that are returned."""

import base64
import gzip
import json

import pytest

from outcrop.domain.finding import SourceType
from tests.support.web_host import START, crawl_site, page, redirect, script, text, web_host

# Requests and resources


def test_pages_scripts_and_original_files_of_a_site_are_returned(tmp_path):
    original = json.dumps(
        {"sources": ["webpack:///./src/a.ts", "x.ts"], "sourcesContent": ["const a = 1", None]}
    )
    routes = {
        "/": page('<a href="/about">a</a><script src="/static/app.3f9a12bc.js"></script>'),
        "/about": page("<p>about</p>"),
        "/static/app.3f9a12bc.js": script("a()\n//# sourceMappingURL=app.3f9a12bc.js.map"),
        "/static/app.3f9a12bc.js.map": text(original, "application/json"),
    }
    with web_host(routes, "site.example", tls=tmp_path) as host:
        found = crawl_site(host, "https://site.example/")
    assert found.paths == ["/", "/about", "/static/app.3f9a12bc.js", "src/a.ts"]
    assert found.gaps == []
    bundle, source = found.resource("/static/app.3f9a12bc.js"), found.resource("src/a.ts")
    assert (bundle.path, bundle.source_type, bundle.origin) == (
        "/static/app.*.js",
        SourceType.JS_BUNDLE,
        "https://site.example",
    )
    assert (source.path, source.source_type, source.body) == (
        "src/a.ts",
        SourceType.JS_BUNDLE,
        b"const a = 1",
    )
    assert source.url == "https://site.example/static/app.3f9a12bc.js.map"
    assert (found.resource("/").source_type, found.resource("/").media_type) == (
        SourceType.ENDPOINT,
        "text/html",
    )
    assert len(host.paths()) == len(set(host.paths())), "something was fetched twice"


def test_depth_counts_links_from_the_start():
    routes = {f"/{n}": page(f"<a href=/{n + 1}></a><script src=/{n}.js></script>") for n in range(5)} | {
        f"/{n}.js": script() for n in range(5)
    }
    with web_host(routes) as host:
        assert crawl_site(host, START + "0", depth=0).paths == ["/0", "/0.js"]
        assert "/sitemap.xml" not in host.paths()
        assert crawl_site(host, START + "0", depth=2).paths == ["/0", "/0.js", "/1", "/1.js", "/2", "/2.js"]


def test_a_url_is_fetched_once_however_it_is_written():
    spellings = ("/a#x", "HTTP://SITE.example:80/a", "/b/../a", "/#top", "http://u:p@site.example/a")
    with web_host({"/": page("".join(f"<a href='{url}'>" for url in spellings)), "/a": page()}) as host:
        assert crawl_site(host).paths == ["/", "/a"]
        assert sorted(host.paths()) == ["/", "/a", "/sitemap.xml"]
        assert not any("Authorization" in request.headers for request in host.requests)


def test_pages_that_differ_by_their_query_are_returned_under_one_path():
    with web_host(
        {"/": page("<a href='/p?id=1'><a href='/p?id=2'>"), "/p?id=1": page("1"), "/p?id=2": page("2")}
    ) as host:
        found = [resource for resource in crawl_site(host).resources if resource.file_path == "/p"]
    assert [resource.path for resource in found] == ["/p", "/p"]
    assert {resource.body for resource in found} == {b"1", b"2"}


def test_scripts_of_other_hosts_are_fetched_and_add_only_scripts_of_their_origin():
    routes = {
        "site.example/": page(
            "<script src='http://cdn.example/lib.js'></script><a href='http://other.example/'>"
        ),
        "cdn.example/lib.js": script("import('./more.js');fetch('/api');import('http://third.example/x.js')"),
        "cdn.example/more.js": script("more()"),
    }
    with web_host(routes, "site.example", "cdn.example", "other.example", "third.example") as host:
        found = crawl_site(host)
    assert [(resource.origin, resource.file_path) for resource in found.resources] == [
        ("http://site.example", "/"), ("http://cdn.example", "/lib.js"), ("http://cdn.example", "/more.js"),
    ]  # fmt: skip
    assert host.paths("cdn.example") == ["/lib.js", "/more.js"]
    assert host.paths("other.example") == host.paths("third.example") == []


def test_data_that_a_script_requests_is_returned():
    routes = {
        "/": page("<script src=/a.js></script>"),
        "/a.js": script("fetch('/api/config')"),
        "/api/config": text('{"a":1}', "application/json"),
    }
    with web_host(routes) as host:
        found = crawl_site(host, depth=0)
    assert found.resource("/api/config").source_type is SourceType.ENDPOINT
    assert found.gaps == []


def test_urls_in_a_script_are_relative_to_the_page_that_loaded_it():
    routes = {
        "/shop/": page("<script src=/static/a.js></script>"),
        "/static/a.js": script("import('./b.js')"),
        "/static/b.js": script("fetch('data.json')"),
        "/shop/data.json": text("{}", "application/json"),
    }
    with web_host(routes) as host:
        assert "/shop/data.json" in crawl_site(host, START + "shop/").paths


def test_sitemaps_in_robots_txt_add_pages():
    routes = {
        "/": page(),
        "/robots.txt": text("Sitemap: http://site.example/maps/index.xml\n"),
        "/maps/index.xml": text(
            "<sitemapindex><sitemap><loc>/maps/one.xml.gz</loc></sitemap></sitemapindex>", "text/xml"
        ),
        "/maps/one.xml.gz": text(
            gzip.compress(b"<urlset><url><loc>http://site.example/hidden</loc></url></urlset>"),
            "application/gzip",
        ),
        "/hidden": page("hidden"),
    }
    with web_host(routes) as host:
        assert crawl_site(host).paths == ["/", "/hidden"]


def test_a_sitemap_that_robots_txt_does_not_name_may_be_missing():
    with web_host({"/": page(), "/sitemap.xml": text("", status=403)}) as host:
        assert crawl_site(host).gaps == []
        host.routes["/robots.txt"] = text("Sitemap: /sitemap.xml\n")
        assert crawl_site(host).gaps == [("http://site.example/sitemap.xml", "answered 403")]


def test_images_fonts_and_styles_are_skipped_without_a_gap():
    routes = {
        "/": page("<a href=/a.png><a href=/plain><a href=/s.css>"),
        "/plain": text(b"\x89PNG", "image/png"),
    }
    with web_host(routes) as host:
        found = crawl_site(host)
        assert set(host.paths()) == {"/", "/plain", "/sitemap.xml"}
    assert (found.paths, found.gaps) == (["/"], [])


def test_globs_select_pages():
    links = (
        "<a href=/docs/a><a href=/docs/private/b><a href=/blog><a href=/docs/to>"
        "<script src=/static/x.js></script>"
    )
    routes = {
        "/": page(links),
        "/docs/a": page(),
        "/static/x.js": script(),
        "/docs/to": redirect("/docs/private/b"),
    }
    with web_host(routes | {"/docs/private/b": page(), "/blog": page()}) as host:
        assert crawl_site(host, include=("/docs/*",), exclude=("/docs/private/*",)).paths == [
            "/",
            "/docs/a",
            "/static/x.js",
        ]
        assert "/docs/private/b" not in host.paths()


def test_files_of_inline_maps_that_bundles_share_are_returned_once():
    encoded = base64.b64encode(
        json.dumps({"sources": ["src/shared.ts"], "sourcesContent": ["shared()"]}).encode()
    ).decode()
    body = f"//# sourceMappingURL=data:application/json;base64,{encoded}"
    with web_host(
        {
            "/": page("<script src=/a.js></script><script src=/b.js></script>"),
            "/a.js": script(body),
            "/b.js": script("b()\n" + body),
        }
    ) as host:
        assert crawl_site(host).paths == ["/", "/a.js", "/b.js", "src/shared.ts"]


def test_a_malformed_source_map_is_a_gap_and_a_missing_one_is_not():
    routes = {
        "/": page("<script src=/a.js></script><script src=/b.js></script><script src=/c.js></script>"),
        "/a.js": script("//# sourceMappingURL=a.map"), "/a.map": page("<!doctype html>home"),
        "/b.js": script("//# sourceMappingURL=b.map"),
        "/c.js": script("//# sourceMappingURL=c.map"), "/c.map": text("{broken", "application/json"),
    }  # fmt: skip
    with web_host(routes) as host:
        assert crawl_site(host).gaps == [("http://site.example/c.map", "the source map is not JSON")]


def test_chunks_of_a_webpack_site_are_fetched():
    routes = {
        "/": page('<script src="/static/js/main.aaaa1111.js"></script>'),
        "/static/js/main.aaaa1111.js": script(
            'r.p="/",r.u=e=>"static/js/"+e+"."+{12:"abcd1234",13:"00000bad"}[e]+".chunk.js"'
        ),
        "/static/js/12.abcd1234.chunk.js": script("lazy()"),
    }
    with web_host(routes) as host:
        found = crawl_site(host)
    assert found.resource("/static/js/12.abcd1234.chunk.js").path == "/static/js/12.*.chunk.js"
    assert found.gaps == [], "a chunk that is only named may be missing"


# Charsets


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("<p>ключ".encode("cp1251"), "text/html; charset=windows-1251"),
        ("<meta charset=windows-1251><p>ключ".encode("cp1251"), "text/html"),
        ("\ufeff<p>ключ".encode("utf-16-le"), "text/html"),
        ("<p>ключ".encode("utf-16-le"), "text/html; charset=utf-16le"),
        ("\ufeff<p>ключ".encode(), "text/html"),
        ("<p>ключ".encode(), "text/html; charset=zlib_codec"),
        ("<p>ключ".encode(), "text/html; charset=no-such"),
        ("<p>ключ".encode(), "text/html"),
    ],
)
def test_text_in_any_charset_is_returned_as_utf_8(body, kind):
    with web_host({"/": text(body, kind)}) as host:
        converted = crawl_site(host).resource("/").body
    assert converted.endswith("<p>ключ".encode())
