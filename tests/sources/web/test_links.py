"""Links of pages, manifests, feeds and sitemaps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcrop.sources.web.content_types import looks_like_html
from outcrop.sources.web.links import html_links, json_links, sitemap_links, xml_links
from outcrop.sources.web.scripts import script_links
from outcrop.sources.web.urls import WebLinkKind
from tests.support.growth import grows_linearly

HOME = "https://h.example/"


def html(body: str, url: str = HOME) -> dict[str, WebLinkKind]:
    """Return the links of a page, without the host, and their kinds."""
    return {link.url.removeprefix("https://h.example"): link.kind for link in html_links(body.encode(), url)}


# Pages


def test_a_page_links_to_pages_scripts_and_embedded_documents():
    found = html("""
        <a href=/a>a</a> <map><area href="/b?x=1&amp;y=2"></map> <iframe src=/frame></iframe>
        <form action=/find></form> <form method=POST action=/buy></form> <link rel=next href=/next>
        <link rel="stylesheet alternate" href=/print> <link rel=canonical href=/canonical>
        <link rel=manifest href=/site.webmanifest> <link rel=stylesheet href=/a.css>
        <meta http-equiv=Refresh content="5; URL='/refresh'"> <script src=/one.js></script>
        <link rel=modulepreload href=/two.mjs> <link rel=preload as=script href=/three.js>
        <link rel=preload as=font href=/f.woff2> <img src=/i.png> <a href=/photo.JPG>
        <noscript><a href=/noscript></a></noscript> <template><a href=/template></a></template>
        <svg><a xlink:href=/svg></a></svg>
    """)
    assert {url for url, kind in found.items() if kind is WebLinkKind.SCRIPT} == {
        "/one.js",
        "/two.mjs",
        "/three.js",
    }
    assert {url for url, kind in found.items() if kind is WebLinkKind.EMBEDDED} == {
        "/frame",
        "/refresh",
        "/site.webmanifest",
    }
    assert {url for url, kind in found.items() if kind is WebLinkKind.PAGE} == {
        "/a", "/b?x=1&y=2", "/find", "/next", "/canonical", "/noscript", "/template", "/svg",
    }  # fmt: skip


def test_base_href_applies_to_all_links():
    found = html(
        "<base href='/deep/er/'><a href=a><script src=s.js></script><script>fetch('data.json')</script>",
        HOME + "x/y",
    )
    assert set(found) == {"/deep/er/a", "/deep/er/s.js", "/deep/er/data.json"}


def test_text_that_is_not_markup_has_no_links():
    assert html("""
        <!-- <a href=/comment> --><textarea><a href=/text></textarea><title><a href=/title></title>
        <style><a href=/style></style>
        <div title="<a href=/value>"></div><abbr href=/abbr></abbr><script>var a = "<a href=/string>"</script>
        <a href="mailto:x@y.example"><a href="tel:1"><a href><a>
    """) == {}  # fmt: skip
    assert set(html("<a title=it's href=/a><a href='/b' title='>'><A HREF=/c>")) == {"/a", "/b", "/c"}


def test_links_that_end_a_session_are_not_followed():
    assert set(html("<a href=/logout><a href='/user/sign-out?x=1'><a href=/blogout><a href=/catalog>")) == {
        "/blogout",
        "/catalog",
    }


def test_an_import_map_links_to_scripts():
    found = html(
        '<script type=importmap>{"imports":{"a":"/a.mjs","b/":"/b/"},'
        '"scopes":{"/s/":{"c":"https://cdn.example/c"}}}</script>'
    )
    assert found == {"/a.mjs": WebLinkKind.SCRIPT, "https://cdn.example/c": WebLinkKind.SCRIPT}
    assert html("<script type=importmap>{broken</script>") == {}


def test_chunks_of_an_inline_script_are_found_in_the_folders_of_the_pages_scripts():
    found = html(r"""<script src="/_next/static/chunks/main-0123456789abcdef.js"></script>
        <script>self.__next_f.push([1,"2:I[1,[\"185\",\"static/chunks/app/layout-61e1cc1d7a2ea7cc.js\"]]"])</script>""")
    assert "/_next/static/chunks/app/layout-61e1cc1d7a2ea7cc.js" in found


@pytest.mark.parametrize(
    "piece",
    [
        b"<div>",
        b"<template>",
        b"<b a=1><p>",
        b"<a ",
        b'<a x="',
        b"<!--",
        b"<script>",
        b"<",
        b"<form>",
        b"<a href=/x>",
        b"<meta ='",
    ],
)
def test_a_hostile_page_is_read_in_linear_time(piece):
    assert grows_linearly(lambda size: html_links(piece * (size // len(piece)), HOME), 50_000)


# JSON and XML


def test_a_web_app_manifest_links_to_pages_and_its_worker():
    body = (
        b'{"start_url":"/?pwa=1","shortcuts":[{"url":"new"},{}],'
        b'"serviceworker":{"src":"sw.js"},"icons":[{"src":"i.png"}]}'
    )
    links = json_links(body, HOME + "m/site.webmanifest")
    assert {(link.url.removeprefix(HOME), link.kind) for link in links} == {
        ("?pwa=1", WebLinkKind.PAGE),
        ("m/new", WebLinkKind.PAGE),
        ("m/sw.js", WebLinkKind.SCRIPT),
    }


def test_bundler_manifests_link_to_scripts():
    react = (
        b'{"files":{"main.js":"/static/js/main.3f9a12bc.js","main.css":"/static/a.css"},'
        b'"entrypoints":["static/js/main.3f9a12bc.js"]}'
    )
    assert [link.url for link in json_links(react, HOME + "asset-manifest.json")] == [
        HOME + "static/js/main.3f9a12bc.js"
    ]
    vite = b'{"src/main.ts":{"file":"assets/main-DiwrgTda.js","src":"src/main.js"}}'
    assert [link.url for link in json_links(vite, HOME + ".vite/manifest.json")] == [
        HOME + "assets/main-DiwrgTda.js"
    ]
    assert json_links(b'{"name":"node.js","list":["a.js"]}', HOME) == json_links(b"{", HOME) == []


def test_sitemaps_and_feeds_link_to_pages():
    urlset = (
        b"<?xml version='1.0'?><urlset><url><loc> https://h.example/a?b=1&amp;c=2 </loc></url>"
        b"<url><loc><![CDATA[/d]]></loc></url></urlset>"
    )
    assert sitemap_links(urlset, HOME) == ([HOME + "a?b=1&c=2", HOME + "d"], [])
    assert sitemap_links(b"<sitemapindex><sitemap><loc>/s.xml</loc></sitemap></sitemapindex>", HOME) == (
        [],
        [HOME + "s.xml"],
    )
    assert sitemap_links(b"https://h.example/a\nhttps://h.example/b\n", HOME) == (
        [HOME + "a", HOME + "b"],
        [],
    )
    feed = b"<rss><link>https://h.example/post</link></rss><feed><link rel='self' href='/atom'/></feed>"
    assert [link.url for link in xml_links(feed, HOME)] == [HOME + "post", HOME + "atom"]


@given(st.binary(max_size=300), st.sampled_from([html_links, json_links, xml_links, sitemap_links]))
def test_any_bytes_can_be_parsed(body, parse):
    parse(body, HOME)
    script_links(body, HOME + "a.js", HOME)


def test_the_beginning_of_a_page_is_recognised_in_linear_time():
    assert not looks_like_html(b"<!---->" * 1_000 + b"x")
    assert looks_like_html(b"\xef\xbb\xbf <?xml version='1.0'?> <!-- a --> <!-- b --> <!DOCTYPE html>")
    assert grows_linearly(lambda count: looks_like_html(b"<!---->" * count + b"x"), 1_000)
