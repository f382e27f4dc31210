"""Run scans of web sites: the places of findings, counts and gaps, masked values, and limits of a crawl."""

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from outcrop.domain.target import TargetKind
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.services.pipeline.context import RunLimits
from outcrop.sources.isolated.process_pool import ProcessPool
from tests.sources.conftest import Repo
from tests.support.pipeline import token
from tests.support.rulesets import ruleset
from tests.support.site_runs import gap_reasons, linked, served, site_spec
from tests.support.web_host import Route, page, redirect, script, text

SITE, CDN = "http://site.example", "http://cdn.example"


def source_map(**files: str) -> str:
    """Return a source map with these original files."""
    names = [f"webpack://shop/./src/{name}.ts" for name in files]
    return json.dumps(
        {"version": 3, "sources": names, "sourcesContent": list(files.values()), "mappings": ""}
    )


def inline(map_: str) -> str:
    """Return the comment that includes a source map in a script."""
    encoded = base64.b64encode(map_.encode()).decode()
    return f"\n//# sourceMappingURL=data:application/json;charset=utf-8;base64,{encoded}\n"


def bundled() -> dict[str, Route]:
    """Return the routes of a shop as webpack, Vite and a tag manager build it."""
    head = f"""<!doctype html><html><head>
<script>window.CONFIG = {{
  "github": "{token("inline")}"
}};</script>
<script defer src="/static/js/main.3f9a12bc.chunk.js"></script>
<script type="module" crossorigin src="/assets/index-DiwrgTda.js"></script>
<script async src="{CDN}/tags/v2.js?id=9"></script>
</head><body><div id="root"></div></body></html>"""
    return {
        "/": page(head),
        "/static/js/main.3f9a12bc.chunk.js": script(
            f'(self.webpackChunk=self.webpackChunk||[]).push([[1],{{}}]);\nvar k="{token("bundle")}";\n'
            "//# sourceMappingURL=main.3f9a12bc.chunk.js.map"
        ),
        "/static/js/main.3f9a12bc.chunk.js.map": text(
            source_map(keys=f'// keys\n\nexport const key = "{token("linked")}";\n'), "application/json"
        ),
        "/assets/index-DiwrgTda.js": script(
            'fetch("/api/config").then(r=>r.json())'
            + inline(source_map(deep=f'const d = "{token("packed")}"'))
        ),
        "/api/config": text(json.dumps({"token": token("json")}), "application/json"),
        "cdn.example/tags/v2.js?id=9": script(f'window.tag="{token("third")}"'),
    }


def test_findings_of_a_bundled_site_have_the_places_where_they_were_served(pipeline, account):
    with served(pipeline, account, bundled(), "site.example", "cdn.example") as runs:
        runs.scan()
    found = {
        (
            finding["file_path"],
            finding["source_path"][1:].decode(),
            finding["source_type"],
            finding["source_url"],
            finding["line_number"],
            finding["source"],
        )
        for finding in runs.findings
    }
    chunk = "/static/js/main.3f9a12bc.chunk.js"
    assert found == {
        ("/", "/", "endpoint", f"{SITE}/", 3, SITE),
        (chunk, "/static/js/main.*.chunk.js", "js_bundle", f"{SITE}{chunk}", 2, SITE),
        ("src/keys.ts", "src/keys.ts", "js_bundle", f"{SITE}{chunk}.map", 3, SITE),
        ("src/deep.ts", "src/deep.ts", "js_bundle", f"{SITE}/assets/index-DiwrgTda.js", 1, SITE),
        ("/api/config", "/api/config", "endpoint", f"{SITE}/api/config", 1, SITE),
        ("/tags/v2.js", "/tags/v2.js", "js_bundle", f"{CDN}/tags/v2.js?id=9", 1, CDN),
    }
    assert {
        (finding["source_visibility"], finding["repo_full_name"], finding["status"], finding["seen_count"])
        for finding in runs.findings
    } == {("public", None, "active", 1)}


