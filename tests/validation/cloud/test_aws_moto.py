"""AWS keys, against a running moto server, which verifies signatures and policies as AWS does.

An HTTPS server in front of moto forwards the requests.
"""

import http.client
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlencode

import pytest

from outcrop.validation.verdict import Verdict
from tests.support.checks import load_check, run_check
from tests.support.fake_https import FakeResponse, FakeServer, ReceivedRequest, serve_https
from tests.support.servers import free_port

REGIONAL = ("ec2", "lambda", "sqs", "sns", "rds", "dynamodb", "kms", "secretsmanager", "api.ecr", "ssm")
HOSTS = tuple(
    f"{name}.amazonaws.com"
    for name in ("sts", "s3", "iam", *(f"{service}.us-east-1" for service in REGIONAL))
)
FORWARDED = ("sts", "iam", "s3", "sqs", "sns")  # moto takes a second to load each further service
NARROW_POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": ["s3:ListAllMyBuckets", "sqs:ListQueues"], "Resource": "*"}],
}
ASSUME_ROLE_POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "*"}}],
}
ADMINISTRATOR_POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}],
}
WITHOUT_DELAY = {"signature_retry_delay": 0.0}


@dataclass(frozen=True)
class KeyPair:
    """An access key; a temporary one has a session token."""

    key_id: str
    secret: str
    token: str = ""


@dataclass
class MotoCloud:
    """The port of a moto server, and the HTTPS server in front of it."""

    port: int
    front: FakeServer

    def call(self, service: str, **form: str) -> str:
        """Call an API of moto without a valid signature, which works while authorization is off."""
        scope = f"x/20260101/us-east-1/{service}/aws4_request"
        headers = {"Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"}
        sent = headers | {
            "Host": f"{service}.amazonaws.com",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        status, _, body = forward(self.port, "POST", "/", sent, urlencode(form).encode())
        assert status == 200, body
        return body.decode()

    def set_authorization(self, *, on: bool) -> None:
        """Switch the verification of signatures and policies on or off."""
        forward(self.port, "POST", "/moto-api/reset-auth", {}, b"0" if on else b"inf")


def forward(
    port: int, method: str, path: str, headers: dict[str, str], body: bytes
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body or None, headers)
        response = connection.getresponse()
        return response.status, dict(response.headers), response.read()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoCloud]:
    port, folder = free_port(), tmp_path_factory.mktemp("moto")

    def respond(request: ReceivedRequest) -> FakeResponse:
        if request.host.partition(".")[0] not in FORWARDED:
            return FakeResponse(403)
        status, headers, body = forward(
            port,
            request.method,
            f"{request.path}?{request.query}" if request.query else request.path,
            dict(request.headers),
            request.body,
        )
        return FakeResponse(status, {"Content-Type": headers.get("Content-Type", "")}, body)

    with (folder / "output").open("wb") as output:
        environment = {**os.environ, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=output,
            stderr=output,
            env=environment,
        )
        try:
            for _ in range(600):
                with suppress(OSError):
                    forward(port, "GET", "/moto-api/", {}, b"")
                    break
                assert process.poll() is None, (folder / "output").read_text()
                time.sleep(0.05)
            with serve_https(folder, HOSTS, respond) as front:
                yield MotoCloud(port, front)
        finally:
            process.kill()
            process.wait()


def xml_text(text: str, name: str) -> str:
    found = re.search(f"<{name}>([^<]+)</{name}>", text)
    assert found, text
    return found[1]


@pytest.fixture(scope="module")
def keys(cloud: MotoCloud) -> dict[str, KeyPair]:
    """Create users and keys, then switch authorization on."""
    for service, action in (
        ("sqs", "ListQueues"),
        ("sns", "ListTopics"),
    ):  # moto loads a service on its first request
        cloud.call(service, Action=action, Version="2012-11-05")
    keys = {}
    for user, policy in (("narrow", NARROW_POLICY), ("boss", ADMINISTRATOR_POLICY), ("idle", None)):
        cloud.call("iam", Action="CreateUser", Version="2010-05-08", UserName=user)
        if policy:
            document = {"PolicyName": "p", "PolicyDocument": json.dumps(policy)}
            cloud.call("iam", Action="PutUserPolicy", Version="2010-05-08", UserName=user, **document)
        response = cloud.call("iam", Action="CreateAccessKey", Version="2010-05-08", UserName=user)
        keys[user] = KeyPair(xml_text(response, "AccessKeyId"), xml_text(response, "SecretAccessKey"))
    cloud.call(
        "iam",
        Action="CreateRole",
        Version="2010-05-08",
        RoleName="ci",
        AssumeRolePolicyDocument=json.dumps(ASSUME_ROLE_POLICY),
    )
    role = "arn:aws:iam::123456789012:role/ci"
    response = cloud.call(
        "sts", Action="AssumeRole", Version="2011-06-15", RoleArn=role, RoleSessionName="run"
    )
    keys["role"] = KeyPair(
        xml_text(response, "AccessKeyId"),
        xml_text(response, "SecretAccessKey"),
        xml_text(response, "SessionToken"),
    )
    cloud.set_authorization(on=True)
    return keys


def check_key(cloud: MotoCloud, key: KeyPair) -> Verdict:
    if key.token:
        check = load_check("aws", "aws_session_key")
        parts = {"access_key_id": key.key_id, "secret_access_key": key.secret}
        return run_check(cloud.front.egress, check, key.token, options=WITHOUT_DELAY, **parts)
    return run_check(
        cloud.front.egress,
        load_check("aws", "aws_access_key"),
        key.secret,
        options=WITHOUT_DELAY,
        access_key_id=key.key_id,
    )


def test_a_key_with_a_narrow_policy_reports_only_those_services(cloud, keys):
    verdict = check_key(cloud, keys["narrow"])
    assert (verdict.status, verdict.confidence, verdict.services) == (
        "valid",
        "high",
        ("aws_identity", "aws_s3", "aws_sqs"),
    )
    assert verdict.reason == "STS accepts the key: a user of account 123456789012"


def test_a_key_without_permissions_is_valid(cloud, keys):
    verdict = check_key(cloud, keys["idle"])
    assert (verdict.status, verdict.services) == ("valid", ("aws_identity",))


def test_an_administrator_key_reports_all_services(cloud, keys):
    services = set(check_key(cloud, keys["boss"]).services)
    assert services == {"aws_identity", "aws_iam", "aws_s3", "aws_sns", "aws_sqs"}


def test_a_temporary_key_belongs_to_a_role(cloud, keys):
    verdict = check_key(cloud, keys["role"])
    assert (verdict.status, verdict.reason) == (
        "valid",
        "STS accepts the key: a role of account 123456789012",
    )


def test_a_wrong_secret_and_an_unknown_id_are_invalid(cloud, keys):
    wrong = check_key(cloud, KeyPair(keys["narrow"].key_id, "b" * 40))
    assert (wrong.status, wrong.confidence) == ("invalid", "medium")
    assert "does not belong" in wrong.reason
    unknown = check_key(cloud, KeyPair("AKIA" + "Q" * 16, keys["narrow"].secret))
    assert (unknown.status, "does not know this key" in unknown.reason) == ("invalid", True)


def test_a_deleted_key_is_invalid(cloud, keys):
    cloud.set_authorization(on=False)
    cloud.call(
        "iam",
        Action="DeleteAccessKey",
        Version="2010-05-08",
        UserName="idle",
        AccessKeyId=keys["idle"].key_id,
    )
    cloud.set_authorization(on=True)
    assert check_key(cloud, keys["idle"]).status == "invalid"
