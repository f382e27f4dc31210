"""AWS keys, checked against a fake AWS that verifies every signature with its own copy of the algorithm."""

import asyncio
import hashlib
import hmac
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import parse_qsl, quote

import pytest

from outcrop.net.http import open_http
from outcrop.scanner.rules.check_spec import load_checks
from outcrop.validation.cloud.aws import check_aws_key
from outcrop.validation.cloud.aws_keys import AwsAccessKey
from outcrop.validation.cloud.sigv4 import sign_request
from outcrop.validation.engine import ValidationMode, Validator
from outcrop.validation.verdict import Verdict
from tests.support.checks import load_rules, make_attempt
from tests.support.fake_https import FakeResponse, FakeServer, ReceivedRequest, serve_https

RULES = load_rules("aws")
KEY_ID, TEMPORARY_ID = "AKIA" + "Q" * 16, "ASIA" + "Q" * 16
SECRET, TOKEN = "b" * 39 + "7", "IQoJb3JpZ2lu" + "c" * 100
REGIONAL = ("ec2", "lambda", "sqs", "sns", "rds", "dynamodb", "kms", "secretsmanager", "api.ecr", "ssm")
HOSTS = tuple(
    f"{name}.amazonaws.com"
    for name in ("sts", "s3", "iam", *(f"{service}.us-east-1" for service in REGIONAL))
)
GOVERNMENT = (
    "iam.us-gov.amazonaws.com",
    *(f"{name}.us-gov-west-1.amazonaws.com" for name in ("sts", "s3", *REGIONAL)),
)
CHINA = tuple(f"{name}.cn-north-1.amazonaws.com.cn" for name in ("sts", "s3", "iam", *REGIONAL))
IDENTITY = (
    "<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>{}</Arn>"
    "</GetCallerIdentityResult></GetCallerIdentityResponse>"
)
USER, ROOT = "arn:aws:iam::123456789012:user/ops/build", "arn:aws:iam::123456789012:root"


@pytest.fixture(scope="module")
def fake_issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with serve_https(
        tmp_path_factory.mktemp("aws"), HOSTS + GOVERNMENT + CHINA, lambda _: FakeResponse()
    ) as server:
        yield server


@pytest.fixture(autouse=True)
def _clear_requests(fake_issuer):
    fake_issuer.requests.clear()


def refusal(code: str, message: str = "no") -> FakeResponse:
    return FakeResponse(
        403,
        {"Content-Type": "text/xml"},
        f"<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message>".encode(),
    )


def action(request: ReceivedRequest) -> str | None:
    return dict(parse_qsl(request.body.decode())).get("Action")