def test_a_run_counts_its_findings_and_writes_events_and_audit_lines(pipeline, account):
    routes = bundled()
    with served(pipeline, account, routes, "site.example", "cdn.example") as runs:
        run = runs.scan()
    assert (run.type, run.status, run.error) == ("scrape", "completed", None)
    assert (run.findings_new, run.findings_seen, run.findings_resolved) == (6, 6, 0)
    assert run.coverage_gaps == ()
    assert (run.progress["targets"], run.progress["pages"]) == (
        1,
        7,
    )  # five responses and two original files
    assert run.progress["bytes"] > sum(len(routes[path][2]) for path in ("/", "/api/config"))  # type: ignore[index]
    assert runs.events == ["finding.new"] * 6
    query = """SELECT actor, action, target, detail ->> 'scan' FROM audit
               WHERE account_id = %s AND action LIKE 'finding.%%'"""
    lines = pipeline.sql(query, account.id)
    assert {(actor, action, scan) for actor, action, _, scan in lines} == {
        ("scan", "finding.new", str(run.id))
    }
    assert {target for _, _, target, _ in lines} == {str(finding["id"]) for finding in runs.findings}


# --- the raw value


def test_raw_values_are_stored_only_encrypted(pipeline, account):
    with served(pipeline, account, bundled(), "site.example", "cdn.example") as runs:
        runs.scan()
    assert (
        runs.tables_with(*(token(name) for name in ("inline", "bundle", "linked", "packed", "json", "third")))
        == set()
    )
    assert all(finding["secret_box"] for finding in runs.findings)


IN_AN_ADDRESS = ["/x?key={}", "/y?n=1&key={}", "/for/{}/x", "/for/{}.txt"]


def test_a_raw_value_in_a_url_is_masked(pipeline, account):
    values = [token(written) for written in IN_AN_ADDRESS]
    addresses = [written.format(value) for written, value in zip(IN_AN_ADDRESS, values, strict=True)]
    routes = {"/": linked(*addresses)} | {
        address: text(f"key = {value}") for address, value in zip(addresses, values, strict=True)
    }
    with served(pipeline, account, routes) as runs:
        runs.scan()
    assert len(runs.findings) == 2 * len(values)
    assert runs.tables_with(*values) == set()
    assert sum("********" in finding["source_url"] for finding in runs.findings) == len(values)


def test_a_value_in_a_url_is_masked_in_the_other_findings_of_this_url(pipeline, account):
    values = [token(f"other {written}") for written in IN_AN_ADDRESS]
    addresses = [written.format(value) for written, value in zip(IN_AN_ADDRESS, values, strict=True)]
    routes = {"/": linked(*addresses)} | {
        address: text(f"key = {token(f'beside {address}')}") for address in addresses
    }
    with served(pipeline, account, routes) as runs:
        runs.scan()
        runs.scan()
    assert {finding["seen_count"] for finding in runs.findings} == {2}
    assert len(runs.findings) == 2 * len(values)
    assert runs.tables_with(*values) == set()


def test_a_value_in_a_url_is_masked_before_it_was_found_elsewhere(pipeline, account):
    value = token("listed only")
    routes = {
        "/": page("home"),
        "/sitemap.xml": text(f"{SITE}/for/{value}"),
        f"/for/{value}": text(f"key = {token('there')}"),
    }
    with served(pipeline, account, routes, limits=RunLimits(site_batch_size=1)) as runs:
        runs.scan()
    assert "********" in runs.finding["source_url"]
    assert runs.tables_with(value) == set()


def test_a_value_in_a_url_is_masked_in_gaps(pipeline, account):
    value = token("in a gap")
    routes = {"/": page(f'<a href="/for/{value}">x</a>'), f"/for/{value}": text("no", status=403)}
    with served(pipeline, account, routes) as runs:
        run = runs.scan()
    assert gap_reasons(run, "/for/") == ["answered 403"]
    assert runs.tables_with(value) == set()


# --- limits of a crawl


