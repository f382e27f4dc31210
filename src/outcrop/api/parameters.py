"""Parse query parameters strictly. The same models describe them in `/openapi.json`."""

import math
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote_to_bytes
from uuid import UUID

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from outcrop.api import numbers
from outcrop.api.errors import ParameterError
from outcrop.api.shapes import EXTENSION, Extension
from outcrop.domain.finding import FindingContext, Severity, SourceType, Status, Validation, Visibility
from outcrop.domain.ids import ID_FORM, parse_id
from outcrop.domain.incident import UNASSIGNED
from outcrop.domain.paging import FindingQuery, OrderBy, OrderDir
from outcrop.domain.scan import ScanType
from outcrop.lazy_regex import regex
from outcrop.limits import NOTE_LENGTH, QUERY_LENGTH, QUERY_TERMS

_BLANK_IS_ABSENT = {"q", "note", "service"}
_NOBODY = UUID(int=0)  # used for a text that is no id: no run and no incident has it
_NEVER_ECHOED = {"note", "text"}  # they may contain a credential
_MAX_ECHOED = 200  # a longer invalid value is not repeated in the response

M = TypeVar("M", bound=BaseModel)


def _integer(text: object) -> int:
    """Parse a whole number of any size."""
    if isinstance(text, str) and (number := numbers.integer(text)) is not None:
        return number
    raise PydanticCustomError(
        "int_parsing", "Input should be a valid integer, unable to parse string as an integer"
    )


def _number(text: object) -> float:
    """Parse a finite number as a lower bound."""
    if isinstance(text, str) and (number := numbers.bound(text)) is not None and math.isfinite(number):
        return number
    raise PydanticCustomError(
        "float_parsing", "Input should be a valid number, unable to parse string as a number"
    )


def _boolean(text: object) -> bool:
    """Parse `true` or `false`."""
    if text in {"true", "false"}:
        return text == "true"
    raise PydanticCustomError("bool_parsing", "Input should be true or false")


# Matches exactly the dates that exist. The same pattern parses a date and describes it in `/openapi.json`.
_YEAR = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DAY = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP_YEAR}-02-29)"
)
_HOUR_MINUTE = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_SECOND = "[0-5][0-9]"
_FRACTION = r"\.[0-9]+"
_DATE = regex(
    f"(?P<day>{_DAY})(?:[Tt ](?P<minute>{_HOUR_MINUTE})(?::(?P<second>{_SECOND})(?P<fraction>{_FRACTION})?)?"
    f"(?P<offset>[Zz]|[+ -]{_HOUR_MINUTE})?)?"
)
_DATE_SCHEMA = {
    "anyOf": [
        {"type": "string", "format": "date", "pattern": f"^{_DAY}$"},
        {
            "type": "string",
            "format": "date-time",
            "pattern": f"^{_DAY}[Tt]{_HOUR_MINUTE}:{_SECOND}(?:{_FRACTION})?(?:[Zz]|[+-]{_HOUR_MINUTE})$",
        },
        {
            "type": "string",
            "pattern": f"^{_DAY}[Tt ]{_HOUR_MINUTE}(?::{_SECOND}(?:{_FRACTION})?)?"
            f"(?:[Zz]|[+ -]{_HOUR_MINUTE})?$",
            "description": "Without an offset the time is UTC. A space in place of `+` is accepted.",
        },
    ]
}


_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def _moment(text: object) -> date | datetime:
    """Parse `YYYY-MM-DD` or RFC 3339.

    Without an offset the time is UTC. A space in place of `+` is accepted: URL decoding makes one of it.
    """
    if not isinstance(text, str) or (match := _DATE.fullmatch(text)) is None:
        raise PydanticCustomError(
            "datetime_parsing", "Input should be a date (YYYY-MM-DD) or a date and time (RFC 3339)"
        )
    if match["minute"] is None:
        return date.fromisoformat(text)
    offset = (match["offset"] or "Z").upper().replace(" ", "+").replace("Z", "+00:00")
    moment = datetime.fromisoformat(f"{match['day']}T{match['minute']}:{match['second'] or '00'}{offset}")
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:  # in UTC the time is before year 1 or after year 9999
        return _FIRST if offset.startswith("+") else _LAST
    # Times are stored in whole seconds, so it only matters that the fraction is not zero.
    return moment.replace(microsecond=1) if (match["fraction"] or "").strip(".0") else moment


