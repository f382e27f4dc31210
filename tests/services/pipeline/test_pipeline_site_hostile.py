"""Run scans of hostile and broken sites.

A run must end, list its gaps, resolve nothing by mistake and leave no files.
"""

import asyncio
import gzip
import io
import json
import time
import tracemalloc
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from outcrop.limits import CrawlLimits
from outcrop.net.guard import look_up
from outcrop.services.pipeline.context import RunLimits
from tests.sources.conftest import Repo
from tests.support.outbound import connections_to_loopback
from tests.support.pipeline import token
from tests.support.site_runs import Gate, SiteRuns, gap_reasons, linked, served, site_spec
from tests.support.web_host import Reply, Route, page, redirect, script, text

SITE = "http://site.example"


def with_limits(**limits: Any) -> RunLimits:
    """Return limits of a run with these limits of the crawl."""
    return RunLimits(crawl=CrawlLimits(**limits))


# --- endless and damaged responses


def test_endless_redirects_are_gaps(pipeline, account):
    routes = {
        "/": linked("/a", "/n/0", "/last", value=token("home")),
        "/a": redirect("/b"),
        "/b": redirect("/a"),
        "/last": text(token("last")),
    }

    def next_redirect(handler: Any) -> Reply:
        kind, _, number = handler.path.rpartition("/")
        return redirect(f"{kind}/{int(number) + 1}") if kind == "/n" else text("", status=404)

    with served(pipeline, account, routes, fallback=next_redirect) as runs:
        run = runs.scan()
    assert runs.paths == ["/", "/last"]
    assert gap_reasons(run, "/a") == ["redirects in a circle"]
    assert gap_reasons(run, "/n/0") == ["more than 10 redirects"]


def test_an_endless_calendar_is_limited(pipeline, account):
    def month(handler: Any) -> Reply:
        number = int(handler.path.rpartition("/")[2]) if handler.path.startswith("/month/") else 0
        return page(
            f'<a href="/month/{number + 1}">next</a><a href="/month/{number + 2}">after</a><p>{token(number)}</p>'
        )

    with served(pipeline, account, {"/sitemap.xml": text("", status=404)}, fallback=month) as runs:
        run = runs.scan(site_spec(pages=15, depth=20))
        assert len(runs.host.paths()) <= 20
    assert (run.status, run.progress["pages"]) == ("completed", 15)
    assert len(gap_reasons(run)) == 1


