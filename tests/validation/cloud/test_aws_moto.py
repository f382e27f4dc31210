"""AWS keys against a running moto server, which checks signatures and policies as AWS does; a TLS front stands before it."""

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
    f"{name}.amazonaws.com" for name in ("sts", "s3", "iam", *(f"{one}.us-east-1" for one in REGIONAL))
)
PLAYED = ("sts", "iam", "s3", "sqs", "sns")  # each further one takes moto a second to load
NARROW = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": ["s3:ListAllMyBuckets", "sqs:ListQueues"], "Resource": "*"}],
}
ASSUMED = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "*"}}],
}
ADMINISTRATOR = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
AT_ONCE = {"signature_retry_delay": 0.0}


@dataclass(frozen=True)
class Pair:
    key_id: str
    secret: str
    token: str = ""


@dataclass
class Cloud:
    """A moto server's port, and the front that speaks TLS for it."""

    port: int
    front: FakeServer

    def call(self, service: str, **form: str) -> str:
        """Do something in the cloud, as nobody: nothing is checked until `guard` is called."""
        scope = f"x/20260101/us-east-1/{service}/aws4_request"
        headers = {"Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"}
        sent = headers | {
            "Host": f"{service}.amazonaws.com",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        status, _, body = forward(self.port, "POST", "/", sent, urlencode(form).encode())
        assert status == 200, body
        return body.decode()

    def guard(self, *, on: bool) -> None:
        forward(self.port, "POST", "/moto-api/reset-auth", {}, b"0" if on else b"inf")


def forward(
    port: int, method: str, path: str, headers: dict[str, str], body: bytes
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read()
    finally:
        connection.close()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    port, folder = free_port(), tmp_path_factory.mktemp("moto")

    def respond(asked: ReceivedRequest) -> FakeResponse:
        if asked.host.partition(".")[0] not in PLAYED:
            return FakeResponse(403)
        status, headers, body = forward(
            port,
            asked.method,
            f"{asked.path}?{asked.query}" if asked.query else asked.path,
            dict(asked.headers),
            asked.body,
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
                yield Cloud(port, front)
        finally:
            process.kill()
            process.wait()


def tag(text: str, name: str) -> str:
    found = re.search(f"<{name}>([^<]+)</{name}>", text)
    assert found, text
    return found[1]


@pytest.fixture(scope="module")
def pairs(cloud: Cloud) -> dict[str, Pair]:
    """Make users and keys, then let moto check everything that follows."""
    for service, action in (("sqs", "ListQueues"), ("sns", "ListTopics")):  # loaded when first asked for
        cloud.call(service, Action=action, Version="2012-11-05")
    made = {}
    for user, policy in (("narrow", NARROW), ("boss", ADMINISTRATOR), ("idle", None)):
        cloud.call("iam", Action="CreateUser", Version="2010-05-08", UserName=user)
        if policy:
            document = {"PolicyName": "p", "PolicyDocument": json.dumps(policy)}
            cloud.call("iam", Action="PutUserPolicy", Version="2010-05-08", UserName=user, **document)
        told = cloud.call("iam", Action="CreateAccessKey", Version="2010-05-08", UserName=user)
        made[user] = Pair(tag(told, "AccessKeyId"), tag(told, "SecretAccessKey"))
    cloud.call(
        "iam",
        Action="CreateRole",
        Version="2010-05-08",
        RoleName="ci",
        AssumeRolePolicyDocument=json.dumps(ASSUMED),
    )
    role = "arn:aws:iam::123456789012:role/ci"
    told = cloud.call("sts", Action="AssumeRole", Version="2011-06-15", RoleArn=role, RoleSessionName="run")
    made["role"] = Pair(tag(told, "AccessKeyId"), tag(told, "SecretAccessKey"), tag(told, "SessionToken"))
    cloud.guard(on=True)
    return made


def checked(cloud: Cloud, pair: Pair) -> Verdict:
    if pair.token:
        check = load_check("aws", "aws_session_key")
        parts = {"access_key_id": pair.key_id, "secret_access_key": pair.secret}
        return run_check(cloud.front.egress, check, pair.token, options=AT_ONCE, **parts)
    return run_check(
        cloud.front.egress,
        load_check("aws", "aws_access_key"),
        pair.secret,
        options=AT_ONCE,
        access_key_id=pair.key_id,
    )


def test_a_narrow_key_opens_what_its_policy_says(cloud, pairs):
    verdict = checked(cloud, pairs["narrow"])
    assert (verdict.status, verdict.confidence, verdict.services) == (
        "valid",
        "high",
        ("aws_identity", "aws_s3", "aws_sqs"),
    )
    assert verdict.reason == "STS accepts the key: a user of account 123456789012"


def test_a_key_without_rights_is_alive(cloud, pairs):
    verdict = checked(cloud, pairs["idle"])
    assert (verdict.status, verdict.services) == ("valid", ("aws_identity",))


def test_an_administrators_key_opens_the_rest(cloud, pairs):
    services = set(checked(cloud, pairs["boss"]).services)
    assert services == {"aws_identity", "aws_iam", "aws_s3", "aws_sns", "aws_sqs"}


def test_a_temporary_key_is_a_roles(cloud, pairs):
    verdict = checked(cloud, pairs["role"])
    assert (verdict.status, verdict.reason) == (
        "valid",
        "STS accepts the key: a role of account 123456789012",
    )


def test_a_wrong_secret_and_an_unknown_id_are_refused(cloud, pairs):
    wrong = checked(cloud, Pair(pairs["narrow"].key_id, "b" * 40))
    assert (wrong.status, wrong.confidence) == ("invalid", "medium")
    assert "does not belong" in wrong.reason
    unknown = checked(cloud, Pair("AKIA" + "Q" * 16, pairs["narrow"].secret))
    assert (unknown.status, "does not know this key" in unknown.reason) == ("invalid", True)


def test_a_key_that_was_deleted_is_refused(cloud, pairs):
    cloud.guard(on=False)
    cloud.call(
        "iam",
        Action="DeleteAccessKey",
        Version="2010-05-08",
        UserName="idle",
        AccessKeyId=pairs["idle"].key_id,
    )
    cloud.guard(on=True)
    assert checked(cloud, pairs["idle"]).status == "invalid"
