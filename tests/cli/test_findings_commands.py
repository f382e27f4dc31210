"""Test `outcrop findings …` on the real service, and without one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.client.test_client import HTML, LIST, answer, server
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line


@pytest.fixture
def tenant(backend: Backend) -> Tenant:
    return backend.tenant()


def outcrop(url: str | None, key: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    named = {"OUTCROP_URL": url, "OUTCROP_API_KEY": key, "OUTCROP_DATA_DIR": "/nonexistent/data"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OUTCROP_")}
    return subprocess.run(
        [sys.executable, "-m", "outcrop", "findings", *arguments],
        env=environment | {name: value for name, value in named.items() if value is not None},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=Path("/"),
    )


def test_findings_are_listed_shown_explained_and_triaged(backend: Backend, tenant: Tenant) -> None:
    lines = [
        make_line(composite_score=90.0),
        make_line(
            composite_score=10.0, repo_full_name=None, source_url=None, file_path="a.py", line_number=7
        ),
        make_line(status="false_positive"),
    ]
    backend.import_(tenant.account, *lines)
    high, low, false_positive = (line["id"] for line in lines)
    call = (backend.base_url, tenant.key)
    listed = outcrop(*call, "list", "--severity", "critical", "--status", "active", "--json")
    assert (listed.returncode, [finding["id"] for finding in json.loads(listed.stdout)]) == (0, [high])
    table = outcrop(*call, "list", "--limit", "1")
    assert (table.returncode, high in table.stdout, low in table.stdout) == (0, True, False)
    assert "a.py:7" in outcrop(*call, "list").stdout
    shown = outcrop(*call, "show", low, "--json")
    assert (shown.returncode, json.loads(shown.stdout)) == (0, tenant.finding(low))
    explained = outcrop(*call, "explain", low)
    assert (explained.returncode, "the score was imported" in explained.stdout) == (0, True)
    done = outcrop(*call, "resolve", high, low, "--note", "rotated", "--json")
    assert done.returncode == 0, done.stderr
    assert {entry["outcome"] for entry in json.loads(done.stdout)} == {"changed"}
    assert tenant.finding(high)["resolution_note"] == "rotated"
    refused = outcrop(*call, "restrict", false_positive, str(uuid4()), "--json")
    assert refused.returncode == 1
    assert [entry["outcome"] for entry in json.loads(refused.stdout)] == ["refused", "not_found"]
    assert outcrop(*call, "suppress", low).returncode == 0
    assert outcrop(*call, "false-positive", low).returncode == 0
    assert tenant.finding(low)["status"] == "false_positive"
    missing = outcrop(*call, "show", str(uuid4()))
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)


@pytest.mark.parametrize(
    ("url", "key", "arguments", "message"),
    [
        (None, None, ["list"], "OUTCROP_URL"),
        ("http://127.0.0.1:1", "outcrop_secretkey", ["list"], "cannot be reached"),
        ("http://outcrop.example.com", "outcrop_secretkey", ["list"], "https://"),
        ("http://127.0.0.1:1", "outcrop_secretkey", ["resolve", "no-id"], "is not the id"),
        ("http://127.0.0.1:1", "outcrop_secretkey", ["list", "--status", "open"], "status"),
    ],
)
def test_a_failure_is_one_line_without_the_key(
    url: str | None, key: str | None, arguments: list[str], message: str
) -> None:
    done = outcrop(url, key, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "secretkey" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    "sent",
    [
        answer(HTML),
        answer(b"", "308 Moved", None, "Location: https://elsewhere.example"),
        answer(LIST, "200 OK", len(LIST) + 9),
        answer(HTML, "502 Bad Gateway"),
    ],
    ids=["HTML", "redirect", "half a body", "a proxy's error"],
)
def test_a_server_that_answers_wrongly_is_one_line_without_the_key(sent: bytes) -> None:
    with server(sent) as url:
        done = outcrop(url, "outcrop_secretkey", "list")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("outcrop: ")
    assert "secretkey" not in done.stderr


@pytest.mark.parametrize("arguments", [["explain"], ["resolve"]])
def test_an_answer_without_the_fields_of_a_score_or_an_outcome_is_one_line(arguments: list[str]) -> None:
    body = b'{"data": %s, "meta": {}}' % (b"[{}]" if arguments == ["resolve"] else b'{"parts": [{}]}')
    with server(answer(body)) as url:
        done = outcrop(url, "outcrop_secretkey", *arguments, str(uuid4()))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "not one of Outcrop" in done.stderr


def test_control_characters_of_an_unknown_finding_do_not_reach_the_terminal() -> None:
    body = b'{"error": "not_found", "message": "none\\n\\u001b[31m"}'
    with server(answer(body, "404 Not Found")) as url:
        done = outcrop(url, "outcrop_secretkey", "show", str(uuid4()))
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "outcrop: none\\n\\x1b[31m\n")