# The white space of `str.split`; that of JSON Schema differs in a few characters.
_SPACE = r"\u0009-\u000d\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_TERM = rf"[^\u0000{_SPACE}]+"
_TERMS_PATTERN = rf"^[{_SPACE}]*(?:{_TERM}(?:[{_SPACE}]+{_TERM}){{0,{QUERY_TERMS - 1}}}[{_SPACE}]*)?$"
NO_NUL = r"^[^\u0000]*$"


def _terms(text: str) -> tuple[str, ...]:
    """Split a search text at white space; reject too many terms."""
    terms = tuple(text.split())
    if len(terms) > QUERY_TERMS:
        raise PydanticCustomError(
            "too_many_terms", "Input should have at most {limit} terms", {"limit": QUERY_TERMS}
        )
    return terms


# In each type the bounds come before the validator: only then does pydantic describe them.
READ_INTEGER = BeforeValidator(_integer)
Boolean = Annotated[bool, BeforeValidator(_boolean)]
Moment = Annotated[date | datetime, BeforeValidator(_moment), WithJsonSchema(_DATE_SCHEMA)]
Text = Annotated[str, WithJsonSchema({"type": "string", "pattern": NO_NUL})]
Note = Annotated[
    str,
    Field(max_length=NOTE_LENGTH),
    WithJsonSchema({"type": "string", "maxLength": NOTE_LENGTH, "pattern": NO_NUL}),
]
Value = Annotated[
    str,
    Field(min_length=1),
    WithJsonSchema({"type": "string", "minLength": 1, "pattern": NO_NUL}),
]
Terms = Annotated[
    str,
    Field(max_length=QUERY_LENGTH),
    AfterValidator(_terms),
    WithJsonSchema({"type": "string", "maxLength": QUERY_LENGTH, "pattern": _TERMS_PATTERN}),
]
Score = Annotated[float, Field(ge=0, le=100), BeforeValidator(_number)]
PageNumber = Annotated[int, Field(ge=1), READ_INTEGER]
Absent = SkipJsonSchema[None]