def test_reaching_the_page_limit_is_a_gap(pipeline, account):
    routes = {"/": linked(*(f"/{n}" for n in range(20)))} | {
        f"/{n}": text(f"key = {token(n)}") for n in range(20)
    }
    with served(pipeline, account, routes) as runs:
        run = runs.scan(site_spec(pages=6))
    assert len(runs.findings) == 5
    assert gap_reasons(run) == ["more than 6 pages: at least 15 were skipped"]


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_links_are_followed_up_to_the_depth(pipeline, account, depth):
    routes = {
        "/": linked("/1", value=token("d0")),
        "/1": linked("/2", value=token("d1")),
        "/2": linked("/3", value=token("d2")),
        "/3": linked(value=token("d3")),
    }
    with served(pipeline, account, routes) as runs:
        runs.scan(site_spec(depth=depth))
    assert runs.paths == ["/", "/1", "/2"][: depth + 1]


def test_a_single_page_is_scanned_with_its_scripts(pipeline, account):
    routes = {
        "/a": page('<a href="/b">b</a><script src="/a.js"></script>'),
        "/a.js": script(f'k="{token("a")}"'),
        "/b": text(token("b")),
    }
    with served(pipeline, account, routes) as runs:
        runs.scan(site_spec(f"{SITE}/a", kind=TargetKind.PAGE))
    assert runs.paths == ["/a.js"]


def test_glob_patterns_select_the_pages(pipeline, account):
    paths = ("/docs/a", "/docs/b", "/docs/private/c", "/blog/d")
    routes = {"/": linked(*paths)} | {path: text(f"key = {token(path)}") for path in paths}
    with served(pipeline, account, routes) as runs:
        runs.scan(site_spec(f"{SITE}/", "/docs/*", exclude=("*/private/*",)))
    assert runs.paths == ["/docs/a", "/docs/b"]


def test_robots_txt_is_followed_unless_the_target_says_otherwise(pipeline, account):
    routes = {"/": linked("/open", "/shut"), "/open": text(token("open")), "/shut": text(token("shut"))}
    routes["/robots.txt"] = text("User-agent: *\nDisallow: /shut\n")
    with served(pipeline, account, routes) as runs:
        run = runs.scan()
        assert (runs.paths, gap_reasons(run, "/shut")) == (["/open"], ["disallowed by robots.txt"])
        assert "/shut" not in runs.host.paths()
        runs.scan(site_spec(robots=False))
        assert runs.paths == ["/open", "/shut"]


def test_the_run_of_a_site_that_cannot_be_read_fails(pipeline, account):
    with served(pipeline, account, {}) as runs:
        run = runs.scan(site_spec(f"{SITE}/?key=a-word", kind=TargetKind.PAGE))
    assert (run.status, run.error) == ("failed", "answered 404")
    assert [(gap.what, gap.why) for gap in run.coverage_gaps] == [(f"{SITE}/", "answered 404")]


def test_a_redirect_of_the_start_page_to_another_origin_of_the_site_is_followed(pipeline, account):
    routes: dict[str, Route] = {
        "site.example/": redirect("http://www.site.example/"),
        "www.site.example/": page(f"<p>{token('www')}</p>"),
    }
    with served(pipeline, account, routes, "site.example", "www.site.example") as runs:
        runs.scan()
        assert runs.finding["source"] == "http://www.site.example"
        routes["www.site.example/"] = page("<p>clean</p>")
        runs.scan()
    assert runs.finding["status"] == "resolved"


# --- leaked files


def test_an_env_file_is_found_only_with_the_leak_option(pipeline, account):
    routes = {"/": page("home"), "/.env": text(f"GITHUB_TOKEN={token('env')}\n", "application/octet-stream")}
    with served(pipeline, account, routes) as runs:
        runs.scan()
        assert runs.findings == []
        runs.scan(site_spec(leak_places=True))
    assert (runs.finding["file_path"], runs.finding["source_type"]) == ("/.env", "endpoint")


def test_a_page_that_is_served_for_every_path_is_not_a_leaked_file(pipeline, account):
    everything = text(f"this is what we say always {token('soft')}")
    with served(
        pipeline, account, {"/": page("home"), "/.env": text(f"K={token('e')}\n" * 20)}, fallback=everything
    ) as runs:
        run = runs.scan(site_spec(leak_places=True))
    assert runs.paths == ["/.env"]
    assert run.status == "completed"