def is_signature_right(request: ReceivedRequest, secret: str) -> bool:
    """Whether the signature of a received request is right, computed as AWS's documentation describes."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    fields = dict(
        part.strip().split("=", 1)
        for part in headers["authorization"].removeprefix("AWS4-HMAC-SHA256 ").split(",")
    )
    _, day, region, service, end = fields["Credential"].split("/")
    names = fields["SignedHeaders"].split(";")
    assert {"host", "x-amz-date"} <= set(names)
    assert ("x-amz-security-token" in headers) == ("x-amz-security-token" in names)
    query = sorted(
        (quote(name, safe="-_.~"), quote(value, safe="-_.~"))
        for name, value in parse_qsl(request.query, keep_blank_values=True)
    )
    canonical = [
        request.method,
        quote(request.path, safe="/-_.~"),
        "&".join(f"{name}={value}" for name, value in query),
    ]
    canonical += [f"{name}:{headers[name]}" for name in names] + [
        "",
        fields["SignedHeaders"],
        hashlib.sha256(request.body).hexdigest(),
    ]
    digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], f"{day}/{region}/{service}/{end}", digest])
    key = f"AWS4{secret}".encode()
    for step in (day, region, service, end):
        key = hmac.digest(key, step.encode(), "sha256")
    return hmac.new(key, text.encode(), "sha256").hexdigest() == fields["Signature"]


def fake_aws(arn: str, services: dict[str, bytes], secret: str = SECRET):
    """Return a function that responds as AWS does.

    Requests signed with this secret get the ARN of the key and the bodies in `services`.
    """

    def respond(request: ReceivedRequest) -> FakeResponse:
        if not is_signature_right(request, secret):
            return refusal(
                "SignatureDoesNotMatch",
                "The request signature we calculated does not match the signature you provided.",
            )
        if request.host.startswith("sts."):
            return FakeResponse(200, {"Content-Type": "text/xml"}, IDENTITY.format(arn).encode())
        name = action(request) or request.host.removeprefix("api.").partition(".")[0]
        return (
            FakeResponse(200, {"Content-Type": "text/xml"}, services[name])
            if name in services
            else refusal("AccessDenied")
        )

    return respond


def check_key(
    fake_issuer: FakeServer, rule: str = "aws_access_key", secret: str = SECRET, **parts: str
) -> Verdict:
    values = {"secret": secret} | {
        f"part.{name}": value for name, value in (parts or {"access_key_id": KEY_ID}).items()
    }

    async def main() -> Verdict:
        async with open_http(fake_issuer.egress) as http:
            attempt = make_attempt(values, load_checks(rule, RULES[rule].origin)[0], http)
            return await check_aws_key(attempt, signature_retry_delay=0)

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("service", "url", "headers", "signature"),
    [
        # "get-vanilla" in AWS's test suite
        (
            "service",
            "https://example.amazonaws.com/",
            {},
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        ),
        # the example in AWS's documentation
        (
            "iam",
            "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08",
            {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"},
            "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
        ),
    ],
)
def test_signature_matches_the_published_examples(service, url, headers, signature):
    key = AwsAccessKey("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    now = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
    headers = sign_request(key, "GET", url, headers, b"", service=service, region="us-east-1", now=now)
    assert headers["Authorization"].endswith(f"Signature={signature}")


def test_a_valid_key_reports_its_account_and_services(fake_issuer):
    fake_issuer.respond = fake_aws(
        USER, {"s3": b"<a/>", "DescribeRegions": b"<a/>", "lambda": b"{}", "dynamodb": b"{}", "ecr": b"{}"}
    )
    verdict = check_key(fake_issuer)
    assert (verdict.status, verdict.confidence) == ("valid", "high")
    assert verdict.services == ("aws_dynamodb", "aws_ec2", "aws_ecr", "aws_identity", "aws_lambda", "aws_s3")
    assert "123456789012" in verdict.reason
    assert verdict.services_checked


def test_only_lists_are_requested(fake_issuer):
    fake_issuer.respond = fake_aws(USER, {})
    check_key(fake_issuer)
    actions = {
        action(request) or request.headers.get("X-Amz-Target") or request.path
        for request in fake_issuer.requests
    }
    assert actions == {
        "GetCallerIdentity", "/", "GetUser", "ListAttachedUserPolicies", "DescribeRegions",
        "/2015-03-31/functions/", "ListQueues", "ListTopics", "DescribeDBInstances",
        "DynamoDB_20120810.ListTables", "TrentService.ListKeys", "secretsmanager.ListSecrets",
        "AmazonEC2ContainerRegistry_V20150921.DescribeRepositories", "AmazonSSM.DescribeParameters",
    }  # fmt: skip
    assert {request.host for request in fake_issuer.requests} == set(HOSTS)


def test_root_and_administrators_have_their_own_labels(fake_issuer):
    fake_issuer.respond = fake_aws(ROOT, {})
    assert check_key(fake_issuer).services == ("aws_root",)
    policy = b"<member><PolicyArn>arn:aws:iam::aws:policy/AdministratorAccess</PolicyArn></member>"
    fake_issuer.respond = fake_aws(USER, {"ListAttachedUserPolicies": policy})
    assert check_key(fake_issuer).services == ("aws_admin", "aws_iam", "aws_identity")
    assert any(b"UserName=build" in request.body for request in fake_issuer.requests)


def test_a_temporary_key_sends_its_token(fake_issuer):
    fake_issuer.respond = fake_aws("arn:aws:sts::123456789012:assumed-role/ci/run", {})
    verdict = check_key(
        fake_issuer, "aws_session_key", TOKEN, access_key_id=TEMPORARY_ID, secret_access_key=SECRET
    )
    assert (verdict.status, verdict.services) == ("valid", ("aws_identity",))
    assert all(request.headers["X-Amz-Security-Token"] == TOKEN for request in fake_issuer.requests)


def test_a_refused_signature_is_sent_once_more(fake_issuer):
    respond, refusals = fake_aws(USER, {}), iter([refusal("SignatureDoesNotMatch")])
    fake_issuer.respond = lambda request: next(refusals, None) or respond(request)
    assert check_key(fake_issuer).status == "valid"
    fake_issuer.requests.clear()
    fake_issuer.respond = fake_aws(USER, {}, secret="another")
    verdict = check_key(fake_issuer)
    assert (verdict.status, verdict.confidence, len(fake_issuer.requests)) == ("invalid", "medium", 2)


@pytest.mark.parametrize(
    ("response", "status", "confidence"),
    [
        (refusal("InvalidClientTokenId"), "invalid", "medium"),
        (refusal("ExpiredToken"), "invalid", "high"),
        (
            refusal("SignatureDoesNotMatch", "Signature expired: 20200101T000000Z is now earlier than"),
            "error",
            "low",
        ),
        (refusal("SignatureDoesNotMatch", "Signature not yet current: 20300101T000000Z"), "error", "low"),
        (refusal("SomethingElse"), "error", "low"),
        (FakeResponse(429), "error", "low"),
        (FakeResponse(503), "error", "low"),
        (FakeResponse(200, {"Content-Type": "text/html"}, b"<html>Welcome to the hotel"), "error", "low"),
        (FakeResponse(drop=True), "unreachable", "low"),
    ],
    ids=[
        "unknown",
        "expired",
        "clock behind",
        "clock ahead",
        "other",
        "rate limit",
        "server error",
        "captive portal",
        "dropped",
    ],
)
def test_each_sts_error_has_its_verdict(fake_issuer, response, status, confidence):
    fake_issuer.respond = lambda _: response
    verdict = check_key(
        fake_issuer, "aws_session_key", TOKEN, access_key_id=TEMPORARY_ID, secret_access_key=SECRET
    )
    assert (verdict.status, verdict.confidence) == (status, confidence)
    assert not any(text in verdict.reason for text in (SECRET, TOKEN, TEMPORARY_ID))


@pytest.mark.parametrize(
    ("secret", "parts", "missing"),
    [
        (KEY_ID, {"x": ""}, "secret access key"),
        (SECRET, {"x": ""}, "access key id"),
        (TEMPORARY_ID, {"x": ""}, "secret access key"),
        (TOKEN, {"access_key_id": TEMPORARY_ID}, "secret access key"),
    ],
)
def test_an_incomplete_key_is_not_checked(fake_issuer, secret, parts, missing):
    verdict = check_key(fake_issuer, "aws_session_key", secret, **parts)
    assert (verdict.status, verdict.reason, fake_issuer.requests) == (
        "unvalidated",
        f"its {missing} was not found with it",
        [],
    )


def test_a_failing_service_does_not_change_the_verdict(fake_issuer):
    respond = fake_aws(USER, {"s3": b"<a/>"})
    fake_issuer.respond = lambda request: (
        FakeResponse(drop=True) if request.host.startswith("iam") else respond(request)
    )
    assert check_key(fake_issuer).services == ("aws_identity", "aws_s3")


@pytest.mark.parametrize(
    ("region", "sts", "iam", "confidence"),
    [
        ("us-gov-east-1", "sts.us-gov-west-1.amazonaws.com", "iam.us-gov.amazonaws.com", "high"),
        ("cn-northwest-1", "sts.cn-north-1.amazonaws.com.cn", "iam.cn-north-1.amazonaws.com.cn", "high"),
        ("eu-central-1", "sts.amazonaws.com", "iam.amazonaws.com", "high"),
        (
            None,
            "sts.amazonaws.com",
            "iam.amazonaws.com",
            "medium",
        ),  # it may be a key of another partition
    ],
)
def test_the_region_decides_which_partition_is_asked(fake_issuer, region, sts, iam, confidence):
    parts = {"access_key_id": KEY_ID} | ({"region": region} if region else {})
    respond = fake_aws(USER.replace("aws", "aws-cn", 1), {"GetUser": b"<a/>"})
    fake_issuer.respond = respond
    verdict = check_key(fake_issuer, **parts)
    assert (verdict.status, verdict.services) == ("valid", ("aws_iam", "aws_identity"))
    assert "123456789012" in verdict.reason
    assert {
        request.host for request in fake_issuer.requests if "sts" in request.host or "iam" in request.host
    } == {
        sts,
        iam,
    }
    fake_issuer.respond = lambda _: refusal("InvalidClientTokenId")
    verdict = check_key(fake_issuer, **parts)
    assert (verdict.status, verdict.confidence) == ("invalid", confidence)
    assert ("were not asked" in verdict.reason) is (region is None)


def test_a_canary_is_used_only_if_that_is_switched_on(fake_issuer):
    fake_issuer.respond = fake_aws(USER, {})

    async def main(*, use_canaries: bool) -> Verdict:
        async with open_http(fake_issuer.egress) as http:
            validator = Validator(
                http, ValidationMode.SAFE, requests_per_second=1000, use_canaries=use_canaries
            )
            return await validator.check(
                RULES["aws_access_key"], SECRET, {"access_key_id": "AKIAFAGUQ5JEQ" + "A" * 7}
            )

    verdict = asyncio.run(main(use_canaries=False))
    assert (verdict.status, verdict.canary, fake_issuer.requests) == ("unvalidated", True, [])
    verdict = asyncio.run(main(use_canaries=True))
    assert (verdict.status, verdict.canary) == ("valid", True), "it still counts as a canary in the score"
