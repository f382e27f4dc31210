"""AWS keys: STS tells whose they are, then every service is asked for a list, which changes nothing."""

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from outcrop.domain.finding import Validation
from outcrop.net.http import Answer, Http, HttpError
from outcrop.scanner.check import Check
from outcrop.validation.answer import judge
from outcrop.validation.ask import Turn
from outcrop.validation.cloud import send
from outcrop.validation.sigv4 import Keys, sign
from outcrop.validation.verdict import Verdict, unreachable, unvalidated, valid

_REGION = "us-east-1"
_IDENTITY = "https://sts.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15"
_KEY_ID = re.compile(r"A[A-Z]{3}[A-Z2-7]{16}")
_AGAIN_AFTER = 6.0  # seconds: AWS refuses even the right pair shortly after a wrong one for the same id
_ALL_SERVICES = 20.0  # seconds
_OK = 200

# The label, and the address of a list; with a target it is one of AWS's JSON services, which are asked by POST.
_LISTS = (
    ("aws_s3", "https://s3.amazonaws.com/", ""),
    ("aws_iam", "https://iam.amazonaws.com/?Action=GetUser&Version=2010-05-08", ""),
    ("aws_ec2", "https://ec2.us-east-1.amazonaws.com/?Action=DescribeRegions&Version=2016-11-15", ""),
    ("aws_lambda", "https://lambda.us-east-1.amazonaws.com/2015-03-31/functions/?MaxItems=1", ""),
    ("aws_sqs", "https://sqs.us-east-1.amazonaws.com/?Action=ListQueues&Version=2012-11-05", ""),
    ("aws_sns", "https://sns.us-east-1.amazonaws.com/?Action=ListTopics&Version=2010-03-31", ""),
    ("aws_rds", "https://rds.us-east-1.amazonaws.com/?Action=DescribeDBInstances&MaxRecords=20&Version=2014-10-31", ""),
    ("aws_dynamodb", "https://dynamodb.us-east-1.amazonaws.com/", "DynamoDB_20120810.ListTables"),
    ("aws_kms", "https://kms.us-east-1.amazonaws.com/", "TrentService.ListKeys"),
    ("aws_secretsmanager", "https://secretsmanager.us-east-1.amazonaws.com/", "secretsmanager.ListSecrets"),
    ("aws_ecr", "https://api.ecr.us-east-1.amazonaws.com/", "AmazonEC2ContainerRegistry_V20150921.DescribeRepositories"),
    ("aws_ssm", "https://ssm.us-east-1.amazonaws.com/", "AmazonSSM.DescribeParameters"),
)
_POLICIES = "https://iam.amazonaws.com/?Action=ListAttachedUserPolicies&Version=2010-05-08&UserName="


async def aws(http: Http, check: Check, values: Mapping[str, str], turn: Turn, *, again_after: float = _AGAIN_AFTER) -> Verdict:
    """Ask STS whose key it is; a signature that does not fit is asked about once more before that is believed."""
    keys = _keys(values)
    if isinstance(keys, str):
        return unvalidated(f"its {keys} was not found with it")
    try:
        answer = await _signed(http, turn, keys, _IDENTITY)
        if b"<Code>SignatureDoesNotMatch<" in answer.body:
            await asyncio.sleep(again_after)
            answer = await _signed(http, turn, keys, _IDENTITY)
    except HttpError as failure:
        return unreachable(f"the issuer cannot be reached: {failure}")
    verdict = judge(answer, check.answer)
    if verdict.status is not Validation.VALID:
        return verdict
    arn = _tag(answer, "Arn")
    labels = {"aws_root" if arn.endswith(":root") else "aws_identity"} | await _services(http, turn, keys, arn)
    return valid(f"STS knows it: {_who(arn)}", verdict.confidence, tuple(labels), asked=True)


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


async def _signed(http: Http, turn: Turn, keys: Keys, url: str, target: str = "", *, further: bool = False) -> Answer:
    host = (urlsplit(url).hostname or "").removeprefix("api.")
    headers, body, method = {}, b"", "GET"
    if target:
        version = "1.0" if target.startswith("DynamoDB") else "1.1"
        headers, body, method = {"X-Amz-Target": target, "Content-Type": f"application/x-amz-json-{version}"}, b"{}", "POST"
    sent = sign(keys, method, url, headers, body, service=host.partition(".")[0], region=_REGION, now=datetime.now(UTC))
    return await send(http, turn, method, url, headers=sent, body=body or None, further=further)


async def _services(http: Http, turn: Turn, keys: Keys, arn: str) -> set[str]:
    """Give a label for each service that answers; one that is slow or refuses is left out."""
    found: set[str] = set()

    async def listed(label: str, url: str, target: str) -> None:
        try:
            answer = await _signed(http, turn, keys, url, target, further=True)
        except HttpError:
            return
        if answer.status == _OK and answer.media_type != "text/html":
            found.add(label)
            if b":iam::aws:policy/AdministratorAccess<" in answer.body:
                found.add("aws_admin")

    lists = list(_LISTS)
    if ":user/" in arn:
        lists.append(("aws_iam", _POLICIES + quote(arn.rpartition("/")[2], safe=""), ""))
    try:
        async with asyncio.timeout(_ALL_SERVICES):
            await asyncio.gather(*(listed(*one) for one in lists))
    except TimeoutError:
        pass  # what has answered counts
    return found


def _tag(answer: Answer, name: str) -> str:
    found = re.search(rf"<{name}>([\x21-\x7e]{{1,2048}}?)</{name}>".encode(), answer.body)
    return found[1].decode() if found else ""


def _who(arn: str) -> str:
    """Say whom a key belongs to: the account's number and the kind of principal, never what somebody called it."""
    found = re.fullmatch(r"arn:aws[a-z-]*:(?:iam|sts)::(\d{12}):(root|user|assumed-role|federated-user)(?:/.*)?", arn)
    if found is None:
        return "an unnamed principal"
    kind = {"root": "the root user", "user": "a user", "assumed-role": "a role", "federated-user": "a federated user"}[found[2]]
    return f"{kind} of account {found[1]}"