class GitFolder:
    """A handler that serves the `.git` folder of a repository."""

    def __init__(self, repo: Repo) -> None:
        self.folder = repo.path
        self.status = 200

    def __call__(self, handler: Any) -> Any:
        file = self.folder / handler.path.lstrip("/")
        if "/.git/" not in handler.path or not file.is_file():
            return text("no", status=404)
        return (
            text(file.read_bytes(), "application/octet-stream")
            if self.status == 200
            else text("no", status=self.status)
        )


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """Return a repository with one secret in its history and one at the tip."""
    created = Repo(tmp_path / "site")
    created.commit({"config/prod.py": f'KEY = "{token("old")}"\n'})
    created.commit({"config/prod.py": "KEY = None\n", "app.py": f'\nTOKEN = "{token("tip")}"\n'})
    return created


def test_an_exposed_git_folder_is_scanned(pipeline, account, repo):
    with served(pipeline, account, {"/": page("home")}, fallback=GitFolder(repo)) as runs:
        run = runs.scan(site_spec(leak_places=True))
        assert run.coverage_gaps == ()
        assert any("/.git/objects/" in path for path in runs.host.paths())
    assert [
        (finding["file_path"], finding["line_number"], finding["source_url"]) for finding in runs.findings
    ] == [
        ("/.git!app.py", 2, f"{SITE}/.git/HEAD"),
        ("/.git!config/prod.py", 1, f"{SITE}/.git/HEAD"),
    ]
    assert {(finding["source_type"], finding["source"]) for finding in runs.findings} == {("endpoint", SITE)}
    assert runs.tables_with(token("old")) == set()


def test_findings_in_a_git_folder_are_resolved_only_if_its_url_is_not_found(pipeline, account, repo):
    with served(pipeline, account, {"/": page("home")}, fallback=(folder := GitFolder(repo))) as runs:
        runs.scan(site_spec(leak_places=True))
        for status in (200, 403, 503):
            folder.status = status
            runs.scan()  # without the leak option the folder is not scanned
            assert set(runs.statuses.values()) == {"active"}, status
        folder.status = 403
        runs.scan(site_spec(leak_places=True))
        assert set(runs.statuses.values()) == {"active"}
        folder.status = 404
        run = runs.scan(site_spec(leak_places=True))
    assert set(runs.statuses.values()) == {"resolved"}
    assert run.findings_resolved == 2


def test_git_folders_in_two_folders_have_separate_findings(pipeline, account, repo):
    links = linked("/a/.git/HEAD", "/b/.git/HEAD")

    def folder(handler: Any) -> Any:
        handler.path = handler.path.removeprefix("/a").removeprefix("/b")
        return GitFolder(repo)(handler)

    with served(pipeline, account, {"/": links}, fallback=folder) as runs:
        runs.scan()
    assert runs.paths == [
        "/a/.git!app.py",
        "/a/.git!config/prod.py",
        "/b/.git!app.py",
        "/b/.git!config/prod.py",
    ]


def test_a_git_folder_that_cannot_be_scanned_is_only_a_gap(pipeline, account, repo):
    # These processes end at once: they find neither compiled rules of this version nor the file with the rules.
    unknown = RuleSet(ruleset().rules, "no version", ruleset().database)
    pool = ProcessPool(1, [Path("/nonexistent")], unknown, pipeline.context.egress, Path("/nonexistent"))
    context = replace(pipeline.context, process_pool=pool)
    with served(pipeline, account, {"/": page(f"<p>{token('home')}</p>")}, fallback=GitFolder(repo)) as runs:
        run_id = runs.wait(runs.run(site_spec(leak_places=True), context))
    run = pipeline.get_run(account, run_id)
    assert (run.status, runs.paths) == ("completed", ["/"])
    assert gap_reasons(run, "/.git/HEAD") == ["the scanning process ended before its work was done"]


def test_percent_encoding_in_paths_is_kept(pipeline, account):
    address = "/a%20b/" + quote("ключ")
    with served(pipeline, account, {"/": linked(address), address: text(token("percent"))}) as runs:
        runs.scan()
        runs.scan()
    assert (runs.finding["file_path"], runs.finding["seen_count"]) == (address, 2)