class Parameters(BaseModel):
    """Base of the models of query parameters."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class FindingParameters(Parameters):
    status: Status | Absent = Field(
        None, description="Findings with this status; `active` excludes suppressed findings."
    )
    source_type: SourceType | Absent = Field(None, description="Where the credential was found.")
    validation: Validation | Absent = Field(None, description="Result of validation (`validation_status`).")
    suppressed: Extension[Boolean | Absent] = Field(
        None, description="Only suppressed findings, or only those that are not."
    )
    service: Text | Absent = Field(
        None, description="A label of `validation_detail.enabled_services`, exactly."
    )
    min_score: Score | Absent = Field(None, description="At least this `composite_score`.")
    date_from: Moment | Absent = Field(
        None, description="First seen on or after; a date is the whole UTC day."
    )
    date_to: Moment | Absent = Field(
        None, description="First seen on or before; a date is the whole UTC day."
    )
    updated_since: Extension[Moment | Absent] = Field(
        None, description="Changed at or after; a date is the start of the UTC day. See `updated_at`."
    )
    severity: Extension[Severity | Absent] = Field(None, description="Range of `composite_score`.")
    secret_type: Extension[Value | Absent] = Field(None, description="`pattern.secret_type`, exactly.")
    rule: Extension[Value | Absent] = Field(None, description="Id of the rule, exactly.")
    repo: Extension[Value | Absent] = Field(None, description="`repo_full_name`, in upper or lower case.")
    visibility: Extension[Visibility | Absent] = Field(None, description="`source_visibility`.")
    author: Extension[Value | Absent] = Field(None, description="Author of the commit, exactly.")
    context: Extension[FindingContext | Absent] = Field(None, description="What the file is for.")
    assignee: Extension[Value | Absent] = Field(
        None, description="Address of the member who is the assignee, or `none`: nobody."
    )
    incident_id: Extension[Value | Absent] = Field(None, description="Id of an incident: its places.")
    scan: Extension[Value | Absent] = Field(
        None, description="Id of a scan run: the findings that were new in it."
    )
    q: Terms | Absent = Field(
        None, description="Words that must each stand in `source_url`, `file_path` or `repo_full_name`."
    )
    page: PageNumber = Field(1, description="1-based page.")
    per_page: Annotated[int, Field(ge=1, le=200), READ_INTEGER] = Field(25, description="Results per page.")
    order_by: OrderBy = Field(OrderBy.COMPOSITE_SCORE, description="Sort key; ties are sorted by `id`.")
    order_dir: OrderDir = Field(OrderDir.DESC, description="Sort direction.")

    def query(self) -> FindingQuery:
        """Return the parameters as a query of the domain."""
        return FindingQuery(
            status=self.status,
            source_type=self.source_type,
            validation=self.validation,
            suppressed=self.suppressed,
            service=self.service,
            min_score=self.min_score,
            seen_from=start_of(self.date_from),
            seen_before=end_of(self.date_to),
            updated_since=_floor(self.updated_since),
            severity=self.severity,
            secret_type=self.secret_type,
            rule=self.rule,
            repo=self.repo,
            visibility=self.visibility,
            context=self.context,
            author=self.author,
            assignee=assignee_of(self.assignee),
            incident_id=_reference(self.incident_id),
            scan=_reference(self.scan),
            terms=self.q or (),  # type: ignore[arg-type]  # the validator returns a tuple
            page=self.page,
            per_page=self.per_page,
            order_by=self.order_by,
            order_dir=self.order_dir,
        )


class ScanParameters(Parameters):
    type: ScanType | Absent = Field(None, description="Only runs of this type.")
    limit: Annotated[int, Field(ge=1, le=100), READ_INTEGER] = Field(20, description="Results per page.")
    page: Extension[PageNumber] = Field(1, description="1-based page.")


class NoteParameters(Parameters):
    note: Note | Absent = Field(None, description="Stored with the finding.")


def _reference(text: str | None) -> UUID | None:
    """Return the id of a filter by another record; a text that is no id matches nothing."""
    return None if text is None else parse_id(text) or _NOBODY


def assignee_of(text: str | None) -> str | None:
    """Return the assignee of a filter: an address, or the empty text for nobody."""
    return "" if text == UNASSIGNED else text


def start_of(moment: date | datetime | None) -> datetime | None:
    """Return the inclusive lower bound for `date_from`, in whole seconds."""
    if moment is None or isinstance(moment, datetime):
        # Times are stored in whole seconds, so a fraction is rounded up to the next second.
        return (
            moment
            if moment is None or moment.microsecond == 0
            else _later(moment.replace(microsecond=0), seconds=1) or _LAST
        )
    return datetime(moment.year, moment.month, moment.day, tzinfo=UTC)


def _floor(moment: date | datetime | None) -> datetime | None:
    """Return the inclusive lower bound for `updated_since`: the start of a second that may have changes."""
    return moment.replace(microsecond=0) if isinstance(moment, datetime) else start_of(moment)


def end_of(moment: date | datetime | None) -> datetime | None:
    """Return the exclusive upper bound for `date_to`; None if there is no later time."""
    if moment is None:
        return None
    if isinstance(moment, datetime):
        return _later(moment.replace(microsecond=0), seconds=1)
    return _later(datetime(moment.year, moment.month, moment.day, tzinfo=UTC), days=1)


def _later(moment: datetime, **by: int) -> datetime | None:
    """Return a later time, or None past the year 9999."""
    try:
        return moment + timedelta(**by)
    except OverflowError:
        return None


def read(model: type[M], query_string: bytes) -> M:
    """Parse the parameters of a model and ignore all others; raise ParameterError if one is invalid."""
    values: dict[str, str] = {}
    seen_names: set[str] = set()
    problems: list[dict[str, Any]] = []
    for part in query_string.split(b"&") if query_string else ():
        raw_name, _, raw = part.partition(b"=")
        name = unquote_to_bytes(raw_name.replace(b"+", b" ")).decode("utf-8", "replace")
        if name not in model.model_fields:
            continue
        try:
            text = unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8")
        except UnicodeDecodeError:
            problems.append(_problem(name, "string_unicode", "Input should be valid UTF-8"))
            continue
        if name in seen_names:
            problems.append(_problem(name, "duplicate_parameter", "Input should be given once"))
        elif "\0" in text:
            problems.append(_problem(name, "string_nul", "Input should not contain a NUL character"))
        elif text or name not in _BLANK_IS_ABSENT:
            values[name] = text
        seen_names.add(name)
    if problems:
        raise ParameterError(problems)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        # An optional parameter is a union with None; the error that it is not None is noise.
        raise ParameterError(
            [_error_detail(e) for e in error.errors(include_url=False) if e["type"] != "none_required"]
        ) from None


def _problem(name: str, type_: str, msg: str) -> dict[str, Any]:
    """Return one entry of the 422 body for a query parameter."""
    return {"loc": ["query", name], "msg": msg, "type": type_}


def _error_detail(error: Any) -> dict[str, Any]:
    """Return one of pydantic's errors for the 422 body. A typed text or a very long value is not repeated."""
    name = str(error["loc"][0])
    detail = _problem(name, error["type"], error["msg"])
    if name not in _NEVER_ECHOED and isinstance(error["input"], str) and len(error["input"]) <= _MAX_ECHOED:
        detail["input"] = error["input"]
    if error.get("ctx"):
        detail["ctx"] = {
            key: str(value) if isinstance(value, Exception) else value for key, value in error["ctx"].items()
        }
    return detail


