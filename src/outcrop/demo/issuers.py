"""Stand-ins for the issuers. They answer with the replies that are recorded in the rule files.

They know only the made-up credentials of the demo, and every response says that it comes from a stand-in.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from outcrop.demo.planted import Fate, PlantedCredential
from outcrop.scanner.rules.check_spec import CheckSpec, RecordedReply, choose_check, load_checks
from outcrop.scanner.rules.model import BUILT_IN_RULES

_JSON = {"Content-Type": "application/json"}
_XML = {"Content-Type": "text/xml"}
_UNKNOWN = b'{"message": "a stand-in of the Outcrop demo: it knows only the made-up credentials"}'

_AWS_OPENS = ("s3", "ec2.us-east-1", "lambda.us-east-1", "sqs.us-east-1")
_AWS_REFUSES = (
    "iam",
    *(f"{name}.us-east-1" for name in ("sns", "rds", "dynamodb", "kms", "secretsmanager", "api.ecr", "ssm")),
)
_AWS_IDENTITY = (
    b"<GetCallerIdentityResult><Arn>arn:aws:iam::123456789012:user/deploy</Arn></GetCallerIdentityResult>"
)


@dataclass(frozen=True, slots=True)
class IssuerRequest:
    """A request to an issuer."""

    host: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class IssuerResponse:
    """A response of an issuer; `down` means that the connection is closed without one."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: _JSON)
    body: bytes = b"{}"
    down: bool = False


class Issuers:
    """All issuers of the planted credentials, which are given by value."""

    def __init__(self, planted: Mapping[str, PlantedCredential]) -> None:
        self._planted = {
            value: credential for value, credential in planted.items() if credential.fate is not Fate.UNASKED
        }
        self._checks = {value: _check(credential.rule, value) for value, credential in self._planted.items()}

    @property
    def hosts(self) -> set[str]:
        """Return the host names that the checks of the planted credentials contact."""
        hosts = {f"{name}.amazonaws.com" for name in ("sts", *_AWS_OPENS, *_AWS_REFUSES)}
        for check in self._checks.values():
            hosts |= {
                urlsplit(url).hostname or ""
                for url in (check.url, *(probe.url for probe in check.capability))
            } | set(check.hosts)
        return {host for host in hosts if host and "{" not in host}

    def answer(self, request: IssuerRequest) -> IssuerResponse:
        """Return the response to a request, by the fate of the credential in it."""
        value = self._find_credential(request)
        if value is None:
            return IssuerResponse(401, body=_UNKNOWN)
        check = self._checks[value]
        match self._planted[value].fate:
            case Fate.DOWN:
                return IssuerResponse(down=True)
            case Fate.FAULT:
                return IssuerResponse(503, body=b'{"message": "the stand-in simulates an internal error"}')
            case _ if check.named is not None:
                return _aws(request)
            case fate:
                return _play(check, _reply(check, fate), request)

    def _find_credential(self, request: IssuerRequest) -> str | None:
        """Return the planted credential in a request: in a header, the URL, a basic login or the body."""
        texts = [
            unquote(request.path),
            unquote(request.query),
            unquote(request.body.decode("utf-8", "replace")),
        ]
        for value in request.headers.values():
            texts += [value, _login(value)]
        everything = "\n".join([f"https://{request.host}{request.path}", *texts])
        return next((value for value in self._planted if value in everything), None)


def _check(rule: str, value: str) -> CheckSpec:
    """Return the check of a rule that applies to this value; raise LookupError if there is none."""
    for file in sorted(BUILT_IN_RULES.glob("*.toml")):
        if (
            f'id = "{rule}"' in file.read_text("utf-8")
            and (check := choose_check(load_checks(rule, f"{file}:1"), value)) is not None
        ):
            return check
    raise LookupError(rule)


def _reply(check: CheckSpec, fate: Fate) -> RecordedReply:
    """Return the recorded reply for a fate: the first that fits; for NARROW the second valid one."""
    recorded = [
        reply for reply in check.reply if reply.result == ("invalid" if fate is Fate.DEAD else "valid")
    ]
    return recorded[1 if fate is Fate.NARROW and len(recorded) > 1 else 0]


def _play(check: CheckSpec, reply: RecordedReply, request: IssuerRequest) -> IssuerResponse:
    """Return the response to the check's first request or to one of its capability requests."""
    first = urlsplit(check.url).path or "/"
    if request.path in reply.further:
        status, body = reply.further[request.path]
        return IssuerResponse(status, body=body.encode())
    if "{" not in first and request.path != first:
        return IssuerResponse(403)
    return IssuerResponse(reply.status, reply.headers, reply.body.encode())


def _aws(request: IssuerRequest) -> IssuerResponse:
    """Return the response of an AWS endpoint: the identity, or whether the service is allowed."""
    name = request.host.removesuffix(".amazonaws.com")
    if name == "sts":
        return IssuerResponse(200, _XML, _AWS_IDENTITY)
    return (
        IssuerResponse(200, _XML, b"<ok/>")
        if name in _AWS_OPENS
        else IssuerResponse(403, _XML, b"<Error><Code>AccessDenied</Code></Error>")
    )


def _login(header: str) -> str:
    """Return the decoded login of a basic authorization header, or an empty text."""
    scheme, _, rest = header.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(rest, validate=True).decode("utf-8", "replace")
    except binascii.Error:
        return ""
