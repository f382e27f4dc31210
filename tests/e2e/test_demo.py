"""`make run`: the first minute, twice."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from outcrop.domain.finding import SourceType, Status, Validation
from tests.docs.readme import missing_lines, session
from tests.support.browser import CHROMIUM, running_browser, sign_in
from tests.support.portal_client import sign_in_by_form
from tests.support.rulesets import cached_in

COMMAND = str(Path(sys.executable).with_name("outcrop"))


@dataclass(frozen=True)
class Shown:
    """What the demo has shown until its closing screen."""

    text: str

    def after(self, name: str) -> str:
        found = re.search(rf"^  {name} +(.*)$", self.text, re.MULTILINE)
        assert found is not None, self.text
        return found[1]

    @property
    def events(self) -> Counter[str]:
        return Counter(re.findall(r"^event +signature valid +(\S+)", self.text, re.MULTILINE))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OUTCROP_")}
    return kept | {
        "OUTCROP_DATA_DIR": str(tmp_path / "data"),
        "XDG_CACHE_HOME": str(cached_in(tmp_path / "cache")),
    }


@contextmanager
def demo(environment: dict[str, str]) -> Iterator[Shown]:
    """Run the demo until it shows its closing screen, and yield its output.

    Then stop it as Ctrl-C does, and check that no process is left running.
    """
    with subprocess.Popen(
        [COMMAND, "demo", "--port", "0"], env=environment, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        text = ""
        for line in running.stdout:
            text += line
            if "Ctrl-C stops everything" in line:
                break
        try:
            yield Shown(text)
        finally:
            running.send_signal(signal.SIGINT)
            code = running.wait(60)
    assert code == 130, text
    assert left_behind(environment["OUTCROP_DATA_DIR"]) == []


def left_behind(folder: str) -> list[str]:
    """Return the running processes with this folder in their command line or environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            about = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if folder.encode() in about:
            found.append(about.decode(errors="replace"))
    return found


def fetch(command: str) -> httpx.Response:
    """Do what a `curl` line does."""
    program, flag, header, address = shlex.split(command)
    assert (program, flag) == ("curl", "-H")
    name, _, value = header.partition(": ")
    return httpx.get(address, headers={name: value}, trust_env=False)


def as_in_readme(shown: Shown) -> str:
    """Return the demo's output with the address and the folder that the README has."""
    address = shown.after("Portal").rstrip("/")
    text = shown.text.replace(address, "http://127.0.0.1:8000")
    return re.sub(r"(?m)(?<=^demo   an example account, in ).*", "/home/jo/.local/share/outcrop/demo", text)


def login(shown: Shown, password: str) -> httpx.Response:
    with httpx.Client(base_url=shown.after("Portal"), trust_env=False) as client:
        answer = sign_in_by_form(client, shown.after("E-mail"), password)
        return client.get("/", headers={"Accept": "text/html"}) if answer.status_code == 303 else answer


def test_the_first_minute_and_a_second_one(environment: dict[str, str]) -> None:
    with demo(environment) as first:
        answer = fetch(first.after("Try it"))
        assert answer.status_code == 200
        assert {row["validation_status"] for row in answer.json()["data"]} == {"valid"}
        rows = fetch(first.after("Try it").replace("validation=valid&per_page=3", "per_page=200")).json()[
            "data"
        ]
        assert 30 <= len(rows) <= 80
        assert {row["status"] for row in rows} == set(Status)
        assert {row["validation_status"] for row in rows} == set(Validation)
        assert {row["source_type"] for row in rows} == set(SourceType)
        assert any(row["suppressed_at"] for row in rows)
        assert any((row["resolution_evidence"] or {}).get("auto_resolved") for row in rows)
        # What was taken out of the tip only is in the history, and still there.
        moved = [row for row in rows if row["file_path"] == "shop/settings.py"]
        assert [(row["status"], row["source_type"]) for row in moved] == [("active", "commit")] * 3
        new = [row for row in rows if row["repo_full_name"] != "acme/legacy-billing"]
        assert first.events["finding.new"] == len(new)
        (pushed,) = [row for row in rows if row["file_path"] == "fastlane/Fastfile"]
        assert (pushed["status"], pushed["validation_status"]) == ("active", "valid")
        assert re.search(r"^push   found and validated [0-9.]+ s after the push$", first.text, re.MULTILINE)
        assert min(first.events["finding.resolved"], first.events["finding.false_positive"]) > 0
        assert "rejected" not in first.text
        assert missing_lines(session("make run"), as_in_readme(first)) == []
        overview = login(first, first.after("Password"))
        assert overview.status_code == 200
        assert "stand-ins on this machine answer for the issuers" in overview.text
    with demo(environment) as second:
        assert fetch(first.after("Try it").replace(first.after("Portal"), second.after("Portal"))).json() == {
            "error": "revoked_token"
        }
        assert login(second, first.after("Password")).status_code != 200
        assert login(second, second.after("Password")).status_code == 200
        assert fetch(second.after("Try it").replace("validation=valid&per_page=3", "per_page=1")).json()[
            "meta"
        ]["total"] == len(rows)
        assert second.events == {"webhook.test": 1}
        if CHROMIUM is not None:  # else tests/portal says how to get one
            walk_the_portal(second)


def walk_the_portal(shown: Shown) -> None:
    """Use the portal with a real worker.

    Start a run and wait for its end, validate a finding again, save a webhook and receive its test event.
    """
    base = shown.after("Portal").rstrip("/")
    with running_browser() as browser:
        page = browser.new_page()
        page.set_default_timeout(30_000)
        sign_in(page, base, shown.after("E-mail"), shown.after("Password"))
        page.goto(f"{base}/targets")
        page.get_by_role("button", name=re.compile(r"Run now .*www\.acme\.example")).click()
        expect(page.locator(".scan-completed")).to_be_visible(timeout=60_000)
        expect(page.get_by_text("findings seen")).to_be_visible()
        page.goto(f"{base}/findings?validation=valid")
        page.locator(".row[data-id] a.what").first.click()
        page.get_by_role("button", name="Check again").click()
        expect(
            page.get_by_text("Check requested").or_(page.get_by_text("Checked at the request of")).first
        ).to_be_visible()
        page.goto(f"{base}/profile/webhook")
        delivered = page.get_by_role("row", name=re.compile(r"webhook\.test")).get_by_text("Delivered")
        before = delivered.count()
        page.get_by_role("button", name="Send a test event").click()
        expect(delivered).to_have_count(before + 1, timeout=60_000)


def test_a_port_that_is_taken_is_one_clear_line(environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [COMMAND, "demo", "--port", port],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stdout) == (2, "")
    waiting, refused = done.stderr.splitlines()
    assert "port_in_use" in waiting
    assert re.fullmatch(rf"outcrop: cannot listen on 127\.0\.0\.1 port {port}: .*", refused)
    assert not Path(environment["OUTCROP_DATA_DIR"]).exists()