def finding_id(text: str) -> UUID:
    """Parse the path parameter `finding_id`; raise ParameterError if it is not a UUID."""
    return parse_path_id("finding_id", text)


def parse_path_id(name: str, text: str) -> UUID:
    """Parse the path parameter `name`; raise ParameterError if it is not a UUID."""
    if (id_ := parse_id(text)) is None:
        raise ParameterError(
            [
                {
                    "loc": ["path", name],
                    "msg": "Input should be a UUID in its 36-character form",
                    "type": "uuid_parsing",
                }
            ]
        )
    return id_


# --- description for /openapi.json

UUID_SCHEMA = {"type": "string", "format": "uuid", "pattern": f"^{ID_FORM.pattern}$"}
FINDING_ID = {"name": "finding_id", "in": "path", "required": True, "schema": UUID_SCHEMA}
SCAN_ID = {"name": "scan_id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def described(model: type[BaseModel]) -> list[dict[str, Any]]:
    """Return the OpenAPI descriptions of a model's fields as query parameters."""
    schema = model.model_json_schema()
    outside = {"description", "title", "default", *EXTENSION}
    described = []
    for name, field in schema["properties"].items():
        inner = {key: value for key, value in field.items() if key not in outside}
        if "$ref" in inner:
            inner = {
                k: v
                for k, v in schema["$defs"][inner["$ref"].rsplit("/", 1)[1]].items()
                if k not in {"title", "description"}
            }
        if field.get("default") is not None:
            inner["default"] = field["default"]
        described.append(
            {
                "name": name,
                "in": "query",
                "required": name in schema.get("required", ()),
                "description": field["description"],
                "schema": inner,
            }
            | {key: field[key] for key in EXTENSION if key in field}
        )
    return described
