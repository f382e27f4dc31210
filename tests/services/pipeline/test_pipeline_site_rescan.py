"""Scan sites again: present values are the same findings, and only values proven gone are resolved."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from outcrop.domain.target import TargetKind
from outcrop.limits import CrawlLimits
from outcrop.net.guard import Egress
from outcrop.services.pipeline.context import RunLimits
from outcrop.services.pipeline.maintenance import mark_stale
from tests.support.pipeline import token
from tests.support.site_runs import Gate, SiteRuns, gap_reasons, linked, served, site_spec
from tests.support.web_host import Reply, Route, page, redirect, script, text

SITE = "http://site.example"
OTHER_RULE = """
issuer = "Acme"
[[rule]]
id = "acme_key"
name = "Acme key"
secret_type = "acme"
pattern = 'acme_[0-9a-f]{16}'
"""


@pytest.fixture
def site(pipeline, account) -> Iterator[SiteRuns]:
    """Yield a site that was scanned once: a home page, and a page with a value."""
    with served(
        pipeline, account, {"/": linked("/p"), "/p": linked(value=token("p"))}, "site.example", "cdn.example"
    ) as runs:
        runs.scan()
        assert runs.statuses == {"/p": "active"}
        yield runs


def bundle(name: str, value: str | None) -> dict[str, Route]:
    """Return the routes of a page with a script of a build, with or without a value."""
    return {
        "/": page(f'<script src="/app.{name}.js"></script>'),
        f"/app.{name}.js": script(f'k="{value}"' if value else "none()"),
    }


# --- the same finding


def test_a_second_run_sees_the_same_findings(pipeline, account):
    routes: dict[str, Route] = {"/": linked("/a", "/b", value=token("home"))} | {
        f"/{n}": linked(value=token(n)) for n in "ab"
    }
    with served(pipeline, account, routes) as runs:
        runs.scan()
        before = {finding["id"]: finding["first_seen_at"] for finding in runs.findings}
        run = runs.scan()
    assert (run.findings_new, run.findings_seen, run.findings_resolved) == (0, 3, 0)
    assert {finding["id"]: finding["first_seen_at"] for finding in runs.findings} == before
    assert [finding["seen_count"] for finding in runs.findings] == [2, 2, 2]
    assert runs.events == ["finding.new"] * 3


def test_the_same_value_in_a_new_build_is_the_same_finding(pipeline, account):
    with served(pipeline, account, bundle("3f9a12bc", token("build"))) as runs:
        runs.scan()
        before = runs.finding
        runs.host.routes.clear()
        runs.host.routes |= bundle("77aa01ff", token("build"))
        run = runs.scan()
    assert (runs.finding["id"], runs.finding["seen_count"], runs.finding["status"]) == (
        before["id"],
        2,
        "active",
    )
    assert runs.finding["source_url"] == f"{SITE}/app.77aa01ff.js"
    assert (run.findings_new, runs.events) == (0, ["finding.new"])


def test_a_value_missing_in_a_new_build_is_resolved_when_the_old_file_is_gone(pipeline, account):
    with served(pipeline, account, bundle("3f9a12bc", token("left"))) as runs:
        runs.scan()
        runs.host.routes.clear()
        runs.host.routes |= bundle("77aa01ff", None)
        run = runs.scan()
    found = runs.finding
    assert (found["status"], found["auto_resolved"], found["resolved_by"], found["seen_count"]) == (
        "resolved",
        True,
        None,
        1,
    )
    assert found["resolved_at"] is not None
    assert (run.findings_seen, run.findings_resolved) == (0, 1)
    assert runs.events == ["finding.new", "finding.resolved"]
    actions = pipeline.sql(
        "SELECT action FROM audit WHERE account_id = %s AND actor = 'scan' ORDER BY id", account.id
    )
    assert actions == [("finding.new",), ("scan.finish",), ("finding.resolved",), ("scan.finish",)]


def test_a_value_missing_in_a_new_build_stays_while_the_old_file_is_served(pipeline, account):
    with served(pipeline, account, bundle("3f9a12bc", token("kept"))) as runs:
        runs.scan()
        runs.host.routes |= bundle("77aa01ff", None)
        run = runs.scan()
    assert (runs.finding["status"], runs.finding["seen_count"]) == ("active", 2)
    assert (run.findings_seen, run.findings_resolved) == (1, 0)


def test_a_value_in_a_source_map_is_checked_in_the_map(pipeline, account):
    kept = json.dumps({"sources": ["src/a.ts"], "sourcesContent": [f'const k = "{token("map")}"']})
    routes: dict[str, Route] = {
        "/": page('<script src="/a.js"></script>'),
        "/a.js": script("a()\n//# sourceMappingURL=a.js.map"),
        "/a.js.map": text(kept, "application/json"),
    }
    with served(pipeline, account, routes) as runs:
        runs.scan()
        routes["/a.js"] = script("a()")  # the script no longer names the map, which is still served
        runs.scan()
        assert (runs.finding["file_path"], runs.finding["status"], runs.finding["seen_count"]) == (
            "src/a.ts",
            "active",
            2,
        )
        routes["/a.js.map"] = text(
            json.dumps({"sources": ["src/a.ts"], "sourcesContent": ["const k = 0"]}), "application/json"
        )
        runs.scan()
    assert runs.finding["status"] == "resolved"


def test_a_page_without_links_to_it_is_seen_while_it_is_served(site):
    site.host.routes["/"] = page("no links")
    run = site.scan()
    assert (site.finding["status"], site.finding["seen_count"], run.findings_seen) == ("active", 2, 1)
    site.scan()
    assert (site.finding["seen_count"], site.events) == (3, ["finding.new"])


def test_a_value_on_another_page_is_another_finding(site):
    site.host.routes |= {"/": linked("/p", "/q"), "/p": linked(), "/q": linked(value=token("p"))}
    run = site.scan()
    assert site.statuses == {"/p": "resolved", "/q": "active"}
    assert (run.findings_new, run.findings_resolved) == (1, 1)


def test_a_value_that_returns_is_announced_again(site):
    kept = site.host.routes.pop("/p")
    site.scan()
    assert site.statuses == {"/p": "resolved"}
    site.host.routes["/p"] = kept
    run = site.scan()
    assert (site.finding["status"], site.finding["resolved_at"], site.finding["auto_resolved"]) == (
        "active",
        None,
        None,
    )
    assert site.events == ["finding.new", "finding.new", "finding.resolved"]
    assert (run.findings_new, run.findings_seen, run.findings_resolved) == (1, 1, 0)


def test_a_stale_finding_on_an_unlinked_page_becomes_active_again(pipeline, site):
    pipeline.sql(
        "UPDATE findings SET last_seen_at = last_seen_at - interval '40 days' WHERE account_id = %s",
        site.account.id,
    )
    pipeline.wait(mark_stale(pipeline.context, after=timedelta(days=30)))
    assert site.finding["status"] == "stale"
    site.host.routes["/"] = page("no links")
    site.scan()
    assert site.finding["status"] == "active"


# --- proofs that a value is gone


@pytest.mark.parametrize("response", [text("", status=404), text("", status=410), linked()])
@pytest.mark.parametrize("home", [linked("/p"), page("no links")])
def test_a_value_is_resolved_if_its_url_is_gone_or_lacks_it(site, response, home):
    site.host.routes |= {"/": home, "/p": response}
    run = site.scan()
    assert (site.finding["status"], site.finding["auto_resolved"], run.findings_resolved) == (
        "resolved",
        True,
        1,
    )


def test_a_closed_finding_that_is_no_longer_served_loses_the_points_of_the_last_scan(pipeline, site):
    def stored() -> tuple[float, bool, str]:
        ((score, seen, status),) = pipeline.sql(
            "SELECT composite_score, score_detail -> 'in_last_scan', status FROM findings WHERE account_id = %s",
            site.account.id,
        )
        return score, seen, status

    pipeline.sql("UPDATE findings SET status = 'customer_restricted' WHERE account_id = %s", site.account.id)
    before = stored()
    site.host.routes["/"] = page("no links")
    site.scan()  # the page is still served, although nothing links to it
    assert stored() == before
    site.host.routes["/p"] = text("", status=404)
    site.scan()
    after = stored()
    assert after[0] < before[0]
    assert after[1:] == (False, "customer_restricted")
    site.scan()
    assert stored() == after


def hang(handler: Any) -> Reply | None:
    """Send the headers of a response and no body."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/html; charset=utf-8")
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.flush()
    handler.rfile.read(1)
    return None


