"""URLs that scripts load, in the code of several bundlers."""

import pytest

from outcrop.sources.web.scripts import script_links
from tests.support.growth import grows_linearly

HOME = "https://h.example/"


def js(body: str, at: str = "/static/js/main.3f9a12bc.js", page: str = "/shop/") -> list[str]:
    """Return the links of a script at this path, without the host."""
    return [
        link.url.removeprefix("https://h.example")
        for link in script_links(body.encode(), HOME[:-1] + at, HOME[:-1] + page)
    ]


def expected_links(body: str, at: str = "/app/index.js") -> list[str]:
    """Return the links of a script that should exist, without the host."""
    return [
        link.url.removeprefix("https://h.example")
        for link in script_links(body.encode(), HOME[:-1] + at, HOME)
        if link.expected
    ]


def test_webpack_runtime_names_its_chunks():
    assert js(
        'r.p="/",r.u=e=>"static/js/"+e+"."+{12:"abcd1234",1e3:"00ff00ff"}[e]+".chunk.js",'
        'r.miniCssF=e=>"css/"+{1:"a"}[e]+".css"'
    ) == [
        "/static/js/12.abcd1234.chunk.js",
        "/static/js/1000.00ff00ff.chunk.js",
    ]


def test_webpack_runtime_with_names_and_hashes_names_its_chunks():
    body = (
        'c.u=function(e){return""+({7:"home",9:"cart"}[e]||e)+"."'
        '+{7:"aaaa1111",9:"bbbb2222",12:"cccc3333"}[e]+".js"},c.p="/assets/"'
    )
    assert js(body) == ["/assets/home.aaaa1111.js", "/assets/cart.bbbb2222.js", "/assets/12.cccc3333.js"]


def test_webpack_4_runtime_names_its_chunks():
    body = (
        'script.src=function(e){return o.p+"static/js/"+({1:"x"}[e]||e)+"."'
        '+{1:"11112222",2:"aaaabbbb"}[e]+".chunk.js"}(t)'
    )
    assert js(body) == ["/static/js/x.11112222.chunk.js", "/static/js/2.aaaabbbb.chunk.js"]


def test_webpack_runtime_in_development_and_as_a_template_names_its_chunks():
    body = (
        "__webpack_require__.u = (chunkId) => {\n"
        '\treturn "" + chunkId + "." + {"src_a_js":"abcd1234"}[chunkId] + ".js";\n};'
    )
    assert js(body) == ["/static/js/src_a_js.abcd1234.js"]
    assert js('r.u=e=>`static/js/${({1:"home"})[e]||e}.${{1:"abcd1234",2:"dddd4444"}[e]}.chunk.js`') == [
        "/static/js/home.abcd1234.chunk.js",
        "/static/js/2.dddd4444.chunk.js",
    ]


def test_next_runtime_and_build_manifest_name_their_chunks():
    runtime = (
        'd.u=e=>123===e?"static/chunks/123-61e1cc1d7a2ea7cc.js":"static/chunks/"+(({4:"map"})[e]||e)+"."'
        '+({4:"aaaa1111",5:"bbbb2222"})[e]+".js",d.p="/_next/"'
    )
    assert set(js(runtime, "/_next/static/chunks/webpack-0123456789abcdef.js")) == {
        "/_next/static/chunks/123-61e1cc1d7a2ea7cc.js",
        "/_next/static/chunks/map.aaaa1111.js",
        "/_next/static/chunks/5.bbbb2222.js",
    }
    manifest = (
        'self.__BUILD_MANIFEST=function(s){return{__rewrites:{},"/":[s,"static/chunks/pages/index-3d2ef0a1b2c3d4e5.js"],'
        '"/about":["static/css/a.css","static/chunks/pages/about-0f1e2d3c4b5a6978.js"],'
        'sortedPages:["/","/about"]}}("static/chunks/29-9d8c.js")'
    )
    assert set(js(manifest, "/_next/static/BuildId123/_buildManifest.js")) == {
        "/_next/static/chunks/pages/index-3d2ef0a1b2c3d4e5.js",
        "/_next/static/chunks/pages/about-0f1e2d3c4b5a6978.js",
        "/_next/static/chunks/29-9d8c.js",
    }