def drip(handler: Any) -> Reply | None:
    """Send one byte at a time, without end."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/plain")
    handler.end_headers()
    while True:
        handler.wfile.write(b"x")
        time.sleep(0.05)


def test_slow_responses_are_gaps(pipeline, account):
    routes = {"/": linked("/slow", "/ok"), "/slow": drip, "/ok": text(token("ok"))}
    with served(pipeline, account, routes, limits=with_limits(request_seconds=0.3)) as runs:
        run = runs.scan()
    assert (runs.paths, gap_reasons(run, "/slow")) == (["/ok"], ["no complete response within 0.3 seconds"])


def test_a_run_that_reaches_its_time_limit_keeps_its_findings(pipeline, account):
    routes = {"/": linked("/slow", "/ok"), "/slow": drip, "/ok": text(token("in time"))}
    with served(pipeline, account, routes, limits=with_limits(seconds=0.6)) as runs:
        run = runs.scan()
    assert (run.status, runs.paths) == ("completed", ["/ok"])
    assert gap_reasons(run) == ["time limit of 0.6 seconds: 1 known addresses were skipped"]


def test_huge_responses_and_gzip_bombs_are_read_up_to_the_limit(pipeline, account):
    bomb = gzip.compress(f"key = {token('bomb')}\n".encode() + bytes(100 << 20), 1)
    routes = {
        "/": linked("/huge", "/bomb"),
        "/huge": text(f"key = {token('huge')}\n" + "x" * (3 << 20)),
        "/bomb": text(bomb, **{"Content-Encoding": "gzip"}),
    }
    with served(pipeline, account, routes, limits=with_limits(max_bytes=1 << 20)) as runs:
        run = runs.scan()
    assert runs.paths == ["/bomb", "/huge"]
    assert {*gap_reasons(run, "/huge"), *gap_reasons(run, "/bomb")} == {
        "larger than 1048576 bytes: only the beginning was scanned"
    }
    assert run.progress["bytes"] < 3 << 20


def test_broken_gzip_is_a_gap(pipeline, account):
    packed = gzip.compress(f"key = {token('packed')}\n".encode() * 100)
    routes = {
        "/": linked("/cut", "/junk", "/whole"),
        "/cut": text(packed[:-20], **{"Content-Encoding": "gzip"}),
        "/junk": text(b"\x1f\x8b" + bytes(50), **{"Content-Encoding": "gzip"}),
        "/whole": text(packed, **{"Content-Encoding": "gzip"}),
    }
    with served(pipeline, account, routes) as runs:
        run = runs.scan()
    assert runs.paths == ["/whole"]
    assert {*gap_reasons(run, "/cut"), *gap_reasons(run, "/junk")} == {
        "the response ended early or its compressed body is damaged"
    }


def test_a_damaged_archive_is_a_gap(pipeline, account):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conf/a.env", f"KEY={token('zipped')}\n")
        archive.writestr("b.txt", "x" * 5_000)
    raw = bytearray(file.getvalue())
    at = raw.index(b"b.txt") + 5
    raw[at : at + 8] = b"\xff" * 8
    with served(
        pipeline, account, {"/": linked("/backup.zip"), "/backup.zip": text(bytes(raw), "application/zip")}
    ) as runs:
        run = runs.scan()
    assert runs.paths == ["/backup.zip!conf/a.env"]
    assert len(gap_reasons(run, "/backup.zip")) == 1


# --- encodings and names


def test_values_in_all_encodings_are_found_and_found_again(pipeline, account):
    def body(name: str) -> str:
        return f"<p>привет</p>\n<p>key = {token(name)}</p>"

    routes: dict[str, Route] = {
        "/utf16": text(body("utf16").encode("utf-16"), "text/html"),
        "/utf16be": text(body("utf16be").encode("utf-16-be"), "text/html; charset=utf-16be"),
        "/cp1251": text(body("cp1251").encode("cp1251"), "text/html; charset=windows-1251"),
        "/unknown": text(body("unknown"), "text/html; charset=utf-99"),
        "/wrong": text(body("wrong").encode("cp1251"), "text/html; charset=utf-8"),
        "/bom": text(body("bom").encode("utf-8-sig"), "text/html; charset=windows-1251"),
        "/unpacking": text(body("unpacking"), "text/html; charset=bz2"),
    }
    with served(pipeline, account, {"/": linked(*routes)} | routes) as runs:
        runs.scan()
        runs.host.routes["/"] = page("no links")
        runs.scan()
    assert runs.statuses == dict.fromkeys(routes, "active")
    assert {(finding["line_number"], finding["seen_count"]) for finding in runs.findings} == {(2, 2)}


def test_headers_with_any_bytes_do_not_end_a_run(pipeline, account):
    routes: dict[str, Route] = {
        "/": page('<a href="/type">t</a><a href="/moved">m</a><script src="/a.js"></script>'),
        "/type": text(token("type"), "te\xfft/\xe9"),
        "/moved": redirect("/\xff\xfe"),
        "/a.js": script(f'k="{token("map")}"', SourceMap="\xff\xfe.map"),
    }
    with served(pipeline, account, routes) as runs:
        run = runs.scan()
        runs.host.routes["/"] = page("no links")
        runs.scan()
    assert run.status == "completed"
    assert {(finding["file_path"], finding["seen_count"]) for finding in runs.findings} == {
        ("/type", 2),
        ("/a.js", 2),
    }


def test_file_names_in_a_source_map_may_be_any_text(pipeline, account):
    names = ["src/\ud800.ts", "a\0b.ts", "../../../etc/passwd", "x/.git/HEAD", "é" * 3_000]
    kept = json.dumps(
        {"sources": names, "sourcesContent": [f'k = "{token(number)}"' for number in range(len(names))]}
    )
    routes = {
        "/": page('<script src="/a.js"></script>'),
        "/a.js": script("a()\n//# sourceMappingURL=/m"),
        "/m": text(kept, "application/json"),
    }
    with served(pipeline, account, routes) as runs:
        run = runs.scan()
        runs.scan()
        assert not any(".git" in path for path in runs.host.paths())
    assert run.status == "completed"
    assert runs.paths == sorted(["src/?.ts", "ab.ts", "etc/passwd", "x/.git/HEAD", "é" * 3_000])
    assert {finding["seen_count"] for finding in runs.findings} == {2}


# --- large sites


def test_a_page_with_a_hundred_thousand_links_is_limited_with_a_gap(pipeline, account):
    body = "".join(f'<a href="/{n}">x</a>' for n in range(100_000))
    with served(pipeline, account, {"/": page(body + f"<p>{token('links')}</p>")}) as runs:
        run = runs.scan(site_spec(pages=3))
        assert len(runs.host.paths()) < 10
    assert runs.paths == ["/"]
    assert "more than 20000 links: the rest was not followed" in gap_reasons(run)
    assert any(why.startswith("more than 3 pages") for why in gap_reasons(run))


def test_a_script_with_one_line_of_ten_megabytes_is_scanned(pipeline, account):
    long = "a(1,'b');" * (10 << 17) + f'k="{token("long")}"'
    with served(
        pipeline, account, {"/": page('<script src="/a.js"></script>'), "/a.js": script(long)}
    ) as runs:
        runs.scan()
    assert (runs.finding["file_path"], runs.finding["line_number"]) == ("/a.js", 1)


def test_a_large_site_is_not_kept_in_memory(pipeline, account):
    size, count = 1 << 20, 300
    large_page = page("lorem ipsum " * (size // 12))
    with served(
        pipeline,
        account,
        {"/": linked(*(f"/{n}" for n in range(count)))} | {f"/{n}": large_page for n in range(count)},
    ) as runs:
        tracemalloc.start()
        try:
            run = runs.scan()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert run.progress["pages"] == count + 1
    assert peak < 60 * size  # four responses at once, each read, decoded and scanned


# --- internal addresses


@pytest.fixture
def connected() -> Iterator[list[tuple[str, int]]]:
    """Yield the addresses that are connected to; connections outside loopback fail."""
    with connections_to_loopback() as found:
        yield found


def look_up_names(host: str, port: int) -> list[str]:
    """Return a private address for one name, and a public and a link-local address for another."""
    addresses = {"inner.example": ["10.0.0.7"], "mixed.example": ["93.184.215.14", "169.254.169.254"]}
    return addresses.get(host) or look_up(host, port)


def test_internal_addresses_are_never_connected_to(pipeline, account, connected):
    hosts = [
        "127.0.0.1:{}", "localhost:{}", "[::1]:{}", "2130706433:{}", "0177.0.0.1:{}", "0x7f000001:{}", "127.1:{}", "127.0.0.1.:{}",
        "[::ffff:127.0.0.1]:{}", "0.0.0.0:{}", "169.254.169.254", "[fd00:ec2::254]", "10.0.0.1", "inner.example", "mixed.example",
    ]  # fmt: skip
    with served(pipeline, account, {}, look_up=look_up_names) as runs:
        named = [host.format(runs.host.port) for host in hosts]
        tags = "".join(
            f'<script src="http://{host}/{number}.js"></script>' for number, host in enumerate(named)
        )
        runs.host.routes |= {f"/{n}.js": script(f'k="{token(n)}"') for n in range(len(hosts))}
        runs.host.routes |= {
            "/": page(tags + '<script src="/go.js"></script>'),
            "/go.js": redirect("http://169.254.169.254/latest/meta-data/"),
        }
        run = runs.scan()
        assert {request.host for request in runs.host.requests} == {"site.example"}
        assert set(connected) == {("127.0.0.1", runs.host.port)}
    assert (runs.findings, run.status) == ([], "completed")
    assert len({gap.what for gap in run.coverage_gaps}) == len(hosts) + 1
    assert len(gap_reasons(run, "/go.js")) == 1


@pytest.mark.parametrize(
    "start", ["http://127.0.0.1/", "http://169.254.169.254/", "http://inner.example/", "http://2130706433/"]
)
def test_a_run_of_an_internal_address_fails(pipeline, account, connected, start):
    with served(pipeline, account, {"/": page(token("inner"))}, look_up=look_up_names) as runs:
        run = runs.scan(site_spec(start))
    assert (connected, runs.findings, run.status) == ([], [], "failed")


def test_a_finding_whose_host_now_resolves_to_an_internal_address_stays(pipeline, account, connected):
    with served(pipeline, account, {"/": linked(value=token("rebound"))}) as runs:
        runs.scan()
        connected.clear()
        egress = replace(runs.host.egress, connect_to=())
        run = replace(runs, egress=egress, look_up=lambda *_: ["10.0.0.7"]).scan()
    assert (runs.finding["status"], run.status, connected) == ("active", "failed", [])
    assert (
        run.error
        == "robots.txt cannot be read (site.example: resolves to an address that is not public), so nothing may be fetched"
    )


# --- the credential for a site


def test_the_credential_is_sent_only_to_its_own_origin(pipeline, account, tmp_path):
    repo = Repo(tmp_path / "repo")
    repo.commit({"a.txt": f"key = {token('git')}\n"})

    def folder(handler: Any) -> Reply:
        file = repo.path / handler.path.lstrip("/")
        return (
            text(file.read_bytes(), "text/plain")
            if "/.git/" in handler.path and file.is_file()
            else text("", status=404)
        )

    cdn, www = "http://cdn.example", "http://www.site.example"
    head = f'<script src="{cdn}/t.js"></script><script src="/to-cdn.js"></script><script src="{cdn}/.git/HEAD"></script>'
    links = f'<a href="/own">o</a><a href="/to-www">w</a><a href="{www}/b">b</a><a href="{www}/.git/HEAD">g</a><a href="/to-other">x</a>'
    routes: dict[str, Route] = {
        "site.example/": page(head + links),
        "site.example/own": page(token("own")),
        "site.example/to-www": redirect(f"{www}/c"),
        "site.example/to-other": redirect(f"{cdn}/page"),
        "site.example/to-cdn.js": redirect(f"{cdn}/u.js"),
        "www.site.example/b": page(token("b")),
        "www.site.example/c": page(token("c")),
        "cdn.example/t.js": script(f't="{token("t")}"'),
        "cdn.example/u.js": script(f'u="{token("u")}"'),
    }
    with served(
        pipeline, account, routes, "site.example", "www.site.example", "cdn.example", fallback=folder
    ) as runs:
        for _ in range(2):
            runs.scan(credential="Bearer only-for-the-site")
            authenticated = {
                request.host for request in runs.host.requests if "only-for-the-site" in str(request.headers)
            }
            assert authenticated == {"site.example"}
            routes["site.example/"] = page(
                f'<a href="{www}/none">n</a><script src="{cdn}/none.js"></script>'
            )  # the second run requests the URLs of all findings
            routes |= {"cdn.example/none.js": script("n()"), "www.site.example/none": page("n")}
        assert any(
            request.host == "www.site.example" and "/.git/objects/" in request.path
            for request in runs.host.requests
        )
        assert not any(
            request.host == "cdn.example" and "/.git/objects/" in request.path
            for request in runs.host.requests
        )
    assert {finding["file_path"]: finding["source_visibility"] for finding in runs.findings} == {
        "/own": "unknown", "/b": "public", "/c": "public", "/t.js": "public", "/u.js": "public", "/.git!a.txt": "public",
    }  # fmt: skip
    assert {finding["seen_count"] for finding in runs.findings if "!" not in finding["file_path"]} == {2}
    assert runs.tables_with("only-for-the-site") == set()


# --- cancelled runs


async def cancel_at(gate: Gate, runs: SiteRuns, run_id: UUID, source: str, recorded: int = 0) -> None:
    """Cancel the scan of a source when it waits at the gate and has recorded so many findings."""
    task = asyncio.create_task(runs.scan_source(run_id, source))
    await gate.reached()
    while len(runs.findings) < recorded:  # noqa: ASYNC110 - waits for the database
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_run_records_nothing_twice(pipeline, account):
    gate = Gate(text(token("behind")))
    routes: dict[str, Route] = {
        "/": linked("/a", "/b", "/gate"),
        "/a": text(token("a")),
        "/b": text(token("b")),
        "/gate": gate,
    }
    with served(pipeline, account, routes, limits=RunLimits(site_batch_size=1)) as runs:
        run_id, (source,) = runs.wait(runs.plan(site_spec()))
        runs.wait(cancel_at(gate, runs, run_id, source, recorded=2))
        assert (pipeline.get_run(account, run_id).status, len(runs.events)) == ("interrupted", 2)
        gate.open.set()
        before = len(runs.host.requests)
        runs.wait(asyncio.sleep(0.2))
        assert len(runs.host.requests) == before
        runs.wait(runs.scan_source(run_id, source))
    run = pipeline.get_run(account, run_id)
    assert (run.status, run.findings_new, run.findings_seen) == ("completed", 3, 3)
    assert {finding["file_path"]: finding["seen_count"] for finding in runs.findings} == {
        "/a": 1,
        "/b": 1,
        "/gate": 1,
    }
    assert runs.events == ["finding.new"] * 3


def test_a_run_cancelled_in_a_git_folder_leaves_no_files(pipeline, account):
    gate = Gate(text("a" * 40))
    routes: dict[str, Route] = {
        "/": linked("/.git/HEAD"),
        "/.git/HEAD": text("ref: refs/heads/main\n"),
        "/.git/refs/heads/main": gate,
    }
    with served(pipeline, account, routes) as runs:
        run_id, (source,) = runs.wait(runs.plan(site_spec()))
        runs.wait(cancel_at(gate, runs, run_id, source))
        pipeline.assert_no_work_folder()
        gate.open.set()
        runs.wait(runs.scan_source(run_id, source))
    run = pipeline.get_run(account, run_id)
    assert (run.status, runs.findings) == ("completed", [])
    assert "the git folder serves no readable object" in gap_reasons(run, "/.git/HEAD")


def test_a_git_folder_with_false_objects_is_a_gap(pipeline, account):
    routes = {"/": linked("/.git/HEAD", value=token("home")), "/.git/HEAD": text("ref: refs/heads/main\n")}

    def false_objects(handler: Any) -> Reply:
        if handler.path.endswith("refs/heads/main"):
            return text("a" * 40)
        return (
            text(bytes(5_000), "application/octet-stream")
            if "/.git/" in handler.path
            else text("", status=404)
        )

    with served(pipeline, account, routes, fallback=false_objects) as runs:
        run = runs.scan()
    assert (runs.paths, run.status) == (["/"], "completed")
    assert gap_reasons(run, "/.git/HEAD")
