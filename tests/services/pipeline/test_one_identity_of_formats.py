"""Test every format of report: imported twice, before our own run, after it and after a triage.

The findings stay the same, none is doubled and no decision is undone. A report that does not have the
credentials has findings of its own beside those of a run.
"""

import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from outcrop.domain.account import Account
from outcrop.domain.clock import now
from outcrop.services.exchange.formats import ImportFormat
from outcrop.services.exchange.importer import ImportSummary, import_findings
from outcrop.store.db import connect
from tests.services.pipeline.test_one_identity import FILES, add_shop, page, triage
from tests.services.test_import_formats import as_lines, gitleaks, kingfisher, result, sarif, trufflehog
from tests.services.test_import_tools import defectdojo, detect_secrets, ggshield, github, gitlab
from tests.support.pipeline import Pipeline, repository_spec, token
from tests.support.rulesets import ruleset

Json = dict[str, Any]
PLACES = (("a.txt", 2, token(1)), ("b.txt", 1, token(2)))  # of FILES
MAP = {"file_path": "Path"}


def _leaks(**fields: Any) -> bytes:
    return json.dumps(
        [
            gitleaks(Secret=value, Match=value, File=path, StartLine=line, Link="", Commit="")
            | {"RuleID": "github-pat", "Fingerprint": f"{path}:github-pat:{line}"}
            | fields
            for path, line, value in PLACES
        ]
    ).encode()


def _trufflehog(url: str) -> bytes:
    places = ({"repository": f"{url}.git", "file": path, "line": line} for path, line, _ in PLACES)
    return as_lines(
        *(
            trufflehog(DetectorName="Github", Verified=False, Raw=value)
            | {"SourceMetadata": {"Data": {"Git": place}}}
            for place, (_, _, value) in zip(places, PLACES, strict=True)
        )
    )


def _kingfisher(*, redacted: bool = False) -> bytes:
    records = [
        kingfisher(
            snippet="[REDACTED]" if redacted else value,
            line=line,
            path=f"./{path}",
            git_metadata=None,
            validation={},
            fingerprint=str(line),
        )
        for path, line, value in PLACES
    ]
    return json.dumps({"findings": records}).encode()


def _sarif(*, snippet: bool) -> bytes:
    results = []
    for path, line, value in PLACES:
        region: Json = {"startLine": line} | ({"snippet": {"text": f"key {value}"}} if snippet else {})
        place = {"artifactLocation": {"uri": path}, "region": region}
        results.append(result(ruleId="github-token", locations=[{"physicalLocation": place}]))
    return json.dumps(sarif(*results)).encode()


def _detect_secrets() -> bytes:
    merged = detect_secrets()
    merged["results"] = {
        path: [
            {"type": "GitHub Token", "filename": path, "line_number": line, "is_verified": False}
            | {"hashed_secret": hashlib.sha1(value.encode()).hexdigest()}
        ]
        for path, line, value in PLACES
    }
    return json.dumps(merged).encode()


def _ggshield() -> bytes:
    files: list[Json] = []
    for path, line, value in PLACES:
        (scan,) = ggshield(("apikey", value), validity="unknown", ignore_sha=f"{line}" * 64)["scans"]
        (file,) = scan["entities_with_incidents"]
        for occurrence in file["incidents"][0]["occurrences"]:
            occurrence["line_start"] = occurrence["line_end"] = line
        files.append(file | {"filename": path})
    return json.dumps({"id": "x", "type": "path_scan", "entities_with_incidents": files}).encode()


def _github(url: str, *, hidden: bool = False) -> bytes:
    name = url.partition("://")[2].partition("/")[2]
    return json.dumps(
        [
            github(
                number=line,
                secret=None if hidden else value,
                secret_type="github_personal_access_token",
                validity="unknown",
                url=f"{url}/x",
                html_url=f"{url}/security/secret-scanning/{line}",
                repository={"full_name": name, "html_url": url, "private": False},
                first_location_detected={"path": path, "start_line": line},
            )
            for path, line, value in PLACES
        ]
    ).encode()


def _gitlab() -> bytes:
    findings = [
        gitlab(raw_source_code_extract=value, id=path, location={"file": path, "start_line": line})
        for path, line, value in PLACES
    ]
    return json.dumps(findings[0] | {"vulnerabilities": [f["vulnerabilities"][0] for f in findings]}).encode()


def _defectdojo() -> bytes:
    findings = [
        defectdojo(file_path=path, line=line, unique_id_from_tool=path, title="Hard coded token")
        for path, line, _ in PLACES
    ]
    return json.dumps({"findings": [f["findings"][0] for f in findings]}).encode()


def _csv() -> bytes:
    lines = [f"{value},./{path},{line}" for path, line, value in PLACES]
    return "\n".join(["secret,Path,line_number", *lines, ""]).encode()


