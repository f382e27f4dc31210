"""Azure's signed addresses against a stand-in that says what the real service does in each case."""

import asyncio
from collections.abc import Iterator

import pytest

from outcrop.net.http import open_http
from outcrop.validation.engine import ValidationMode, Validator
from tests.support.checks import load_check, load_rules, run_check
from tests.support.fake_https import FakeResponse, FakeServer, serve_https

SIGNED = (
    "sp=racwdl&st=2024-01-01T00:00:00Z&se=2099-01-01T00%3A00%3A00Z&sv=2022-11-02&sr=c&sig=" + "a" * 43 + "%3D"
)
BLOB, FILE, QUEUE = (f"https://acmestore1.{kind}.core.windows.net" for kind in ("blob", "file", "queue"))
CHECK = load_check("azure", "azure_sas_token")
OK = FakeResponse(200, {"x-ms-request-id": "1", "Content-Type": "application/xml"}, b"<EnumerationResults/>")


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    hosts = tuple(url.removeprefix("https://") for url in (BLOB, FILE, QUEUE))
    with serve_https(tmp_path_factory.mktemp("azure"), hosts, lambda _: OK) as running:
        yield running


@pytest.fixture(autouse=True)
def _fresh(stand_in):
    stand_in.requests.clear()
    stand_in.respond = lambda _: OK


@pytest.mark.parametrize(
    ("url", "method", "path", "begins"),
    [
        (BLOB, "GET", "/", "comp=list&maxresults=1&sp="),
        (f"{BLOB}/backups", "GET", "/backups", "restype=container&comp=list&maxresults=1&sp="),
        (f"{BLOB}/backups/", "GET", "/backups", "restype=container&comp=list&maxresults=1&sp="),
        (f"{BLOB}/backups/db/x.bak", "HEAD", "/backups/db/x.bak", "sp="),
        (f"{FILE}/share", "GET", "/share", "restype=directory&comp=list&maxresults=1&sp="),
        (f"{QUEUE}/orders", "GET", "/orders", "comp=metadata&sp="),
    ],
)
def test_what_is_asked_only_reads_and_is_what_the_signature_covers(stand_in, url, method, path, begins):
    verdict = run_check(stand_in.egress, CHECK, SIGNED, url=url)
    assert (verdict.status, verdict.confidence) == ("valid", "high"), verdict.reason
    (asked,) = stand_in.requests
    assert (asked.method, asked.path, asked.query.startswith(begins)) == (method, path, True), asked.query
    assert asked.query.replace("%3D", "=").endswith("a="), "the signature arrives"


def test_what_a_signature_allows_is_what_it_opens(stand_in):
    assert run_check(stand_in.egress, CHECK, SIGNED, url=BLOB).services == (
        "azure_blob", "azure_blob_delete", "azure_blob_list", "azure_blob_read", "azure_blob_write",
    )  # fmt: skip
    assert run_check(stand_in.egress, CHECK, SIGNED.replace("racwdl", "r"), url=QUEUE).services == (
        "azure_queue",
        "azure_queue_read",
    )
    assert run_check(stand_in.egress, CHECK, SIGNED.replace("&", "&amp;"), url=BLOB).status == "valid"


@pytest.mark.parametrize(
    ("answer", "status", "confidence"),
    [
        (FakeResponse(403, {"x-ms-error-code": "AuthenticationFailed"}), "invalid", "high"),
        (FakeResponse(403, {"x-ms-error-code": "AuthorizationPermissionMismatch"}), "valid", "medium"),
        (FakeResponse(404, {"x-ms-error-code": "ContainerNotFound"}), "valid", "medium"),
        (FakeResponse(403, {"x-ms-error-code": "AuthorizationFailure"}), "error", "low"),
        (FakeResponse(409, {"x-ms-error-code": "PublicAccessNotPermitted"}), "error", "low"),
        (FakeResponse(429, {"Retry-After": "7"}), "error", "low"),
        (FakeResponse(503, {"x-ms-error-code": "ServerBusy"}), "error", "low"),
        (FakeResponse(302, {"Location": "https://elsewhere.example/"}), "error", "low"),
        (FakeResponse(200, {"Content-Type": "text/html"}, b"<html>Welcome to the hotel"), "error", "low"),
        (FakeResponse(drop=True), "unreachable", "low"),
    ],
    ids=[
        "refused",
        "narrow",
        "gone",
        "firewall",
        "no public access",
        "limited",
        "busy",
        "redirect",
        "portal",
        "cut off",
    ],
)
def test_what_azure_says_is_what_is_told(stand_in, answer, status, confidence):
    stand_in.respond = lambda _: answer
    verdict = run_check(stand_in.egress, CHECK, SIGNED, url=f"{BLOB}/backups")
    assert (verdict.status, verdict.confidence) == (status, confidence), verdict.reason
    assert "a" * 43 not in verdict.reason


@pytest.mark.parametrize("end", ["2024-01-02T00:00:00Z", "2024-01-02T00%3A00%3A00Z", "2024-01-02"])
def test_a_signature_whose_time_has_run_out_is_not_asked_about(stand_in, end):
    verdict = run_check(stand_in.egress, CHECK, SIGNED.replace("2099-01-01T00%3A00%3A00Z", end), url=BLOB)
    assert (verdict.status, verdict.confidence, verdict.reason) == (
        "invalid",
        "high",
        "expired on 2024-01-02",
    )
    assert stand_in.requests == []


@pytest.mark.parametrize(
    "url",
    [
        f"{BLOB}.evil.example/c",
        "https://evil.example/?x=.blob.core.windows.net",
        f"{BLOB}@evil.example/",
        f"{BLOB}/a?b",
        f"{BLOB}/a#b",
    ],
)
def test_no_other_host_is_asked(stand_in, url):
    assert run_check(stand_in.egress, CHECK, SIGNED, url=url).status == "unvalidated"
    assert stand_in.requests == []


def test_a_safe_run_asks_and_one_without_an_address_says_what_is_missing(stand_in):
    rule = load_rules("azure")["azure_sas_token"]

    async def main():
        async with open_http(stand_in.egress) as http:
            validator = Validator(http, ValidationMode.SAFE)
            return await validator.check(rule, SIGNED, {"url": f"{BLOB}/backups"}), await validator.check(
                rule, SIGNED, {}
            )

    asked, missing = asyncio.run(main())
    assert (asked.status, missing.status, missing.reason) == (
        "valid",
        "unvalidated",
        "its url was not found with it",
    )
