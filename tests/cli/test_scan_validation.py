"""`outcrop scan` without an account asks issuers about what it found: stand-ins over real TLS."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.command import Ran, run
from tests.support.fake_https import FakeResponse, FakeServer, ReceivedRequest, serve_https
from tests.support.rulesets import cached_in, github_token
from tests.support.sarif import VALIDATOR

JSON = {"Content-Type": "application/json"}
ALIVE = FakeResponse(200, JSON | {"X-OAuth-Scopes": "repo, gist"}, b'{"login": "octo"}')
DEAD = FakeResponse(401, JSON, b'{"message": "Bad credentials"}')
LIVE, REVOKED = github_token("live"), github_token("revoked")

Scan = Callable[..., Ran]


def respond(asked: ReceivedRequest) -> FakeResponse:
    return ALIVE if LIVE in asked.headers["Authorization"] else DEAD


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cached_in(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with serve_https(tmp_path_factory.mktemp("issuer"), ("api.github.com",), respond) as running:
        yield running


@pytest.fixture
def stand_in(_running: FakeServer, monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    _running.requests.clear()
    _running.respond = respond
    monkeypatch.setenv("OUTCROP_VALIDATE", "safe")
    monkeypatch.setenv("OUTCROP_EGRESS_CONNECT_TO", f"api.github.com:443=127.0.0.1:{_running.port}")
    monkeypatch.setenv("OUTCROP_EGRESS_CA_FILE", str(_running.ca))
    return _running


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "place"
    folder.mkdir()
    (folder / "a.py").write_text(f"x = '{LIVE}'\n")
    (folder / "b.py").write_text(f"x = '{REVOKED}'\n")
    (folder / "c.py").write_text(f"x = '{LIVE}'\n")
    return folder


@pytest.fixture
def scan(place: Path, cache: Path) -> Scan:
    return lambda *arguments: run("scan", *arguments, folder=place, cache=cache)


def test_each_credential_is_asked_about_once_and_every_place_has_the_verdict(stand_in, scan):
    ran = scan("--json", ".")
    assert (ran.code, ran.err) == (1, "")
    assert [
        (finding["file_path"], finding["validation_status"], finding["validation_confidence"])
        for finding in ran.json
    ] == [
        ("a.py", "valid", "high"),
        ("b.py", "invalid", "high"),
        ("c.py", "valid", "high"),
    ]
    alive, dead, _ = ran.json
    assert alive["validation_detail"] == {
        "enabled_services": ["github_gist", "github_repo"],
        "reason": "GitHub accepts the token",
    }
    assert (alive["score"]["liveness"], alive["composite_score"]) == (40, sum(alive["score"].values()))
    assert (dead["score"]["liveness"], dead["composite_score"] <= 15) == (0, True)
    assert len(stand_in.requests) == 2
    assert scan("--json", ".").out == ran.out, "the same answers give the same bytes"


def test_every_format_shows_the_verdict_and_the_reason(stand_in, scan):
    table = scan(".")
    assert table.out.splitlines()[0].split() == [
        "score",
        "verdict",
        "rule",
        "place",
        "commit",
        "credential",
        "because",
    ]
    assert "GitHub accepts the token; opens github_gist, github_repo" in table.out.splitlines()[1]
    assert table.out.splitlines()[-1].endswith("; 2 valid")
    lines = [json.loads(line) for line in scan("--format", "jsonl", ".").out.splitlines()]
    assert [line["validation_status"] for line in lines] == ["valid", "invalid", "valid"]
    log = scan("--format", "sarif", ".").json
    VALIDATOR.validate(log)
    results = log["runs"][0]["results"]
    assert [result["level"] for result in results] == ["error", "note", "error"]
    assert results[0]["properties"]["validation_detail"]["enabled_services"] == ["github_gist", "github_repo"]
    assert LIVE not in table.out + json.dumps([lines, log])


def test_only_what_is_valid_is_shown_and_what_is_left_out_is_counted(stand_in, scan, place):
    ran = scan("--json", "--only-valid", ".")
    assert (ran.code, [finding["file_path"] for finding in ran.json]) == (1, ["a.py", "c.py"])
    assert ran.err == "not shown: 1 invalid\n"
    ran = scan("--json", "--only-valid", "b.py")
    assert (ran.code, ran.json) == (0, [])


@pytest.mark.parametrize("arguments", [("--no-validate",), ()])
def test_switched_off_nobody_is_asked(stand_in, scan, monkeypatch, arguments):
    if not arguments:
        monkeypatch.setenv("OUTCROP_VALIDATE", "off")
    ran = scan("--json", *arguments, ".")
    assert {finding["validation_status"] for finding in ran.json} == {"unvalidated"}
    assert stand_in.requests == []
    table = scan(*arguments, ".").out
    assert table.splitlines()[0].split() == ["score", "rule", "place", "commit", "credential"]
    ran = scan("--only-valid", *arguments, ".")
    assert (ran.code, ran.out, "--only-valid needs validation" in ran.err) == (2, "", True)


@pytest.mark.parametrize("off", [["--no-validate"], []])
def test_what_asks_is_not_loaded_where_nobody_is_asked(place, cache, off):
    code = "import sys, outcrop.cli; sys.argv = ['outcrop', 'scan', *sys.argv[1:]]\n"
    code += "try: outcrop.cli.main()\nexcept SystemExit: pass\n"
    code += (
        "print(sorted({n for n in sys.modules if n.startswith('outcrop.validation') or n == 'aiohttp'}), "
        "file=sys.stderr)"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "OUTCROP_VALIDATE": "safe" if off else "off"}
    ran = subprocess.run(
        [sys.executable, "-c", code, *off, "--jobs", "1", "."],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "3 findings" in ran.stdout
    assert ran.stderr == "[]\n"


def test_an_issuer_that_is_down_neither_fails_nor_holds_up_the_scan(stand_in, scan, place, monkeypatch):
    for number in range(60):
        (place / f"more{number}.py").write_text(f"x = '{github_token(number)}'\n")
    stand_in.respond = lambda _: FakeResponse(drop=True)
    began = time.monotonic()
    ran = scan("--json", ".")
    assert ran.code == 1
    assert {finding["validation_status"] for finding in ran.json} == {"unreachable"}
    assert time.monotonic() - began < 60
    assert len(stand_in.requests) <= 30, "after some that were not answered it is left alone"


def test_a_limit_of_the_issuer_is_no_verdict_on_the_credential(stand_in, scan):
    stand_in.respond = lambda _: FakeResponse(429, {"Retry-After": "3600"})
    began = time.monotonic()
    ran = scan("--json", ".")
    assert {
        (finding["validation_status"], finding["validation_detail"]["reason"]) for finding in ran.json
    } == {("error", "the issuer's rate limit was reached")}
    assert time.monotonic() - began < 60


def test_a_wrong_setting_is_reported_in_one_line(stand_in, scan, monkeypatch):
    monkeypatch.setenv("OUTCROP_VALIDATE", "maybe")
    ran = scan(".")
    assert (ran.code, ran.out, len(ran.err.splitlines()), "OUTCROP_VALIDATE" in ran.err) == (2, "", 1, True)
