"""The `[rule.check]` tables of rule files: the request that validates a credential, the meaning of responses.

`load_checks` reads the checks of a rule from its file when a credential is validated; compiled rules do not
have them. docs/rules.md describes every key.
"""

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

AnswerResult = Literal["valid", "invalid", "error"]
ConfidenceLevel = Literal["high", "medium", "low"]
Label = Annotated[str, Field(pattern=r"^[a-z0-9]+(?:_[a-z0-9]+)*$", max_length=80)]


class _CheckTable(BaseModel):
    """A table inside `[rule.check]`; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class AnswerCondition(_CheckTable):
    """Conditions on a response; all that are given must be true."""

    status: list[int] = []
    contains: str | None = None
    lacks: str | None = None
    json_: dict[str, Any] = Field({}, alias="json")  # dotted path -> value; "*" is anything but null
    header: dict[str, str] = {}  # name -> text that its value contains


class AnswerSpec(AnswerCondition):
    """A kind of response and its meaning for the credential (`[[rule.check.answer]]`)."""

    result: AnswerResult
    confidence: ConfidenceLevel = "high"
    reason: str = Field(min_length=1, max_length=200)
    test_mode: bool = False  # the credential only works with test data

    @model_validator(mode="after")
    def _refuse_without_condition(self) -> Self:
        """Return the answer; raise ValueError if it has no condition, or only `lacks`."""
        if not (self.status or self.contains or self.json_ or self.header):
            raise ValueError("an answer needs a condition: status, contains, json or header")
        return self


class ShortAnswerSpec(AnswerCondition):
    """An answer and a recorded reply in one (`live` and `dead`): a condition and a body that meets it."""

    confidence: ConfidenceLevel = "high"
    reply: str = Field(min_length=1)

    def expand(self, result: AnswerResult, status: int, reason: str) -> tuple[AnswerSpec, "RecordedReply"]:
        """Return the answer and the recorded reply that the table is short for.

        `status` and `reason` are used unless the table has its own.
        """
        keys = self.model_dump(by_alias=True, exclude_unset=True, exclude={"reply"}) | {"result": result}
        answer = AnswerSpec.model_validate({"status": [status], "reason": reason} | keys)
        media_type = "application/json" if self.reply[0] in "{[" else "text/plain"
        reply = RecordedReply(
            name=result,
            status=(self.status or [status])[0],
            headers={"Content-Type": media_type},
            body=self.reply,
            result=result,
            confidence=self.confidence,
        )
        return answer, reply


class RequestSpec(_CheckTable):
    """A request. `{secret}` and `{part.NAME}` in its texts stand for the credential and its companions.

    They are escaped where they are inserted, so that no value can change the rest of the request.
    """

    url: str = ""
    method: Literal["GET", "POST", "HEAD"] = "GET"
    headers: dict[str, str] = {}
    basic: Annotated[tuple[str, str] | None, Field(strict=False)] = None  # a list in TOML
    form: dict[str, str] = {}
    send: dict[str, Any] = {}  # a JSON body
    body: str = ""


class LabelListSpec(_CheckTable):
    """Labels that are made from the entries of a list in the body or in a header."""

    json_: str = Field("", alias="json")  # dotted path of a list of texts, or of objects with `key`
    key: str = ""
    header: str = ""
    by: str = ","
    prefix: str = Field("", max_length=40)
    names: dict[str, Label] = {}  # entry -> label; with `only`, entries that are not here give no label
    only: bool = False


class CapabilitySpec(RequestSpec, AnswerCondition):
    """A further request that shows what the credential can access; without `url`, the first response."""

    labels: list[Label] = []
    each: LabelListSpec | None = None


class RecordedReply(_CheckTable):
    """A recorded response of the issuer, and the verdict that it must lead to, for the tests."""

    name: str = ""
    status: int = 200
    headers: dict[str, str] = {}
    body: str = ""
    # Path of a capability's request -> status and body of its response.
    further: dict[str, Annotated[tuple[int, str], Field(strict=False)]] = {}
    result: Literal["valid", "invalid", "error", "unreachable", "unvalidated"]
    confidence: ConfidenceLevel | None = None
    labels: list[str] = []
    test_mode: bool = False


# Defaults of `live` and `dead`: result, status and reason.
_LIVE: tuple[AnswerResult, int, str] = ("valid", 200, "its issuer accepts it")
_DEAD: tuple[AnswerResult, int, str] = ("invalid", 401, "its issuer refuses it")


class CheckSpec(RequestSpec):
    """The request, or check in Python, that validates a credential (`[rule.check]`)."""

    named: str | None = None  # a check in Python, for issuers that need more than a request
    unasked: str = Field("", max_length=200)  # the reason why this form of the credential cannot be validated
    needs: list[str] = []  # companions without which no request is sent
    otherwise: dict[str, str] = {}  # companion -> its value if none was found
    given_host: bool = False  # the host is from the scanned text and can be anybody's
    hosts: list[str] = []  # the issuer's own domains; a host from the text that is in one of them is trusted
    only: str = ""  # a pattern; the check is for credentials that begin with a match
    billed: bool = False
    test_mode: list[str] = []  # prefixes of keys, or of a companion, that only work with test data
    answer: list[AnswerSpec] = []
    capability: list[CapabilitySpec] = []
    reply: list[RecordedReply] = []
    live: ShortAnswerSpec | None = None
    dead: ShortAnswerSpec | None = None

    @model_validator(mode="after")
    def _expand_short_answers(self) -> Self:
        """Return the check with `live` and `dead` expanded and put after its own answers and replies."""
        defaults = ((self.live, _LIVE), (self.dead, _DEAD))
        expanded = [short.expand(*default) for short, default in defaults if short is not None]
        if not expanded:
            return self
        return self.model_copy(
            update={
                "answer": [*self.answer, *(answer for answer, _ in expanded)],
                "reply": [*self.reply, *(reply for _, reply in expanded)],
                "live": None,
                "dead": None,
            }
        )

    @field_validator("only")
    @classmethod
    def _refuse_bad_pattern(cls, pattern: str) -> str:
        """Return the pattern; raise PatternError if RE2 refuses it."""
        compile_regex(pattern)
        return pattern

    @model_validator(mode="after")
    def _refuse_without_request(self) -> Self:
        """Return the check; raise ValueError if it has neither a request nor `named` nor `unasked`.

        A request needs an `answer`, and a `url` that begins with `https://`, or with `{` if the host may be
        from the scanned text.
        """
        if self.unasked or self.named is not None:
            return self
        if not (self.url and self.answer):
            raise ValueError("a check needs url and answer, or named for a check in Python")
        has_found_host = (self.given_host or self.hosts) and self.url.startswith("{")
        if not (self.url.startswith("https://") or has_found_host):
            raise ValueError("url must begin with https://")
        return self


def _as_tuple(checks: Any) -> tuple[Any, ...]:
    """Return the checks of `[[rule.check]]`, or the single one of `[rule.check]`, as a tuple."""
    return tuple(checks) if isinstance(checks, list) else (checks,)


Checks = Annotated[tuple[CheckSpec, ...], BeforeValidator(_as_tuple)]
_CHECKS: TypeAdapter[tuple[CheckSpec, ...]] = TypeAdapter(Checks)


@lru_cache(maxsize=4096)  # more than there are rule files
def _load_file_checks(file: str) -> dict[str, tuple[CheckSpec, ...]]:
    """Return the checks of all rules in a file that have some, by the id of the rule; the result is cached.

    Raise OSError if the file cannot be read, and ValueError or KeyError if it is wrong.
    """
    data = tomllib.loads(Path(file).read_text("utf-8"))
    return {rule["id"]: _CHECKS.validate_python(rule["check"]) for rule in data["rule"] if "check" in rule}


def load_checks(rule_id: str, origin: str) -> tuple[CheckSpec, ...]:
    """Return the checks of a rule, read from the file of its `origin` ("file:line"); () if it has none.

    If there is no such file, the built-in file of the same name is read. () also if no file can be read.
    """
    file, _, _ = origin.rpartition(":")
    if not Path(file).exists():  # the rules were compiled by another installation
        file = str(BUILT_IN_RULES / Path(file).name)
    try:
        return _load_file_checks(file).get(rule_id, ())
    except (OSError, ValueError, KeyError):
        return ()


def choose_check(checks: Sequence[CheckSpec], secret: str) -> CheckSpec | None:
    """Return the first check whose pattern `only` matches the beginning of the secret, or that has no `only`.

    None if there is no such check.
    """
    value = secret.encode("utf-8", "surrogateescape")
    return next((check for check in checks if not check.only or compile_regex(check.only).match(value)), None)
