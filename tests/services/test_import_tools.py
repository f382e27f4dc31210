"""Test imports of the formats of other tools: fields, a second import, bad records. The values are made up."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from outcrop.domain.errors import BadInputError
from outcrop.domain.secret import MASK, Secret
from outcrop.services.exchange.formats import ImportFormat
from outcrop.services.exchange.formats.csv_table import parse_map
from outcrop.services.exchange.formats.detect import detect_format
from outcrop.services.exchange.importer import ImportSummary
from tests.services.test_import_formats import (
    VALUE,
    Pipe,
    as_lines,
    gitleaks,
    import_report,
    kingfisher,
    result,
    sarif,
    trufflehog,
)
from tests.support.backend import Backend

COMMIT = "0123abcd" * 5
REPO = "https://github.com/acme/shop"


def detect_secrets(**fields: Any) -> dict[str, Any]:
    """Return a baseline of detect-secrets with one finding."""
    finding = {
        "type": "Secret Keyword",
        "filename": "src/a.py",
        "hashed_secret": hashlib.sha1(VALUE.encode()).hexdigest(),
        "is_verified": False,
        "line_number": 7,
    }
    return {
        "version": "1.5.0",
        "plugins_used": [{"name": "KeywordDetector", "keyword_exclude": ""}],
        "filters_used": [{"path": "detect_secrets.filters.allowlist.is_line_allowlisted"}],
        "results": {"src/a.py": [finding | fields]},
        "generated_at": "2026-01-01T00:00:00Z",
    }


def ggshield(*matches: tuple[str, str], count: int = 1, **fields: Any) -> dict[str, Any]:
    """Return the output of `ggshield secret scan repo --json`; matches are pairs of type and value."""
    occurrences = [
        {
            "match": value,
            "match_type": type_,
            "line_start": 7,
            "line_end": 7,
            "index_start": 3,
            "index_end": 9,
        }
        for type_, value in matches or (("apikey", VALUE),)
    ]
    incident = {
        "policy": "Secrets detection",
        "occurrences": occurrences * count,
        "type": "Generic High Entropy Secret",
        "validity": "valid",
        "ignore_sha": "5d7c" * 16,
        "total_occurrences": count,
        "incident_url": "",
        "known_secret": False,
    } | fields
    file = {"mode": "NEW", "filename": "src/a.py", "incidents": [incident], "total_incidents": 1}
    commit = {
        "id": COMMIT,
        "type": "commit",
        "entities_with_incidents": [file],
        "extra_info": {"author": "Ada", "email": "ada@example.org", "date": "2026-01-01"},
        "total_incidents": 1,
        "total_occurrences": count,
    }
    return {"id": "x", "type": "repo", "scans": [commit], "total_incidents": 1, "total_occurrences": count}


def github(**fields: Any) -> dict[str, Any]:
    """Return a secret scanning alert as GitHub's API lists it."""
    api = "https://api.github.com/repos/acme/shop"
    return {
        "number": 4,
        "created_at": "2026-01-01T00:00:00Z",
        "url": f"{api}/secret-scanning/alerts/4",
        "html_url": f"{REPO}/security/secret-scanning/4",
        "locations_url": f"{api}/secret-scanning/alerts/4/locations",
        "state": "resolved",
        "resolution": "revoked",
        "secret_type": "acme_token",
        "secret_type_display_name": "Acme Token",
        "secret": VALUE,
        "validity": "active",
        "repository": {"full_name": "acme/shop", "html_url": REPO, "private": True},
        "first_location_detected": {"path": "src/a.py", "start_line": 7, "commit_sha": COMMIT},
    } | fields


def gitlab(**fields: Any) -> dict[str, Any]:
    """Return a report of GitLab's secret detection."""
    finding = {
        "id": "5f1d" * 16,
        "category": "secret_detection",
        "name": "Acme token",
        "description": f"Acme token {VALUE} was found",
        "raw_source_code_extract": VALUE,
        "severity": "Critical",
        "scanner": {"id": "gitleaks", "name": "Gitleaks"},
        "location": {
            "file": "src/a.py",
            "commit": {"author": "Ada", "sha": COMMIT, "message": "x", "date": "2026-01-01T00:00:00Z"},
            "start_line": 7,
        },
        "identifiers": [{"type": "gitleaks_rule_id", "name": "Gitleaks rule ID acme", "value": "Acme Token"}],
    } | fields
    return {"version": "15.0.4", "vulnerabilities": [finding], "scan": {"type": "secret_detection"}}