# By name: the report of a repository with FILES at an address.
REPORTS: dict[str, Callable[[str], bytes]] = {
    "gitleaks": lambda _: _leaks(),
    "gitleaks, redacted": lambda _: _leaks(Secret="REDACTED", Match="REDACTED"),
    "trufflehog": _trufflehog,
    "kingfisher": lambda _: _kingfisher(),
    "kingfisher, redacted": lambda _: _kingfisher(redacted=True),
    "detect-secrets": lambda _: _detect_secrets(),
    "ggshield": lambda _: _ggshield(),
    "github": _github,
    "github, hidden": lambda url: _github(url, hidden=True),
    "gitlab": lambda _: _gitlab(),
    "defectdojo": lambda _: _defectdojo(),
    "csv": lambda _: _csv(),
    "sarif": lambda _: _sarif(snippet=True),
    "sarif, places only": lambda _: _sarif(snippet=False),
}
OWN = ("json", "jsonl", "sarif", "gitlab")  # of our own scan, with --reveal and without it
WITHOUT_VALUES = {
    "gitleaks, redacted",
    "kingfisher, redacted",
    "detect-secrets",
    "github, hidden",
    "defectdojo",
    "sarif, places only",
    *(f"own {name}, masked" for name in OWN),
    "own sarif",  # it has no snippets
    "own gitlab",  # its extracts are masked
}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scan a folder with FILES by `outcrop scan`; return the folder of the results."""
    folder = tmp_path_factory.mktemp("own")
    project = folder / "project"
    project.mkdir()
    for path, content in FILES.items():
        (project / path).write_text(str(content))
    environment = os.environ | {"OUTCROP_DATA_DIR": str(folder / "data")}
    for suffix, options in (("", ["--reveal"]), (", masked", [])):
        outputs = [f"--output={name}={folder / name}{suffix}" for name in OWN]
        ran = subprocess.run(
            [
                sys.executable,
                "-m",
                "outcrop",
                "scan",
                "--no-validate",
                "-q",
                *options,
                *outputs,
                str(project),
            ],
            env=environment,
            capture_output=True,
            check=False,
        )
        assert ran.returncode == 1, ran.stderr
    return folder


def import_report(pipeline: Pipeline, account: Account, data: bytes, name: str, repo: str) -> ImportSummary:
    """Import a report as `outcrop import --repo` does."""
    columns = MAP if name == "csv" else None

    async def work() -> ImportSummary:
        async with await connect(pipeline.url) as db:
            return await import_findings(
                db,
                pipeline.context.keys,
                account,
                io.BytesIO(data),
                by="test",
                now=now(),
                progress=lambda _: None,
                format_=ImportFormat.AUTO,
                columns=columns,
                repo=repo,
                load_rules=ruleset,
            )

    return pipeline.wait(work())


def state(pipeline: Pipeline, account: Account) -> dict[str, tuple[Any, ...]]:
    """Return of each finding what no report may change."""
    fields = ("status", "resolution_note", "suppressed_at", "first_seen_at", "pattern_secret_type")
    return {str(f["id"]): tuple(f[name] for name in fields) for f in pipeline.findings(account)}


@pytest.mark.parametrize("name", [*REPORTS, *(f"own {name}{m}" for name in OWN for m in ("", ", masked"))])
def test_a_report_of_any_format_is_the_findings_of_a_run(
    pipeline: Pipeline, account: Account, own: Path, name: str
) -> None:
    shop = add_shop(pipeline)
    spec, url = repository_spec(shop.full_name), page(shop.full_name)
    data = REPORTS[name](url) if name in REPORTS else (own / name.removeprefix("own ")).read_bytes()

    def import_twice(*, new: int) -> None:
        assert import_report(pipeline, account, data, name, url).new == new
        assert import_report(pipeline, account, data, name, url) == ImportSummary(2, 0, 2)

    # before our own run
    import_twice(new=2)
    reported = set(state(pipeline, account))
    pipeline.scan(account, spec)
    expected = 4 if name in WITHOUT_VALUES else 2
    assert reported <= set(state(pipeline, account))
    assert len(state(pipeline, account)) == expected
    # after it
    before = state(pipeline, account)
    import_twice(new=0)
    assert state(pipeline, account) == before
    # after a triage
    first, second, *_ = sorted(reported)
    triage(pipeline, account, UUID(first), "false_positive")
    triage(pipeline, account, UUID(second), "customer_restricted")
    before = state(pipeline, account)
    import_twice(new=0)
    pipeline.scan(account, spec)
    assert state(pipeline, account) == before

    # a run first, in another account
    other = pipeline.create_account()
    pipeline.scan(other, spec)
    scanned = state(pipeline, other)
    assert len(scanned) == 2
    assert import_report(pipeline, other, data, name, url).new == expected - 2
    assert import_report(pipeline, other, data, name, url).new == 0
    assert {id_: kept for id_, kept in state(pipeline, other).items() if id_ in scanned} == scanned