def hang_up(handler: Any) -> Reply | None:
    """Close the connection without a response."""
    handler.close_connection = True
    return None


PROVES_NOTHING: dict[str, Route] = {
    "/401": text("", "text/html", status=401),
    "/403": text("", "text/html", status=403),
    "/429": text("", "text/html", status=429),
    "/500": text("", "text/html", status=500),
    "/503": text("", "text/html", status=503),
    "/204": text("", "text/html", status=204),
    "/hang": hang,
    "/hang-up": hang_up,
    "/challenge": page("<title>Just a moment...</title>"),
    "/another-type": text("{}", "application/json"),
    "/to-login": redirect("/login"),
    "/elsewhere": redirect("http://other.example/login"),
    "/circle": redirect("/circle"),
    "/broken-gzip": text(b"\x1f\x8b\x08nonsense", "text/html", **{"Content-Encoding": "gzip"}),
    "/unknown-packing": text(b"abc", "text/html", **{"Content-Encoding": "br"}),
}


@pytest.mark.parametrize("is_linked", [True, False], ids=["linked", "unlinked"])
def test_a_response_that_proves_nothing_resolves_nothing(pipeline, account, is_linked):
    limits = RunLimits(crawl=CrawlLimits(request_seconds=0.3))
    routes = {"/": linked(*PROVES_NOTHING)} | {path: linked(value=token(path)) for path in PROVES_NOTHING}
    with served(pipeline, account, routes, limits=limits) as runs:
        runs.scan()
        routes |= (
            PROVES_NOTHING
            | {"/login": page("<form>login</form>")}
            | ({} if is_linked else {"/": page("no links")})
        )
        run = runs.scan()
    assert runs.statuses == dict.fromkeys(PROVES_NOTHING, "active")
    assert {finding["seen_count"] for finding in runs.findings} == {1}
    assert (run.status, run.findings_resolved, run.findings_seen) == ("completed", 0, 0)


