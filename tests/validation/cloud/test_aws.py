"""AWS keys against a stand-in that checks every signature by the documented algorithm, written out here a second time."""

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
    f"{name}.amazonaws.com" for name in ("sts", "s3", "iam", *(f"{one}.us-east-1" for one in REGIONAL))
)
GOVERNMENT = (
    "iam.us-gov.amazonaws.com",
    *(f"{name}.us-gov-west-1.amazonaws.com" for name in ("sts", "s3", *REGIONAL)),
)
CHINA = tuple(f"{name}.cn-north-1.amazonaws.com.cn" for name in ("sts", "s3", "iam", *REGIONAL))
IDENTITY = "<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>{}</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>"
USER, ROOT = "arn:aws:iam::123456789012:user/ops/build", "arn:aws:iam::123456789012:root"


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with serve_https(
        tmp_path_factory.mktemp("aws"), HOSTS + GOVERNMENT + CHINA, lambda _: FakeResponse()
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def _fresh(stand_in):
    stand_in.requests.clear()


def refusal(code: str, message: str = "no") -> FakeResponse:
    return FakeResponse(
        403,
        {"Content-Type": "text/xml"},
        f"<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message>".encode(),
    )


def action(asked: ReceivedRequest) -> str | None:
    return dict(parse_qsl(asked.body.decode())).get("Action")


def signature_holds(asked: ReceivedRequest, secret: str) -> bool:
    """Compute the signature as AWS's documentation does, from what arrived."""
    headers = {name.lower(): value for name, value in asked.headers.items()}
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
        for name, value in parse_qsl(asked.query, keep_blank_values=True)
    )
    canonical = [
        asked.method,
        quote(asked.path, safe="/-_.~"),
        "&".join(f"{name}={value}" for name, value in query),
    ]
    canonical += [f"{name}:{headers[name]}" for name in names] + [
        "",
        fields["SignedHeaders"],
        hashlib.sha256(asked.body).hexdigest(),
    ]
    digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], f"{day}/{region}/{service}/{end}", digest])
    key = f"AWS4{secret}".encode()
    for step in (day, region, service, end):
        key = hmac.digest(key, step.encode(), "sha256")
    return hmac.new(key, text.encode(), "sha256").hexdigest() == fields["Signature"]


def cloud(arn: str, services: dict[str, bytes], secret: str = SECRET):
    """Answer as AWS does to whoever signs with this secret: who it is, and the lists of these services."""

    def respond(asked: ReceivedRequest) -> FakeResponse:
        if not signature_holds(asked, secret):
            return refusal(
                "SignatureDoesNotMatch",
                "The request signature we calculated does not match the signature you provided.",
            )
        if asked.host.startswith("sts."):
            return FakeResponse(200, {"Content-Type": "text/xml"}, IDENTITY.format(arn).encode())
        name = action(asked) or asked.host.removeprefix("api.").partition(".")[0]
        return (
            FakeResponse(200, {"Content-Type": "text/xml"}, services[name])
            if name in services
            else refusal("AccessDenied")
        )

    return respond