def defectdojo(**fields: Any) -> dict[str, Any]:
    """Return generic findings of DefectDojo."""
    finding = {
        "title": "Hard coded Acme token",
        "description": f"The token {VALUE} is in the code",
        "severity": "High",
        "file_path": "src/a.py",
        "line": 7,
        "unique_id_from_tool": "acme-1",
        "vuln_id_from_tool": "acme-token",
        "active": False,
        "false_p": True,
    } | fields
    return {"name": "scan", "findings": [finding]}


CSV = f"secret,Path,line_number,secret_type,Commit\n{VALUE},./src/a.py,7,acme,{COMMIT}\n".encode()
MAP = {"file_path": "Path", "commit": "Commit"}
REPORTS: dict[str, Callable[[], bytes]] = {
    "gitleaks": lambda: json.dumps([gitleaks(File="./src/a.py")]).encode(),
    "trufflehog": lambda: as_lines(trufflehog()),
    "kingfisher": lambda: as_lines(kingfisher(path="./src/a.py", git_metadata=None)),
    "sarif": lambda: json.dumps(sarif(result())).encode().replace(b"src/a%20b.py", b"./src/a.py"),
    "detect-secrets": lambda: json.dumps(detect_secrets(), indent=2).encode(),
    "ggshield": lambda: json.dumps(ggshield()).encode(),
    "github": lambda: json.dumps([github()]).encode(),
    "gitlab": lambda: json.dumps(gitlab(), indent=1).encode(),
    "defectdojo": lambda: json.dumps(defectdojo()).encode(),
    "csv": lambda: CSV,
}
WITHOUT_VALUE = {"sarif", "detect-secrets", "defectdojo"}


