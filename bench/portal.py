"""`make bench-portal`: every page of the portal for an account of a million findings, compared with the API.

python -m bench.portal [--findings N] [--dir DIR] [--rounds N]; --dir reuses the database of an earlier run.
"""

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench import corpus, team_work
from bench.measure import table
from outcrop.domain.account import Account, Plan, Role
from outcrop.domain.errors import NotFoundError
from outcrop.runtime import CommandSession, open_session
from outcrop.services import accounts, keys
from outcrop.services.exchange.importer import import_findings
from outcrop.settings import Settings

EMAIL, PASSWORD = "bench@example.com", "a pass phrase for benchmarks"
_BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser")
CHROMIUM = next(filter(None, map(shutil.which, _BROWSERS)), None)
# Page -> the same list of the API, None if there is none.
PAGES = {
    "/": None,
    "/findings": "findings?status=active",
    "/findings?status=all": "findings?",
    "/findings?status=all&page=10000": "findings?page=10000",
    "/findings?validation=valid": "findings?status=active&validation=valid",
    "/findings?status=all&order_by=first_seen_at": "findings?order_by=first_seen_at",
    "/findings?status=all&q=config": "findings?q=config",
    "/findings?status=all&min_score=90": "findings?min_score=90",
    "/findings?severity=high": "findings?status=active&severity=high",
    "/findings?secret_type=aws": "findings?status=active&secret_type=aws",
    "/findings?context=test": "findings?status=active&context=test",
    "/findings?assignee=none": "findings?status=active&assignee=none",
    "FINDING": None,
    "/incidents": "incidents?status=open",
    "/incidents?status=all": "incidents?",
    "/incidents?status=all&page=4000": "incidents?page=4000",
    "/incidents?status=closed_valid": "incidents?closed_valid=true",
    "/incidents?overdue=true": "incidents?status=open&overdue=true",
    "/incidents?assignee=none": "incidents?status=open&assignee=none",
    "/incidents?order_by=due_at&order_dir=asc": "incidents?status=open&order_by=due_at&order_dir=asc",
    "INCIDENT": None,
    "/assignment-rules": None,
    "/suppressions": None,
    "/scans": None,
    "/targets": None,
    "/numbers": None,
    "/reference": None,
    "/profile/keys": None,
    "/profile/webhook": None,
    "/profile/hooks": None,
    "/profile/team": None,
    "/profile/security": None,
    "/profile/display": None,
    "/profile/plan": None,
    "/profile/audit": None,
    "/profile/export": None,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--findings", type=int, default=1_000_000)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--rounds", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="outcrop-bench-") as temporary:
        folder = arguments.dir or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        key = asyncio.run(_fill(folder, arguments.findings))
        with _run_server(folder) as base_url:
            _measure(base_url, key, arguments.rounds)


async def _fill(folder: Path, count: int) -> str:
    """Fill the database unless an earlier run has, and return a new API key of the account."""
    async with open_session(Settings(data_dir=folder / "data")) as session:
        account = await _get_or_create_account(session, folder, count)
        await team_work.fill_team_work(session.db, account.slug)
        key = await keys.create_key(
            session.db, account, name="bench", expires_at=None, by="bench", member=None, now=corpus.NOW
        )
        return key.token


async def _get_or_create_account(session: CommandSession, folder: Path, count: int) -> Account:
    try:
        return await accounts.get_account(session.db, "portal")
    except NotFoundError:
        pass
    account = await accounts.create_account(
        session.db, slug="portal", plan=Plan.ENTERPRISE, email=EMAIL, by="bench", now=corpus.NOW
    )
    await accounts.create_member(
        session.db, account, email=EMAIL, role=Role.OWNER, password=PASSWORD, by="bench", now=corpus.NOW
    )
    corpus.write_file(folder / "portal.jsonl", count, seed=1)
    with (folder / "portal.jsonl").open("rb") as file:
        await import_findings(
            session.db,
            session.keys,
            account,
            file,
            by="bench",
            now=corpus.NOW,
            progress=lambda _: None,
        )
    return account