def test_a_page_that_robots_txt_now_forbids_is_not_checked(site):
    site.host.routes |= {"/p": text("", status=404), "/robots.txt": text("User-agent: *\nDisallow: /p\n")}
    site.host.requests.clear()
    site.scan()
    assert (site.finding["status"], "/p" in site.host.paths()) == ("active", False)
    site.scan(site_spec(robots=False))
    assert site.finding["status"] == "resolved"


def test_nothing_is_checked_if_robots_txt_cannot_be_read(site):
    site.host.routes |= {"/p": text("", status=404), "/robots.txt": text("", status=500)}
    run = site.scan()
    assert (site.finding["status"], run.status) == ("active", "failed")
    assert "robots.txt cannot be read" in str(run.error)


@pytest.mark.parametrize(
    "egress", [Egress(), Egress.parse([], ["site.example:80=127.0.0.1:1"], None)], ids=["no name", "refused"]
)
def test_an_unreachable_site_resolves_nothing(site, egress):
    run = replace(site, egress=egress).scan()
    assert (site.finding["status"], run.status, run.findings_resolved) == ("active", "failed", 0)


def test_pages_are_checked_although_the_start_page_fails(site):
    site.host.routes |= {"/": text("", status=500), "/p": text("", status=404)}
    run = site.scan()
    assert (site.finding["status"], run.findings_resolved, run.error) == ("resolved", 1, "answered 500")


def test_a_finding_on_a_page_beyond_the_page_limit_stays(site):
    site.host.routes |= {"/": linked(*(f"/{n}" for n in range(5)), "/p")} | {
        f"/{n}": page("x") for n in range(5)
    }
    run = site.scan(site_spec(pages=3))
    assert (site.finding["status"], site.finding["seen_count"]) == ("active", 2)
    assert gap_reasons(run) == ["more than 3 pages: at least 4 were skipped"]


def test_a_truncated_page_resolves_nothing(site):
    site.host.routes["/p"] = page("x" * 5_000 + token("p"))
    run = replace(site, limits=RunLimits(crawl=CrawlLimits(max_bytes=2_000))).scan()
    assert site.finding["status"] == "active"
    assert gap_reasons(run, "/p") == ["larger than 2000 bytes: only the beginning was scanned"]


def test_a_finding_that_a_user_closed_stays_closed(pipeline, site):
    pipeline.sql("UPDATE findings SET status = 'customer_restricted' WHERE account_id = %s", site.account.id)
    del site.host.routes["/p"]
    site.scan()
    assert (site.finding["status"], site.events) == ("customer_restricted", ["finding.new"])


def test_a_value_that_no_rule_detects_any_more_is_not_resolved(pipeline, site):
    site.host.routes["/"] = page("no links")
    with pipeline.open_rules(OTHER_RULE) as context:
        site.wait(site.run(site_spec(), context))
    assert (site.finding["status"], site.finding["seen_count"]) == ("active", 2)


# --- values that are not stored


def test_a_finding_without_stored_value_is_resolved_only_if_its_url_is_gone(pipeline, site):
    pipeline.sql("UPDATE findings SET secret_box = NULL WHERE account_id = %s", site.account.id)
    site.host.routes["/p"] = linked()
    site.scan()
    assert site.finding["status"] == "active"  # the value to search for is not known
    site.host.routes["/p"] = text("", status=404)
    site.scan()
    assert site.finding["status"] == "resolved"


# --- third-party scripts