@pytest.mark.parametrize("name", REPORTS)
def test_every_format_is_detected_and_imported_once(backend: Backend, name: str) -> None:
    data, columns = REPORTS[name](), MAP if name == "csv" else None
    if name != "csv":
        assert detect_format(data) is ImportFormat(name)
        assert detect_format(data[: len(data) * 2 // 3]) is ImportFormat(name), "the head of a longer file"
    tenant = backend.tenant()
    options: dict[str, Any] = {"columns": columns, "repo": f"{REPO}.git"}
    summary = import_report(backend, tenant, data, **options)
    assert (summary, summary.unplaced) == (ImportSummary(1, 1, 0), 0)
    (found,) = tenant.get("/findings").json()["data"]
    assert (found["file_path"], found["line_number"]) == ("src/a.py", 7)
    assert found["repo_full_name"] == "acme/shop"
    assert found["status"] == "active", "an import resolves nothing"
    assert found["matched_text"] == (MASK if name in WITHOUT_VALUE else Secret(VALUE).masked())
    assert VALUE not in json.dumps(found)
    assert import_report(backend, tenant, data, ImportFormat(name), **options) == ImportSummary(1, 0, 1)
    assert import_report(backend, tenant, Pipe(data), **options) == ImportSummary(1, 0, 1)  # type: ignore[arg-type]


def test_verdicts_and_places_of_the_formats(backend: Backend) -> None:
    tenant = backend.tenant()
    values = [VALUE + str(number) for number in range(4)]
    censored = f"{VALUE[:3]}*******{VALUE[-3:]}"
    import_report(backend, tenant, json.dumps(ggshield(("apikey", values[0]), count=2)).encode(), repo=REPO)
    hidden = ggshield(("apikey", censored), validity="invalid", ignore_sha="6e8d" * 16)
    import_report(backend, tenant, json.dumps(hidden).encode(), repo=REPO)
    pages = [[github(secret=values[1])], [github(number=5, secret=values[2], validity="inactive")]]
    import_report(backend, tenant, json.dumps(pages).encode())
    import_report(backend, tenant, as_lines(github(number=6, secret=values[3])))
    rows = backend.sql(
        """SELECT validation_status, source_type, source_visibility, commit_id, fingerprint IS NULL
           FROM findings WHERE account_id = %s ORDER BY 1, 2, 3, 5""",
        tenant.account.id,
    )
    assert rows == [
        ("invalid", "commit", "private", COMMIT, False),
        ("invalid", "commit", "unknown", COMMIT, True),
        ("valid", "commit", "private", COMMIT, False),
        ("valid", "commit", "private", COMMIT, False),
        ("valid", "commit", "unknown", COMMIT, False),
    ]


@pytest.mark.parametrize("left_out", [[], ["html_url"], ["url"]])
def test_an_alert_of_a_single_repository_names_it_in_its_addresses(
    backend: Backend, left_out: list[str]
) -> None:
    tenant = backend.tenant()
    alert = {key: value for key, value in github().items() if key not in {"repository", *left_out}}
    import_report(backend, tenant, json.dumps([alert]).encode())
    assert tenant.get("/findings").json()["data"][0]["repo_full_name"] == "acme/shop"


def provenance(**run: Any) -> bytes:
    """Return a SARIF log whose run has more fields, after its results."""
    log = sarif(result())
    log["runs"][0] |= run
    return json.dumps(log).encode()


def test_sarif_of_two_repositories_does_not_overwrite_itself(backend: Backend) -> None:
    tenant = backend.tenant()
    bases = {"%SRCROOT%": {"uri": "https://github.com/acme/third/"}}
    logs = [
        provenance(versionControlProvenance=[{"repositoryUri": f"{REPO}.git", "revisionId": COMMIT}]),
        provenance(versionControlProvenance=[{"repositoryUri": "https://github.com/acme/other"}]),
        provenance(originalUriBaseIds=bases),
        provenance(),
    ]
    for log in logs:
        assert import_report(backend, tenant, log).new == 1
    assert import_report(backend, tenant, logs[3], repo="https://gitlab.com/a/b/c").new == 1
    for log in logs:
        assert import_report(backend, tenant, Pipe(log)).new == 0  # type: ignore[arg-type]
    names = {f["repo_full_name"] for f in tenant.get("/findings").json()["data"]}
    assert names == {"acme/shop", "acme/other", "acme/third", "a/b/c", None}
    both = json.loads(logs[0])
    both["runs"] += json.loads(logs[1])["runs"]
    assert import_report(backend, tenant, json.dumps(both).encode()) == ImportSummary(2, 0, 2)


def test_a_report_says_how_many_records_name_no_repository(backend: Backend) -> None:
    tenant = backend.tenant()
    report = json.dumps(detect_secrets()).encode()
    assert import_report(backend, tenant, report).unplaced == 1
    assert import_report(backend, tenant, report, repo=REPO, commit=COMMIT).unplaced == 0
    addresses = {f["source_url"] for f in tenant.get("/findings").json()["data"]}
    assert addresses == {None, f"{REPO}/blob/{COMMIT}/src/a.py#L7"}


@pytest.mark.parametrize(
    ("format_", "data", "message"),
    [
        (
            "detect-secrets",
            {"results": {"a.py": [{"type": "x"}]}},
            "record 1: is not a finding of detect-secrets",
        ),
        ("detect-secrets", {"results": {"a.py": [5]}}, "record 1: is not a JSON object"),
        ("detect-secrets", {"version": "1.5.0"}, "the file is not of this format"),
        ("ggshield", {"scans": [{"x": 1}]}, "record 1: is not a finding of ggshield"),
        ("github", [github(), {"number": 5}], "record 2: is not a finding of github"),
        ("github", [github(secret=5)], "record 1: secret: Input should be a valid string"),
        ("gitlab", {"vulnerabilities": [{"id": "x"}]}, "record 1: is not a finding of gitlab"),
        ("gitlab", gitlab(location={"file": 5}), "record 1: file_path: Input should be a valid string"),
        ("defectdojo", {"findings": [{"severity": "High"}]}, "record 1: is not a finding of defectdojo"),
        ("sarif", sarif(result()) | {"version": "1.0.0"}, "record 1: the report is SARIF 1.0.0"),
        ("sarif", sarif(result()) | {"version": 2.1}, "record 1: the report is SARIF 2.1,"),
        ("gitleaks", [{"RuleID": "x", "File": "a", "Secret": {}}], "record 1: secret: Input should be"),
        (
            "gitlab",
            {"scan": None} | gitlab() | {"scan": {"scanner": {"version": "1"}}, "version": "99.0"},
            "record 1: the report has version 99.0, the newest known one is 15",
        ),
        ("gitlab", gitlab() | {"version": "x"}, "record 1: the report has version x"),
        ("auto", [{"offender": VALUE, "rule": "x"}], "cannot detect the format of the report"),
        ("gitleaks", [{"offender": VALUE, "rule": "x"}], "record 1: is not a finding of gitleaks"),
    ],
)
def test_a_record_of_another_kind_is_refused_with_its_number(
    backend: Backend, format_: str, data: object, message: str
) -> None:
    tenant = backend.tenant()
    with pytest.raises(BadInputError, match=f"^{message}"):
        import_report(backend, tenant, json.dumps(data).encode(), ImportFormat(format_))
    assert tenant.get("/findings").json()["meta"]["total"] == 0


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        *((name, lambda data: data[:-9], "(record|line) [12]: ") for name in REPORTS if name != "csv"),
        *(
            (name, lambda data: data.decode().encode("utf-16"), "record 1: the file is UTF-16")
            for name in REPORTS
        ),
        *((name, lambda data: b"\x1f\x8b" + data, "record 1: the file is compressed") for name in REPORTS),
        *(
            (name, lambda data: data.replace(b"src/a.py", b"src/\xe4.py"), "(record|line) 1: is not UTF-8")
            for name in REPORTS
        ),
    ],
)
def test_a_damaged_report_is_refused_and_nothing_is_imported(
    backend: Backend, name: str, spoil: Callable[[bytes], bytes], message: str
) -> None:
    tenant = backend.tenant()
    columns = MAP if name == "csv" else None
    with pytest.raises(BadInputError, match=f"^{message}"):
        import_report(backend, tenant, spoil(REPORTS[name]()), ImportFormat(name), columns=columns)
    assert tenant.get("/findings").json()["meta"]["total"] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Path,secret\n", None),
        ("secret;file_path;line_number\nabcdefghij;a.py;3\n", None),
        ('secret,file_path\n"a\nb",a.py\n\n', None),
        ("secret,file_path\nabcdefghij\n", "record 1: has 1 columns, and the header has 2"),
        ("secret,line_number\nabcdefghij,x7\n", "record 1: line_number: should be a number"),
        ("secret,line_number\nabcdefghij,99999999999\n", "record 1: line_number: "),
        ('secret,file_path\nabcdefghij,a\n"abc,a.py\n', "record 2: is not CSV"),
        ("secret,file_path\n,\n", "record 1: is not a finding"),
        ("secret,secret,file_path\n", "the header has several columns named secret"),
        ("a,b\n1,2\n", "the header names no field"),
        ("secret,validation_status\nabcdefghij,maybe\n", "record 1: validation_status: "),
    ],
)
def test_csv_by_its_header(backend: Backend, text: str, message: str | None) -> None:
    tenant = backend.tenant()
    if message is None:
        columns = {"file_path": "Path"} if text.startswith("Path") else None
        summary = import_report(backend, tenant, text.encode("utf-8-sig"), ImportFormat.CSV, columns=columns)
        assert summary.new == (0 if columns else 1)
        return
    with pytest.raises(BadInputError, match=f"^{message}"):
        import_report(backend, tenant, text.encode(), ImportFormat.CSV)
    assert tenant.get("/findings").json()["meta"]["total"] == 0


@pytest.mark.parametrize("text", ["file_path", "=x", "nothing=Path", "file_path="])
def test_a_wrong_assignment_of_a_column_is_refused(text: str) -> None:
    with pytest.raises(BadInputError, match=r"^--map "):
        parse_map([text])
    with pytest.raises(BadInputError, match="has a column already"):
        parse_map(["secret=a", "secret=b"])


def test_options_that_do_not_fit_are_refused(backend: Backend) -> None:
    tenant = backend.tenant()
    with pytest.raises(BadInputError, match=r"^--map is for the format csv"):
        import_report(backend, tenant, b"[]", ImportFormat.GITLEAKS, columns=MAP)
    with pytest.raises(BadInputError, match=r"^--repo should be"):
        import_report(backend, tenant, b"[]", repo="not an address")
    with pytest.raises(BadInputError, match=r"^the header has no column named Path"):
        import_report(backend, tenant, b"secret,x\n", ImportFormat.CSV, columns=MAP)
