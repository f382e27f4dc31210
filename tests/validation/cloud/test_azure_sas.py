"""Azure SAS URLs, against a fake Azure with the responses of the real one."""

import asyncio
from collections.abc import Iterator

import pytest

from outcrop.net.http import open_http
from outcrop.validation.engine import ValidationMode, Validator
from tests.support.checks import load_check, load_rules, run_check
from tests.support.fake_https import FakeResponse, FakeServer, serve_https

SIGNED_QUERY = (
    "sp=racwdl&st=2024-01-01T00:00:00Z&se=2099-01-01T00%3A00%3A00Z&sv=2022-11-02&sr=c&sig=" + "a" * 43 + "%3D"
)
BLOB, FILE, QUEUE = (f"https://acmestore1.{kind}.core.windows.net" for kind in ("blob", "file", "queue"))
CHECK = load_check("azure", "azure_sas_token")
OK = FakeResponse(200, {"x-ms-request-id": "1", "Content-Type": "application/xml"}, b"<EnumerationResults/>")


@pytest.fixture(scope="module")
def fake_issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    hosts = tuple(url.removeprefix("https://") for url in (BLOB, FILE, QUEUE))
    with serve_https(tmp_path_factory.mktemp("azure"), hosts, lambda _: OK) as server:
        yield server


@pytest.fixture(autouse=True)
def _clear_requests(fake_issuer):
    fake_issuer.requests.clear()
    fake_issuer.respond = lambda _: OK


@pytest.mark.parametrize(
    ("url", "method", "path", "query_start"),
    [
        (BLOB, "GET", "/", "comp=list&maxresults=1&sp="),
        (f"{BLOB}/backups", "GET", "/backups", "restype=container&comp=list&maxresults=1&sp="),
        (f"{BLOB}/backups/", "GET", "/backups", "restype=container&comp=list&maxresults=1&sp="),
        (f"{BLOB}/backups/db/x.bak", "HEAD", "/backups/db/x.bak", "sp="),
        (f"{FILE}/share", "GET", "/share", "restype=directory&comp=list&maxresults=1&sp="),
        (f"{QUEUE}/orders", "GET", "/orders", "comp=metadata&sp="),
    ],
)
def test_the_request_only_reads_and_is_covered_by_the_signature(fake_issuer, url, method, path, query_start):
    verdict = run_check(fake_issuer.egress, CHECK, SIGNED_QUERY, url=url)
    assert (verdict.status, verdict.confidence) == ("valid", "high"), verdict.reason
    (request,) = fake_issuer.requests
    assert (request.method, request.path, request.query.startswith(query_start)) == (method, path, True), (
        request.query
    )
    assert request.query.replace("%3D", "=").endswith("a="), "the signature arrives"


def test_the_permissions_of_a_signature_become_services(fake_issuer):
    assert run_check(fake_issuer.egress, CHECK, SIGNED_QUERY, url=BLOB).services == (
        "azure_blob", "azure_blob_delete", "azure_blob_list", "azure_blob_read", "azure_blob_write",
    )  # fmt: skip
    assert run_check(fake_issuer.egress, CHECK, SIGNED_QUERY.replace("racwdl", "r"), url=QUEUE).services == (
        "azure_queue",
        "azure_queue_read",
    )
    assert (
        run_check(fake_issuer.egress, CHECK, SIGNED_QUERY.replace("&", "&amp;"), url=BLOB).status == "valid"
    )


@pytest.mark.parametrize(
    ("response", "status", "confidence"),
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
        "no permission",
        "container not found",
        "firewall",
        "no public access",
        "rate limit",
        "busy",
        "redirect",
        "captive portal",
        "dropped",
    ],
)
def test_each_azure_error_has_its_verdict(fake_issuer, response, status, confidence):
    fake_issuer.respond = lambda _: response
    verdict = run_check(fake_issuer.egress, CHECK, SIGNED_QUERY, url=f"{BLOB}/backups")
    assert (verdict.status, verdict.confidence) == (status, confidence), verdict.reason
    assert "a" * 43 not in verdict.reason


@pytest.mark.parametrize("end", ["2024-01-02T00:00:00Z", "2024-01-02T00%3A00%3A00Z", "2024-01-02"])
def test_an_expired_signature_is_invalid_without_a_request(fake_issuer, end):
    verdict = run_check(
        fake_issuer.egress, CHECK, SIGNED_QUERY.replace("2099-01-01T00%3A00%3A00Z", end), url=BLOB
    )
    assert (verdict.status, verdict.confidence, verdict.reason) == (
        "invalid",
        "high",
        "expired on 2024-01-02",
    )
    assert fake_issuer.requests == []


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
def test_no_request_goes_to_another_host(fake_issuer, url):
    assert run_check(fake_issuer.egress, CHECK, SIGNED_QUERY, url=url).status == "unvalidated"
    assert fake_issuer.requests == []


def test_safe_mode_checks_a_signature_and_reports_a_missing_url(fake_issuer):
    rule = load_rules("azure")["azure_sas_token"]

    async def main():
        async with open_http(fake_issuer.egress) as http:
            validator = Validator(http, ValidationMode.SAFE)
            return await validator.check(
                rule, SIGNED_QUERY, {"url": f"{BLOB}/backups"}
            ), await validator.check(rule, SIGNED_QUERY, {})

    complete, missing = asyncio.run(main())
    assert (complete.status, missing.status, missing.reason) == (
        "valid",
        "unvalidated",
        "its url was not found with it",
    )
