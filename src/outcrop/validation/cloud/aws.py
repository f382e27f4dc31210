"""Check AWS access keys.

1. STS returns the owner of a valid key (`GetCallerIdentity`).
2. Each service is asked for a list, which changes nothing (`_find_services`); its label is added if it
   answers.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import quote

from outcrop.domain import clock
from outcrop.domain.finding import Confidence, Validation
from outcrop.lazy_regex import regex
from outcrop.limits import AWS_SERVICES_SECONDS
from outcrop.net.http import HttpError, HttpResponse
from outcrop.validation.attempt import Attempt, UncheckableError
from outcrop.validation.cloud.aws_keys import AwsAccessKey, read_access_key
from outcrop.validation.cloud.sigv4 import sign_request
from outcrop.validation.http.response import judge
from outcrop.validation.verdict import Verdict, invalid, unreachable, unvalidated, with_services

_SIGNATURE_RETRY_DELAY = 6.0  # seconds: for a while after a wrong secret, AWS refuses the right one too
_OK = 200
_ADMINISTRATOR = regex(rb"arn:aws[a-z-]*:iam::aws:policy/AdministratorAccess<")
_PRINCIPAL_ARN = regex(
    r"arn:aws[a-z-]*:(?:iam|sts)::(\d{12}):(root|user|assumed-role|federated-user)(?:/.*)?"
)
_PRINCIPALS = {
    "root": "the root user",
    "user": "a user",
    "assumed-role": "a role",
    "federated-user": "a federated user",
}


class _Query(NamedTuple):
    """A request for a list or an identity: a GET of `path`, a POST of `form`, or a JSON call of `target`."""

    label: str
    service: str
    path: str = "/"
    form: str = ""
    target: str = ""


_CALLER_IDENTITY = _Query("", "sts", form="Action=GetCallerIdentity&Version=2011-06-15")
_USER_POLICIES = _Query("aws_iam", "iam", form="Action=ListAttachedUserPolicies&Version=2010-05-08&UserName=")
_SERVICE_QUERIES = (
    _Query("aws_s3", "s3"),
    _Query("aws_iam", "iam", form="Action=GetUser&Version=2010-05-08"),
    _Query("aws_ec2", "ec2", form="Action=DescribeRegions&Version=2016-11-15"),
    _Query("aws_lambda", "lambda", path="/2015-03-31/functions/?MaxItems=1"),
    _Query("aws_sqs", "sqs", form="Action=ListQueues&Version=2012-11-05"),
    _Query("aws_sns", "sns", form="Action=ListTopics&Version=2010-03-31"),
    _Query("aws_rds", "rds", form="Action=DescribeDBInstances&MaxRecords=20&Version=2014-10-31"),
    _Query("aws_dynamodb", "dynamodb", target="DynamoDB_20120810.ListTables"),
    _Query("aws_kms", "kms", target="TrentService.ListKeys"),
    _Query("aws_secretsmanager", "secretsmanager", target="secretsmanager.ListSecrets"),
    _Query("aws_ecr", "ecr", target="AmazonEC2ContainerRegistry_V20150921.DescribeRepositories"),
    _Query("aws_ssm", "ssm", target="AmazonSSM.DescribeParameters"),
)


@dataclass(frozen=True, slots=True)
class _Partition:
    """One of the separate clouds of AWS. A key exists in one partition only, and does not say in which."""

    name: str
    region: str
    # Hosts of the services whose host has no region.
    global_hosts: Mapping[str, str] = field(default_factory=dict)
    suffix: str = "amazonaws.com"

    def host_of(self, service: str) -> str:
        """Return the host of a service, given by its short name such as `ecr`, in this partition."""
        subdomain = "api.ecr" if service == "ecr" else service
        return self.global_hosts.get(service) or f"{subdomain}.{self.region}.{self.suffix}"


_COMMERCIAL = _Partition("AWS", "us-east-1", {name: f"{name}.amazonaws.com" for name in ("sts", "iam", "s3")})
_GOVERNMENT = _Partition("AWS GovCloud", "us-gov-west-1", {"iam": "iam.us-gov.amazonaws.com"})
_CHINA = _Partition("AWS China", "cn-north-1", suffix="amazonaws.com.cn")


async def check_aws_key(
    attempt: Attempt, *, signature_retry_delay: float = _SIGNATURE_RETRY_DELAY
) -> Verdict:
    """Ask STS for the owner of an AWS access key and return the verdict; a valid one has the services found.

    Return `unvalidated` if a part of the key was not found, `unreachable` if there is no response. A
    signature that AWS refuses is sent once more after `signature_retry_delay` seconds. A valid verdict is
    stored in `attempt.proven` before services are requested.
    """
    try:
        key = read_access_key(attempt)
    except UncheckableError as reason:
        return unvalidated(str(reason))
    region = attempt.companion("region")
    partition = _partition_of(region or "")
    client = _AwsClient(attempt, key, partition)
    try:
        response = await client.send(_CALLER_IDENTITY)
        if b"<Code>SignatureDoesNotMatch<" in response.body:
            await asyncio.sleep(signature_retry_delay)
            response = await client.send(_CALLER_IDENTITY)
    except HttpError as failure:
        return unreachable(f"the issuer cannot be reached: {failure}")
    verdict = judge(response, attempt.check.answer)
    if verdict.status is Validation.INVALID and b"<Code>InvalidClientTokenId<" in response.body:
        return _unknown_key(partition, is_region_known=region is not None)
    if verdict.status is not Validation.VALID:
        return verdict
    arn = _xml_text(response, "Arn")
    verdict = replace(verdict, reason=f"STS accepts the key: {_describe_owner(arn)}")
    owner_label = "aws_root" if arn.endswith(":root") else "aws_identity"
    attempt.proven = with_services(verdict, [owner_label])
    return with_services(verdict, {owner_label} | await _find_services(client, arn))


def _partition_of(region: str) -> _Partition:
    """Return the partition of an AWS region; the commercial one for "" and unknown regions."""
    if region.startswith("cn-"):
        return _CHINA
    return _GOVERNMENT if region.startswith("us-gov-") else _COMMERCIAL


def _unknown_key(partition: _Partition, *, is_region_known: bool) -> Verdict:
    """Return the `invalid` verdict on an access key that does not exist in the partition.

    `is_region_known` says that a region was found with the key. Without one, the key may belong to another
    partition, so the confidence is medium instead of high.
    """
    if is_region_known:
        return invalid(f"{partition.name} does not know this key")
    return invalid(
        f"{partition.name} does not know this key; China and GovCloud, which have other keys, were not asked",
        Confidence.MEDIUM,
    )


@dataclass(frozen=True, slots=True)
class _AwsClient:
    """Sends signed requests to the services of one partition with one key."""

    attempt: Attempt
    key: AwsAccessKey
    partition: _Partition

    async def send(self, query: _Query, *, after_verdict: bool = False) -> HttpResponse:
        """Sign and send a query, and return the response; raise HttpError if there is none.

        `after_verdict` shortens the time limit, for queries that only add services to a known verdict.
        """
        method, headers, body = _method_headers_body(query)
        url = f"https://{self.partition.host_of(query.service)}{query.path}"
        signed_headers = sign_request(
            self.key,
            method,
            url,
            headers,
            body,
            service=query.service,
            region=self.partition.region,
            now=clock.now(),
        )
        return await self.attempt.send(
            method, url, headers=signed_headers, body=body or None, after_verdict=after_verdict
        )


def _method_headers_body(query: _Query) -> tuple[str, dict[str, str], bytes]:
    """Return the HTTP method, the headers and the body of a query, before it is signed."""
    if query.target:
        version = "1.0" if query.target.startswith("DynamoDB") else "1.1"
        headers = {"X-Amz-Target": query.target, "Content-Type": f"application/x-amz-json-{version}"}
        return "POST", headers, b"{}"
    if query.form:
        headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
        return "POST", headers, query.form.encode()
    return "GET", {}, b""


async def _find_services(client: _AwsClient, arn: str) -> set[str]:
    """Return a label for each AWS service that answers its query with status 200 within AWS_SERVICES_SECONDS.

    `arn` is the key's owner: for a user, the attached policies are queried too. The label `aws_admin` is
    added if they include AdministratorAccess. The labels are also added to `attempt.proven` as they are
    found.
    """
    attempt = client.attempt
    labels: set[str] = set()

    async def query_service(query: _Query) -> None:
        """Send a query; if the answer has status 200 and is not HTML, add the query's label to `labels`.

        Add `aws_admin` too if the answer lists the policy AdministratorAccess. All labels so far are added to
        the proven verdict.
        """
        try:
            response = await client.send(query, after_verdict=True)
        except HttpError:
            return
        if response.status == _OK and response.media_type != "text/html":
            labels.add(query.label)
            if _ADMINISTRATOR.search(response.body):
                labels.add("aws_admin")
            if attempt.proven:
                attempt.proven = with_services(attempt.proven, {*attempt.proven.services, *labels})

    queries = list(_SERVICE_QUERIES)
    if ":user/" in arn:
        user_name = quote(arn.rpartition("/")[2], safe="")
        queries.append(_USER_POLICIES._replace(form=_USER_POLICIES.form + user_name))
    try:
        async with asyncio.timeout(AWS_SERVICES_SECONDS):
            await asyncio.gather(*(query_service(query) for query in queries))
    except TimeoutError:
        pass  # the services that have answered by then count
    return labels


def _xml_text(response: HttpResponse, tag: str) -> str:
    """Return the text of the first element `<tag>` in the body, or "" if there is none.

    An element counts only if its text has 1 to 2,048 characters, all printable ASCII, and no spaces.
    """
    element = re.search(rf"<{tag}>([\x21-\x7e]{{1,2048}}?)</{tag}>".encode(), response.body)
    return element[1].decode() if element else ""


def _describe_owner(arn: str) -> str:
    """Describe the owner of a key by its kind and account number, such as "a user of account 123456789012".

    `arn` is the owner's ARN; the names in it, which people chose, are left out. The result is "an unnamed
    principal" for an ARN of another form.
    """
    principal = _PRINCIPAL_ARN.fullmatch(arn)
    return f"{_PRINCIPALS[principal[2]]} of account {principal[1]}" if principal else "an unnamed principal"
