"""Stand-ins for the issuers: what was decided of a planted credential is answered in the words that its rule file has recorded.

They know nothing but the made-up credentials, and every answer says what it comes from.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from outcrop.demo.planted import Fate, Planted
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
_AWS_WHO = (
    b"<GetCallerIdentityResult><Arn>arn:aws:iam::123456789012:user/deploy</Arn></GetCallerIdentityResult>"
)


@dataclass(frozen=True, slots=True)
class Question:
    host: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Said:
    """An answer; none at all where the issuer is down."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: _JSON)
    body: bytes = b"{}"
    down: bool = False


class Issuers:
    def __init__(self, planted: Mapping[str, Planted]) -> None:
        self._planted = {value: one for value, one in planted.items() if one.fate is not Fate.UNASKED}
        self._checks = {value: _check(one.rule, value) for value, one in self._planted.items()}

    @property
    def hosts(self) -> set[str]:
        """Give the names that stand-ins answer for: those that the checks of the planted credentials ask, and no others."""
        found = {f"{name}.amazonaws.com" for name in ("sts", *_AWS_OPENS, *_AWS_REFUSES)}
        for check in self._checks.values():
            found |= {
                urlsplit(url).hostname or "" for url in (check.url, *(one.url for one in check.capability))
            } | set(check.hosts)
        return {host for host in found if host and "{" not in host}

    def answer(self, question: Question) -> Said:
        value = self._asked_about(question)
        if value is None:
            return Said(401, body=_UNKNOWN)
        check = self._checks[value]
        match self._planted[value].fate:
            case Fate.DOWN:
                return Said(down=True)
            case Fate.FAULT:
                return Said(503, body=b'{"message": "the stand-in is told to have a fault"}')
            case _ if check.named is not None:
                return _aws(question)
            case fate:
                return _play(check, _reply(check, fate), question)

    def _asked_about(self, question: Question) -> str | None:
        """Find the credential that a request carries, wherever its issuer wants it: a header, the address, a login or the body."""
        texts = [
            unquote(question.path),
            unquote(question.query),
            unquote(question.body.decode("utf-8", "replace")),
        ]
        for value in question.headers.values():
            texts += [value, _login(value)]
        everything = "\n".join([f"https://{question.host}{question.path}", *texts])
        return next((value for value in self._planted if value in everything), None)


def _check(rule: str, value: str) -> CheckSpec:
    for file in sorted(BUILT_IN_RULES.glob("*.toml")):
        if (
            f'id = "{rule}"' in file.read_text("utf-8")
            and (check := choose_check(load_checks(rule, f"{file}:1"), value)) is not None
        ):
            return check
    raise LookupError(rule)


def _reply(check: CheckSpec, fate: Fate) -> RecordedReply:
    """Choose among what is recorded: the first of its kind, or where it opens less, the second."""
    recorded = [
        reply for reply in check.reply if reply.result == ("invalid" if fate is Fate.DEAD else "valid")
    ]
    return recorded[1 if fate is Fate.NARROW and len(recorded) > 1 else 0]


def _play(check: CheckSpec, reply: RecordedReply, question: Question) -> Said:
    """Answer the check, and what is asked further about what the credential opens."""
    first = urlsplit(check.url).path or "/"
    if question.path in reply.further:
        status, body = reply.further[question.path]
        return Said(status, body=body.encode())
    if "{" not in first and question.path != first:
        return Said(403)
    return Said(reply.status, reply.headers, reply.body.encode())


def _aws(question: Question) -> Said:
    name = question.host.removesuffix(".amazonaws.com")
    if name == "sts":
        return Said(200, _XML, _AWS_WHO)
    return (
        Said(200, _XML, b"<ok/>")
        if name in _AWS_OPENS
        else Said(403, _XML, b"<Error><Code>AccessDenied</Code></Error>")
    )


def _login(header: str) -> str:
    scheme, _, rest = header.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(rest, validate=True).decode("utf-8", "replace")
    except binascii.Error:
        return ""
