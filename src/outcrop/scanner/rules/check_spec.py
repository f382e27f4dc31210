"""What a rule file says about asking the issuer: a request, what each answer means, and what else the credential opens."""

import tomllib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    field_validator,
    model_validator,
)

from outcrop.scanner.patterns.re2_match import compile_regex
from outcrop.scanner.rules.model import BUILT_IN_RULES

Result = Literal["valid", "invalid", "error"]
Level = Literal["high", "medium", "low"]
Label = Annotated[str, Field(pattern=r"^[a-z0-9]+(?:_[a-z0-9]+)*$", max_length=80)]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class AnswerCondition(_Shape):
    """All that is given must hold of an answer."""

    status: list[int] = []
    contains: str | None = None
    lacks: str | None = None
    json_: dict[str, Any] = Field({}, alias="json")  # a dotted path → its value; "*" is any but null
    header: dict[str, str] = {}  # a name → what its value contains


class AnswerSpec(AnswerCondition):
    """What an answer says of the credential."""

    result: Result
    confidence: Level = "high"
    reason: str = Field(min_length=1, max_length=200)
    test_mode: bool = False  # the answer says that the credential only works with made-up data

    @model_validator(mode="after")
    def _says_when(self) -> Self:
        if not (self.status or self.contains or self.json_ or self.header):
            raise ValueError("an answer needs a condition: status, contains, json or header")
        return self


class ShortAnswerSpec(AnswerCondition):
    """A meaning in short: the condition, and the body of an answer that fulfils it."""

    confidence: Level = "high"
    reply: str = Field(min_length=1)

    def meaning(self, result: Result, status: int, reason: str) -> tuple[AnswerSpec, "RecordedReply"]:
        """Write it out, with the usual status and reason."""
        given = self.model_dump(by_alias=True, exclude_unset=True, exclude={"reply"}) | {"result": result}
        media = "application/json" if self.reply[0] in "{[" else "text/plain"
        answered = {
            "status": (self.status or [status])[0],
            "headers": {"Content-Type": media},
            "body": self.reply,
        }
        recorded = {"name": result, "result": result, "confidence": self.confidence} | answered
        return AnswerSpec.model_validate(
            {"status": [status], "reason": reason} | given
        ), RecordedReply.model_validate(recorded)


class RequestSpec(_Shape):
    """`{secret}` and `{part.NAME}` are replaced by what was found, written so that they cannot become anything else."""

    url: str = ""
    method: Literal["GET", "POST", "HEAD"] = "GET"
    headers: dict[str, str] = {}
    basic: Annotated[tuple[str, str] | None, Field(strict=False)] = None  # TOML has lists only
    form: dict[str, str] = {}
    send: dict[str, Any] = {}  # a JSON body
    body: str = ""


class LabelListSpec(_Shape):
    """Labels made from a list that the answer holds."""

    json_: str = Field("", alias="json")  # the dotted path of a list of texts, or of objects with `key`
    key: str = ""
    header: str = ""
    by: str = ","
    prefix: str = Field("", max_length=40)
    names: dict[str, Label] = {}  # what an entry is called; others are left out where `only` is true
    only: bool = False


class CapabilitySpec(RequestSpec, AnswerCondition):
    """A further question, or with no address the check's own answer, that tells what the credential opens."""

    labels: list[Label] = []
    each: LabelListSpec | None = None


class RecordedReply(_Shape):
    """An answer as the issuer gives it, for the tests: what must come of it."""

    name: str = ""
    status: int = 200
    headers: dict[str, str] = {}
    body: str = ""
    further: dict[
        str, Annotated[tuple[int, str], Field(strict=False)]
    ] = {}  # the path of a capability's request → status and body
    result: Literal["valid", "invalid", "error", "unreachable", "unvalidated"]
    confidence: Level | None = None
    labels: list[str] = []
    test_mode: bool = False


_LIVE: tuple[Result, int, str] = ("valid", 200, "its issuer accepts it")
_DEAD: tuple[Result, int, str] = ("invalid", 401, "its issuer refuses it")


class CheckSpec(RequestSpec):
    """How a credential is checked. `named` is a check in Python, for what a request cannot say."""

    named: str | None = None
    unasked: str = Field("", max_length=200)  # why nobody can be asked about this form, in words
    needs: list[str] = []  # parts without which nothing can be asked
    otherwise: dict[str, str] = {}  # what a part is taken to be where none was found
    given_host: bool = False  # the host comes from the scanned text, and may be anybody's
    hosts: list[
        str
    ] = []  # the issuer's own domains: a host from the text that is one of these, or below one, is safe to ask
    only: str = ""  # a pattern that the credential begins with: the check is for this form alone
    billed: bool = False
    test_mode: list[str] = []  # beginnings of keys, or of a companion, that only work with made-up data
    answer: list[AnswerSpec] = []
    capability: list[CapabilitySpec] = []
    reply: list[RecordedReply] = []
    live: ShortAnswerSpec | None = None
    dead: ShortAnswerSpec | None = None

    @model_validator(mode="after")
    def _written_out(self) -> Self:
        """Put what is said in short after what is said at length."""
        short = [
            one.meaning(*how) for one, how in ((self.live, _LIVE), (self.dead, _DEAD)) if one is not None
        ]
        if not short:
            return self
        made = {
            "answer": [*self.answer, *(a for a, _ in short)],
            "reply": [*self.reply, *(r for _, r in short)],
            "live": None,
            "dead": None,
        }
        return self.model_copy(update=made)

    @field_validator("only")
    @classmethod
    def _can_be_matched(cls, pattern: str) -> str:
        compile_regex(pattern)
        return pattern

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.unasked:
            return self
        if self.named is None and not (self.url and self.answer):
            raise ValueError("a check needs a url and answers, or the name of a check in Python")
        if self.named is None and not (
            self.url.startswith("https://") or ((self.given_host or self.hosts) and self.url.startswith("{"))
        ):
            raise ValueError("url: a check asks over https")
        return self


Checks = Annotated[
    tuple[CheckSpec, ...],
    BeforeValidator(lambda given: tuple(given) if isinstance(given, list) else (given,)),
]
_CHECKS: TypeAdapter[tuple[CheckSpec, ...]] = TypeAdapter(Checks)


@lru_cache(maxsize=4096)  # more than there are rule files: each is read once
def _checks_in(file: str) -> dict[str, tuple[CheckSpec, ...]]:
    data = tomllib.loads(Path(file).read_text("utf-8"))
    return {rule["id"]: _CHECKS.validate_python(rule["check"]) for rule in data["rule"] if "check" in rule}


def load_checks(rule_id: str, origin: str) -> tuple[CheckSpec, ...]:
    """Read a rule's checks from the file that the rule came from; none where it has none, or the file is gone."""
    file, _, _ = origin.rpartition(":")
    if not Path(file).exists():  # compiled by another installation of the same rules
        file = str(BUILT_IN_RULES / Path(file).name)
    try:
        return _checks_in(file).get(rule_id, ())
    except (OSError, ValueError, KeyError):
        return ()


def choose_check(checks: Sequence[CheckSpec], secret: str) -> CheckSpec | None:
    """Choose the check for a credential of this form: the first that is for it, or for any."""
    value = secret.encode("utf-8", "surrogateescape")
    return next((check for check in checks if not check.only or compile_regex(check.only).match(value)), None)