def test_a_script_that_two_sites_load_at_the_same_time_is_one_finding(pipeline, account):
    tag = '<script src="http://cdn.example/tag.js"></script>'
    routes: dict[str, Route] = {
        "a.example/": page(tag),
        "b.example/": page(tag),
        "cdn.example/tag.js": script(f't="{token("tag")}"'),
    }
    with served(pipeline, account, routes, "a.example", "b.example", "cdn.example") as runs:

        async def both() -> None:
            await asyncio.gather(
                runs.run(site_spec("http://a.example/")), runs.run(site_spec("http://b.example/"))
            )

        for count in (2, 4, 6):
            runs.wait(both())
            assert (runs.finding["seen_count"], runs.finding["status"], runs.finding["source"]) == (
                count,
                "active",
                "http://cdn.example",
            )
    assert runs.events == ["finding.new"]


def test_a_run_counts_a_finding_once_although_another_run_sees_it_meanwhile(pipeline, account):
    limits = RunLimits(site_batch_size=1)
    gate = Gate(page("at last"))
    tag = '<script src="http://cdn.example/tag.js"></script>'
    routes: dict[str, Route] = {
        "a.example/": page(f'{tag}<a href="/gate">g</a>'),
        "b.example/": page(tag),
        "/gate": gate,
    }
    routes["cdn.example/tag.js"] = script(f't="{token("meanwhile")}"')
    with served(pipeline, account, routes, "a.example", "b.example", "cdn.example", limits=limits) as runs:

        async def one_within_the_other() -> None:
            first = asyncio.create_task(runs.run(site_spec("http://a.example/")))
            await gate.reached()
            while not runs.findings:  # noqa: ASYNC110 - waits for the database
                await asyncio.sleep(0.02)
            await runs.run(site_spec("http://b.example/"))
            gate.open.set()
            await first

        runs.wait(one_within_the_other())
    assert runs.finding["seen_count"] == 2


def test_a_script_that_the_site_no_longer_loads_is_checked_at_its_own_url(site):
    site.host.routes |= {
        "/": page('<script src="http://cdn.example/t.js"></script>'),
        "cdn.example/t.js": script(f't="{token("t")}"'),
    }
    site.scan()
    site.host.routes["/"] = linked("/p")
    site.scan()
    assert (
        site.at("/t.js")["status"] == "active"
    )  # the run sent no request to that host, which is another source
    site.host.routes |= {
        "/": page('<script src="http://cdn.example/u.js"></script>'),
        "cdn.example/u.js": script("u()"),
    }
    del site.host.routes["cdn.example/t.js"]
    site.scan()
    assert site.at("/t.js")["status"] == "resolved"


# --- with and without a credential


def only_for(credential: str, response: Route, otherwise: Route) -> Route:
    """Return a route whose response depends on the Authorization header."""
    return lambda handler: response if handler.headers["Authorization"] == credential else otherwise  # type: ignore[return-value]


def test_a_finding_seen_with_a_credential_is_not_checked_without_it(pipeline, account):
    routes: dict[str, Route] = {
        "/": linked("/own"), "/own": only_for("Bearer k", linked(value=token("own")), linked()), "/other": page("x"),
    }  # fmt: skip
    with served(pipeline, account, routes) as runs:
        runs.scan(credential="Bearer k")
        assert runs.finding["source_visibility"] == "unknown"
        runs.scan(site_spec(f"{SITE}/other", kind=TargetKind.PAGE))
        assert runs.finding["status"] == "active"
        routes["/"] = linked()
        runs.scan(credential="Bearer k")
        assert (runs.finding["status"], runs.finding["seen_count"]) == ("active", 2)
        routes["/own"] = linked()
        runs.scan(site_spec(f"{SITE}/"), credential="Bearer k")
    assert runs.finding["status"] == "resolved"


def test_a_public_finding_is_checked_without_the_credential(pipeline, account):
    routes: dict[str, Route] = {
        "/": linked(),
        "/p": only_for("Bearer k", linked(), linked(value=token("all"))),
    }
    with served(pipeline, account, routes) as runs:
        runs.scan(site_spec(f"{SITE}/p", kind=TargetKind.PAGE))
        runs.scan(credential="Bearer k")
    assert (runs.finding["status"], runs.finding["seen_count"]) == ("active", 2)


def test_a_url_with_several_findings_is_requested_once(pipeline, account):
    values = "\n".join(f"key{n} = {token(n)}" for n in range(5))
    with served(pipeline, account, {"/": linked("/many"), "/many": text(values)}) as runs:
        runs.scan()
        runs.host.routes["/"] = page("no links")
        runs.host.requests.clear()
        runs.scan()
        assert runs.host.paths().count("/many") == 1
    assert [finding["seen_count"] for finding in runs.findings] == [2] * 5
