"""AWS keys: STS tells whose they are, then every service is asked for a list, which changes nothing."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from urllib.parse import quote

from outcrop.domain.finding import Confidence, Validation
from outcrop.net.http import HttpClient, HttpError, HttpResponse
from outcrop.scanner.rules.check_spec import CheckSpec
from outcrop.validation.attempt import send
from outcrop.validation.cloud.sigv4 import Keys, sign
from outcrop.validation.http.check import Turn
from outcrop.validation.http.response import judge
from outcrop.validation.verdict import Verdict, invalid, unreachable, unvalidated, with_services

_KEY_ID = re.compile(r"A[A-Z]{3}[A-Z2-7]{16}")
_AGAIN_AFTER = 6.0  # seconds: AWS refuses even the right pair shortly after a wrong one for the same id
_ADMINISTRATOR = re.compile(rb"arn:aws[a-z-]*:iam::aws:policy/AdministratorAccess<")
_ALL_SERVICES = 20.0  # seconds
_OK = 200
_IDENTITY = "Action=GetCallerIdentity&Version=2011-06-15"
_POLICIES = "Action=ListAttachedUserPolicies&Version=2010-05-08&UserName="

# The label, the service, and how it is asked for a list: a form, a path, or the target of a JSON service. None of it changes anything.
_LISTS = (
    ("aws_s3", "s3", "/", ""),
    ("aws_iam", "iam", "Action=GetUser&Version=2010-05-08", ""),
    ("aws_ec2", "ec2", "Action=DescribeRegions&Version=2016-11-15", ""),
    ("aws_lambda", "lambda", "/2015-03-31/functions/?MaxItems=1", ""),
    ("aws_sqs", "sqs", "Action=ListQueues&Version=2012-11-05", ""),
    ("aws_sns", "sns", "Action=ListTopics&Version=2010-03-31", ""),
    ("aws_rds", "rds", "Action=DescribeDBInstances&MaxRecords=20&Version=2014-10-31", ""),
    ("aws_dynamodb", "dynamodb", "/", "DynamoDB_20120810.ListTables"),
    ("aws_kms", "kms", "/", "TrentService.ListKeys"),
    ("aws_secretsmanager", "secretsmanager", "/", "secretsmanager.ListSecrets"),
    ("aws_ecr", "ecr", "/", "AmazonEC2ContainerRegistry_V20150921.DescribeRepositories"),
    ("aws_ssm", "ssm", "/", "AmazonSSM.DescribeParameters"),
)


@dataclass(frozen=True, slots=True)
class _Partition:
    """One of the separate clouds that AWS runs: a key of one is unknown in the others, and does not tell which is its own."""

    name: str
    region: str
    global_hosts: Mapping[str, str] = field(
        default_factory=dict
    )  # of services that have no region in their name
    suffix: str = "amazonaws.com"

    def host(self, service: str) -> str:
        name = "api.ecr" if service == "ecr" else service
        return self.global_hosts.get(service) or f"{name}.{self.region}.{self.suffix}"


_COMMERCIAL = _Partition("AWS", "us-east-1", {name: f"{name}.amazonaws.com" for name in ("sts", "iam", "s3")})
_GOVERNMENT = _Partition("AWS GovCloud", "us-gov-west-1", {"iam": "iam.us-gov.amazonaws.com"})
_CHINA = _Partition("AWS China", "cn-north-1", suffix="amazonaws.com.cn")


async def aws(
    http: HttpClient,
    check: CheckSpec,
    values: Mapping[str, str],
    turn: Turn,
    *,
    again_after: float = _AGAIN_AFTER,
) -> Verdict:
    """Ask STS whose key it is; a signature that does not fit is asked about once more before that is believed."""
    keys = _keys(values)
    if isinstance(keys, str):
        return unvalidated(f"its {keys} was not found with it")
    partition = _partition(values.get("part.region", ""))
    asker = _Asker(http, turn, keys, partition)
    try:
        answer = await asker.ask("sts", _IDENTITY)
        if b"<Code>SignatureDoesNotMatch<" in answer.body:
            await asyncio.sleep(again_after)
            answer = await asker.ask("sts", _IDENTITY)
    except HttpError as failure:
        return unreachable(f"the issuer cannot be reached: {failure}")
    verdict = judge(answer, check.answer)
    if verdict.status is Validation.INVALID and b"<Code>InvalidClientTokenId<" in answer.body:
        return _unknown(partition, told="part.region" in values)
    if verdict.status is not Validation.VALID:
        return verdict
    arn = _tag(answer, "Arn")
    known = replace(verdict, reason=f"STS knows it: {_who(arn)}")
    who = "aws_root" if arn.endswith(":root") else "aws_identity"
    turn.proven = with_services(known, [who])
    return with_services(known, {who} | await _services(asker, arn))


def _partition(region: str) -> _Partition:
    if region.startswith("cn-"):
        return _CHINA
    return _GOVERNMENT if region.startswith("us-gov-") else _COMMERCIAL


def _unknown(partition: _Partition, *, told: bool) -> Verdict:
    """Say what it means that one cloud knows no such key. Only a region beside the key tells that it was the right one to ask."""
    if told:
        return invalid(f"{partition.name} knows no such key")
    return invalid(
        f"{partition.name} knows no such key; China and GovCloud, which have their own, were not asked",
        Confidence.MEDIUM,
    )


def _keys(values: Mapping[str, str]) -> Keys | str:
    """Put the key together, or say what is missing. The secret of the rule is the key, or for temporary ones the token."""
    secret, key_id = values["secret"], values.get("part.access_key_id", "")
    if _KEY_ID.fullmatch(secret):  # the id stood alone
        return "secret access key"
    if not _KEY_ID.fullmatch(key_id):
        return "access key id"
    if not key_id.startswith("ASIA"):
        return Keys(key_id, secret)
    if "part.secret_access_key" not in values:
        return "secret access key"
    return Keys(key_id, values["part.secret_access_key"], secret)


@dataclass(frozen=True, slots=True)
class _Asker:
    """Asks the services of one cloud with one key."""

    http: HttpClient
    turn: Turn
    keys: Keys
    partition: _Partition

    async def ask(self, service: str, what: str, target: str = "", *, further: bool = False) -> HttpResponse:
        url = f"https://{self.partition.host(service)}{what if what.startswith('/') else '/'}"
        headers, body, method = {}, b"", "GET"
        if not what.startswith("/"):
            headers, body, method = (
                {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"},
                what.encode(),
                "POST",
            )
        if target:
            version = "1.0" if target.startswith("DynamoDB") else "1.1"
            headers, body, method = (
                {"X-Amz-Target": target, "Content-Type": f"application/x-amz-json-{version}"},
                b"{}",
                "POST",
            )
        sent = sign(
            self.keys,
            method,
            url,
            headers,
            body,
            service=service,
            region=self.partition.region,
            now=datetime.now(UTC),
        )
        return await send(self.http, self.turn, method, url, headers=sent, body=body or None, further=further)


async def _services(asker: _Asker, arn: str) -> set[str]:
    """Give a label for each service that answers; one that is slow or refuses is left out."""
    found: set[str] = set()

    async def listed(label: str, service: str, what: str, target: str) -> None:
        try:
            answer = await asker.ask(service, what, target, further=True)
        except HttpError:
            return
        if answer.status == _OK and answer.media_type != "text/html":
            found.add(label)
            if _ADMINISTRATOR.search(answer.body):
                found.add("aws_admin")
            if asker.turn.proven:
                asker.turn.proven = with_services(asker.turn.proven, {*asker.turn.proven.services, *found})

    lists = list(_LISTS)
    if ":user/" in arn:
        lists.append(("aws_iam", "iam", _POLICIES + quote(arn.rpartition("/")[2], safe=""), ""))
    try:
        async with asyncio.timeout(_ALL_SERVICES):
            await asyncio.gather(*(listed(*one) for one in lists))
    except TimeoutError:
        pass  # what has answered counts
    return found


def _tag(answer: HttpResponse, name: str) -> str:
    found = re.search(rf"<{name}>([\x21-\x7e]{{1,2048}}?)</{name}>".encode(), answer.body)
    return found[1].decode() if found else ""


def _who(arn: str) -> str:
    """Say whom a key belongs to: the account's number and the kind of principal, never what somebody called it."""
    found = re.fullmatch(
        r"arn:aws[a-z-]*:(?:iam|sts)::(\d{12}):(root|user|assumed-role|federated-user)(?:/.*)?", arn
    )
    if found is None:
        return "an unnamed principal"
    kind = {
        "root": "the root user",
        "user": "a user",
        "assumed-role": "a role",
        "federated-user": "a federated user",
    }[found[2]]
    return f"{kind} of account {found[1]}"