@contextmanager
def _run_server(folder: Path) -> Iterator[str]:
    """Run `outcrop serve` on the filled database and yield its base URL."""
    environment = os.environ | {
        "OUTCROP_DATA_DIR": str(folder / "data"),
        "OUTCROP_RATE_LIMIT_PER_MINUTE": "0",
        "OUTCROP_VALIDATE": "off",
    }
    command = [str(Path(sys.executable).with_name("outcrop")), "serve", "--port", "0"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        base_url = next(match[1] for line in process.stderr if (match := re.search(r"base_url=(\S+)", line)))
        drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
        try:
            _wait_until_ready(base_url)
            yield base_url
        finally:
            process.terminate()
            process.wait()
            drain.wait()


def _wait_until_ready(base_url: str) -> None:
    for _ in range(300):
        try:
            if httpx.get(f"{base_url}/readyz", trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise SystemExit("the server does not respond")


def _measure(base_url: str, key: str, rounds: int) -> None:
    """Request every page `rounds` times, each list also from the API, and print times and sizes."""
    with (
        httpx.Client(base_url=base_url, timeout=60, trust_env=False) as person,
        httpx.Client(
            base_url=base_url, timeout=60, trust_env=False, headers={"Authorization": f"Bearer {key}"}
        ) as program,
    ):
        token = re.search(r'name="csrf" value="([0-9a-f]+)"', person.get("/sign-in").text)
        assert token is not None
        fields = {"csrf": token[1], "email": EMAIL, "password": PASSWORD}
        person.post("/sign-in", data=fields, headers={"Origin": base_url})
        ids = {
            "FINDING": f"/findings/{program.get('/api/v1/findings').json()['data'][0]['id']}",
            "INCIDENT": f"/incidents/{program.get('/api/v1/incidents').json()['data'][0]['id']}",
        }
        assets = re.findall(r'(?:href|src)="(/static/[^"]+)"', person.get("/").text)
        first_view = sum(len(b"".join(_compressed_body(person, asset))) for asset in assets)
        browser_ms = _measure_in_browser(base_url, ids) if CHROMIUM else {}
        rows = []
        for page, query in PAGES.items():
            path = ids.get(page, page)
            page_times, api_times = [], []
            for _ in range(rounds):
                page_times.append(_request_seconds(person, path))
                if query is not None:
                    api_times.append(_request_seconds(program, f"/api/v1/{query}&per_page=50"))
            page_times.sort()
            size = len(person.get(path).content)
            ratio = (
                f"{page_times[len(page_times) // 2] / sorted(api_times)[len(api_times) // 2]:.2f}"
                if api_times
                else "–"
            )
            shown = f"{browser_ms[page]:.0f}" if page in browser_ms else "–"
            rows.append(
                [
                    {"FINDING": "/findings/ID", "INCIDENT": "/incidents/ID"}.get(page, page),
                    *(f"{page_times[int(len(page_times) * part)] * 1000:.1f}" for part in (0.5, 0.99)),
                    *(ratio, f"{size / 1000:.0f}", f"{(size + first_view) / 1000:.0f}", shown),
                ]
            )
    columns = ["page", "p50, ms", "p99, ms", "× the API", "kB", "kB, first view", "ready in the browser, ms"]
    table(
        f"The portal, {rounds} rounds; goals: lists at most 2× the API, less than 100 kB on the first view",
        columns,
        rows,
    )


def _compressed_body(client: httpx.Client, path: str) -> Iterator[bytes]:
    """Yield the compressed bytes of a response."""
    with client.stream("GET", path, headers={"Accept-Encoding": "gzip"}) as response:
        yield from response.iter_raw()


def _request_seconds(client: httpx.Client, path: str) -> float:
    """Return the seconds of one GET request; exit if its status is not 200."""
    start = time.perf_counter()
    response = client.get(path)
    seconds = time.perf_counter() - start
    if response.status_code != 200:
        raise SystemExit(f"{path}: {response.status_code}")
    return seconds


def _measure_in_browser(base_url: str, ids: dict[str, str]) -> dict[str, float]:
    """Return the ms from click to end of scripts for each page, in a Chromium with an empty cache.

    Each is the median of five.
    """
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only this function needs it

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        times_by_page: dict[str, list[float]] = {}
        for _ in range(5):
            context = browser.new_context()
            page = context.new_page()
            page.goto(f"{base_url}/sign-in")
            page.fill("[name=email]", EMAIL)
            page.fill("[name=password]", PASSWORD)
            page.click("button")
            page.wait_for_url(f"{base_url}/")
            for path in PAGES:
                page.goto(base_url + ids.get(path, path))
                times_by_page.setdefault(path, []).append(
                    page.evaluate("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
                )
            context.close()
        browser.close()
    return {path: sorted(times)[2] for path, times in times_by_page.items()}


if __name__ == "__main__":
    main()