def checked(
    stand_in: FakeServer, rule: str = "aws_access_key", secret: str = SECRET, **parts: str
) -> Verdict:
    values = {"secret": secret} | {
        f"part.{name}": value for name, value in (parts or {"access_key_id": KEY_ID}).items()
    }

    async def main() -> Verdict:
        async with open_http(stand_in.egress) as http:
            attempt = make_attempt(values, load_checks(rule, RULES[rule].origin)[0], http)
            return await check_aws_key(attempt, signature_retry_delay=0)

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("service", "url", "headers", "signature"),
    [
        # get-vanilla of AWS's test suite
        (
            "service",
            "https://example.amazonaws.com/",
            {},
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        ),
        # the example of AWS's documentation
        (
            "iam",
            "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08",
            {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"},
            "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
        ),
    ],
)
def test_signature_is_the_published_one(service, url, headers, signature):
    keys = AwsAccessKey("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    now = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
    sent = sign_request(keys, "GET", url, headers, b"", service=service, region="us-east-1", now=now)
    assert sent["Authorization"].endswith(f"Signature={signature}")


def test_a_live_key_tells_whose_it_is_and_what_it_lists(stand_in):
    stand_in.respond = cloud(
        USER, {"s3": b"<a/>", "DescribeRegions": b"<a/>", "lambda": b"{}", "dynamodb": b"{}", "ecr": b"{}"}
    )
    verdict = checked(stand_in)
    assert (verdict.status, verdict.confidence) == ("valid", "high")
    assert verdict.services == ("aws_dynamodb", "aws_ec2", "aws_ecr", "aws_identity", "aws_lambda", "aws_s3")
    assert "123456789012" in verdict.reason
    assert verdict.services_checked


def test_every_service_is_asked_for_a_list_and_nothing_else(stand_in):
    stand_in.respond = cloud(USER, {})
    checked(stand_in)
    actions = {
        action(asked) or asked.headers.get("X-Amz-Target") or asked.path for asked in stand_in.requests
    }
    assert actions == {
        "GetCallerIdentity", "/", "GetUser", "ListAttachedUserPolicies", "DescribeRegions", "/2015-03-31/functions/", "ListQueues",
        "ListTopics", "DescribeDBInstances", "DynamoDB_20120810.ListTables", "TrentService.ListKeys", "secretsmanager.ListSecrets",
        "AmazonEC2ContainerRegistry_V20150921.DescribeRepositories", "AmazonSSM.DescribeParameters",
    }  # fmt: skip
    assert {asked.host for asked in stand_in.requests} == set(HOSTS)


def test_root_and_administrators_are_named(stand_in):
    stand_in.respond = cloud(ROOT, {})
    assert checked(stand_in).services == ("aws_root",)
    policy = b"<member><PolicyArn>arn:aws:iam::aws:policy/AdministratorAccess</PolicyArn></member>"
    stand_in.respond = cloud(USER, {"ListAttachedUserPolicies": policy})
    assert checked(stand_in).services == ("aws_admin", "aws_iam", "aws_identity")
    assert any(b"UserName=build" in asked.body for asked in stand_in.requests)


def test_a_temporary_key_sends_its_token(stand_in):
    stand_in.respond = cloud("arn:aws:sts::123456789012:assumed-role/ci/run", {})
    verdict = checked(
        stand_in, "aws_session_key", TOKEN, access_key_id=TEMPORARY_ID, secret_access_key=SECRET
    )
    assert (verdict.status, verdict.services) == ("valid", ("aws_identity",))
    assert all(asked.headers["X-Amz-Security-Token"] == TOKEN for asked in stand_in.requests)


def test_a_wrong_signature_is_asked_about_once_more(stand_in):
    right, answers = cloud(USER, {}), iter([refusal("SignatureDoesNotMatch")])
    stand_in.respond = lambda asked: next(answers, None) or right(asked)
    assert checked(stand_in).status == "valid"
    stand_in.requests.clear()
    stand_in.respond = cloud(USER, {}, secret="another")
    verdict = checked(stand_in)
    assert (verdict.status, verdict.confidence, len(stand_in.requests)) == ("invalid", "medium", 2)


@pytest.mark.parametrize(
    ("answer", "status", "confidence"),
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
        "limited",
        "fault",
        "portal",
        "cut off",
    ],
)
def test_what_sts_says_is_what_is_told(stand_in, answer, status, confidence):
    stand_in.respond = lambda _: answer
    verdict = checked(
        stand_in, "aws_session_key", TOKEN, access_key_id=TEMPORARY_ID, secret_access_key=SECRET
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
def test_half_a_key_is_not_asked_about(stand_in, secret, parts, missing):
    verdict = checked(stand_in, "aws_session_key", secret, **parts)
    assert (verdict.status, verdict.reason, stand_in.requests) == (
        "unvalidated",
        f"its {missing} was not found with it",
        [],
    )


def test_a_service_that_fails_takes_nothing_from_the_verdict(stand_in):
    right = cloud(USER, {"s3": b"<a/>"})
    stand_in.respond = lambda asked: FakeResponse(drop=True) if asked.host.startswith("iam") else right(asked)
    assert checked(stand_in).services == ("aws_identity", "aws_s3")


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
        ),  # it may be a key of a cloud that was not asked
    ],
)
def test_a_region_beside_a_key_tells_which_cloud_is_asked(stand_in, region, sts, iam, confidence):
    parts = {"access_key_id": KEY_ID} | ({"region": region} if region else {})
    right = cloud(USER.replace("aws", "aws-cn", 1), {"GetUser": b"<a/>"})
    stand_in.respond = right
    verdict = checked(stand_in, **parts)
    assert (verdict.status, verdict.services) == ("valid", ("aws_iam", "aws_identity"))
    assert "123456789012" in verdict.reason
    assert {asked.host for asked in stand_in.requests if "sts" in asked.host or "iam" in asked.host} == {
        sts,
        iam,
    }
    stand_in.respond = lambda _: refusal("InvalidClientTokenId")
    verdict = checked(stand_in, **parts)
    assert (verdict.status, verdict.confidence) == ("invalid", confidence)
    assert ("were not asked" in verdict.reason) is (region is None)


def test_a_canary_is_never_used_unless_told_to(stand_in):
    stand_in.respond = cloud(USER, {})

    async def main(*, told_to: bool) -> Verdict:
        async with open_http(stand_in.egress) as http:
            validator = Validator(http, ValidationMode.SAFE, requests_per_second=1000, use_canaries=told_to)
            return await validator.check(
                RULES["aws_access_key"], SECRET, {"access_key_id": "AKIAFAGUQ5JEQ" + "A" * 7}
            )

    verdict = asyncio.run(main(told_to=False))
    assert (verdict.status, verdict.canary, stand_in.requests) == ("unvalidated", True, [])
    verdict = asyncio.run(main(told_to=True))
    assert (verdict.status, verdict.canary) == ("valid", True), (
        "it is a canary none the less, and scored as one"
    )