def test_vite_entry_names_its_chunks():
    body = (
        "const __vite__mapDeps=(i,m=__vite__mapDeps,d=(m.f||(m.f=["
        '"assets/Home-DiwrgTda.js","a/H-B3x.css","assets/api-BUP6VxnQ.js"])))'
        '=>i.map(i=>d[i]);import{r as e}from"./vendor-CHdo91hT.js";'
        'const t=()=>n(()=>import("./Home-DiwrgTda.js"),__vite__mapDeps([0,1]));'
        'import"./side-B7oRx3_x.js";export*from"./all-BxQ0a1Zk.js";import x from"react"'
    )
    assert set(js(body, "/app/assets/index-Dx1pP9aQ.js")) == {
        "/app/assets/Home-DiwrgTda.js",
        "/app/assets/api-BUP6VxnQ.js",
        "/app/assets/vendor-CHdo91hT.js",
        "/app/assets/side-B7oRx3_x.js",
        "/app/assets/all-BxQ0a1Zk.js",
    }


def test_esbuild_entry_names_its_chunks():
    body = (
        'import{a as o,b as t}from"./chunk-ABCDEF12.js";import"./chunk-QWERTYUI.js";'
        'var e=()=>import("./page-6RVZK2QJ.js");'
    )
    assert js(body, "/main-5ZKVMNRA.js") == ["/chunk-ABCDEF12.js", "/chunk-QWERTYUI.js", "/page-6RVZK2QJ.js"]


def test_urls_of_workers_are_resolved_as_browsers_do():
    body = (
        'navigator.serviceWorker.register("/sw.js",{scope:"/"});importScripts("a.js", \'https://cdn.example/b.js\');'
        'new Worker(new URL("./w.js",import.meta.url));new SharedWorker("shared.js");'
        's.src="https://tags.example/t.js";i.src="/pixel.gif"'
    )
    assert expected_links(body) == [
        "/app/w.js",
        "/shared.js",
        "/sw.js",
        "/app/a.js",
        "https://cdn.example/b.js",
        "https://tags.example/t.js",
    ]


def test_names_that_do_not_say_where_the_script_is_are_ignored():
    assert (
        js(
            'var m={"./af.js":1,"./ar-dz.js":2};n("./af.js");l="lib/thing.js";x="node.js";'
            'e=".js";u="https://docs.example/intro.js"'
        )
        == []
    )
    assert js('var m={"/key.js":1, "/other.js": 2}') == []
    assert (
        js('import("./lang/"+l+".js");import(`./x/${l}.js`);new Worker("w-"+n);s.src="/gtm.js?id="+i') == []
    )


def test_both_names_of_a_conditional_expression_are_found():
    assert js('load(d?"/debug.js":"/live.js")') == ["/debug.js", "/live.js"]


def test_data_that_is_requested_by_a_plain_get_is_found():
    body = (
        'fetch("/api/config");fetch("settings.json",{headers:{a:1}});axios.get("/api/a",{params:p});'
        'axios("/api/b");$.getJSON("/api/c",f);'
        'x.open("GET","/api/d",!0);x.open("get","https://other.example/e");fetch("/api/f",{method:"GET"})'
    )
    assert js(body) == [
        "/api/config",
        "/shop/settings.json",
        "/api/a",
        "/api/b",
        "/api/c",
        "/api/f",
        "/api/d",
        "https://other.example/e",
    ]


@pytest.mark.parametrize(
    "call",
    [
        'fetch("/api/a",{method:"POST"})', 'fetch("/api/a",o)', 'fetch("/api/a",{...o})',
        'fetch("/api/a",{method:m})', 'fetch("/api/a"+id)',
        "fetch(`/api/${id}`)", 'fetch("/api/{id}")', 'fetch("/users/:id")', 'x.open("POST","/api/a")',
        'axios.post("/api/a")', 'fetch("/logout")', 'fetch("/api/delete-all")', 'fetch("/i.png")',
        'prefetch("/api/a")', 'fetch("/api/a",{body:b})', 'fetch("data:,x")',
    ],
)  # fmt: skip
def test_other_calls_are_ignored(call):
    assert js(call) == []


@pytest.mark.parametrize(
    "piece",
    [
        b'"a"+',
        b'{1:"a",',
        b"import",
        b'"',
        b"(",
        b"fetch(",
        b"a.b.",
        b'"/a.js",',
        b'import("/b");',
        b'"x"+{1:"a"}[e]+".js";',
        b"`${e}",
    ],
)
def test_a_hostile_script_is_read_in_linear_time(piece):
    assert grows_linearly(
        lambda size: script_links(piece * (size // len(piece)), HOME + "a.js", HOME), 40_000
    )
