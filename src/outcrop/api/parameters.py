"""Parameters: read strictly from the raw query string, validated once, described for `/openapi.json` by the same models."""

import math
import re
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote_to_bytes
from uuid import UUID

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from outcrop.api.errors import ParameterError
from outcrop.domain.finding import NOTE_LENGTH, SourceType, Status, Validation
from outcrop.domain.paging import FindingQuery, OrderBy, OrderDir
from outcrop.domain.scan import ScanType

QUERY_LENGTH = 1000
QUERY_TERMS = 16
_BLANK_IS_ABSENT = {"q", "note", "service"}
_ECHOED = 200  # characters of a wrong value that are sent back
_DIGITS_OF_A_HUGE_NUMBER = 1000  # beyond any page there can be; Python refuses to read far longer ones

M = TypeVar("M", bound=BaseModel)


def _integer(text: object) -> int:
    if not isinstance(text, str) or re.fullmatch(r"-?[0-9]+", text) is None:
        raise PydanticCustomError("int_parsing", "Input should be a valid integer, unable to parse string as an integer")
    return int(text[:_DIGITS_OF_A_HUGE_NUMBER])


def _number(text: object) -> float:
    if isinstance(text, str) and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", text) and math.isfinite(number := float(text)):
        return number
    raise PydanticCustomError("float_parsing", "Input should be a valid number, unable to parse string as a number")


def _boolean(text: object) -> bool:
    if text in {"true", "false"}:
        return text == "true"
    raise PydanticCustomError("bool_parsing", "Input should be true or false")


def _moment(text: object) -> date | datetime:
    """Read `YYYY-MM-DD` or RFC 3339; without an offset it is UTC, and a space stands for the plus that a URL makes of it."""
    if isinstance(text, str) and (match := _DATE.fullmatch(text)):
        try:
            if match["time"] is None:
                return date.fromisoformat(text)
            offset = (match["offset"] or "Z").upper().replace(" ", "+").replace("Z", "+00:00")
            seconds = match["time"] if len(match["time"]) > 5 else f"{match['time']}:00"
            fraction = (match["fraction"] or ".0")[:7]
            return datetime.fromisoformat(f"{match['day']}T{seconds}{fraction.ljust(7, '0')}{offset}").astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    raise PydanticCustomError("datetime_parsing", "Input should be a date (YYYY-MM-DD) or a date and time (RFC 3339)")


_DATE = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})([Tt ](?P<time>\d{2}:\d{2}(:\d{2})?)(?P<fraction>\.\d{1,9})?(?P<offset>[Zz]|[+\- ]\d{2}:\d{2})?)?", re.ASCII
)
_DATE_SCHEMA = {"anyOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}]}


def _terms(text: str) -> tuple[str, ...]:
    terms = tuple(text.split())
    if len(terms) > QUERY_TERMS:
        raise PydanticCustomError("too_many_terms", "Input should have at most {limit} terms", {"limit": QUERY_TERMS})
    return terms


Integer = Annotated[int, BeforeValidator(_integer)]
Number = Annotated[float, BeforeValidator(_number)]
Boolean = Annotated[bool, BeforeValidator(_boolean)]
Moment = Annotated[date | datetime, BeforeValidator(_moment), WithJsonSchema(_DATE_SCHEMA)]
Terms = Annotated[
    str,
    Field(max_length=QUERY_LENGTH),
    AfterValidator(_terms),
    WithJsonSchema({"type": "string", "maxLength": QUERY_LENGTH, "pattern": rf"^\s*(\S+(\s+\S+){{0,{QUERY_TERMS - 1}}}\s*)?$"}),
]
Absent = SkipJsonSchema[None]


class _Parameters(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class FindingParameters(_Parameters):
    status: Status | Absent = Field(None, description="Findings in this status; `active` leaves out suppressed ones.")
    source_type: SourceType | Absent = Field(None, description="Where the credential was found.")
    validation: Validation | Absent = Field(None, description="What the issuer said of the credential (`validation_status`).")
    suppressed: Boolean | Absent = Field(None, description="Only suppressed findings, or only those that are not.")
    service: str | Absent = Field(None, description="A label of `validation_detail.enabled_services`, exactly.")
    min_score: Annotated[Number, Field(ge=0, le=100)] | Absent = Field(None, description="At least this `composite_score`.")
    date_from: Moment | Absent = Field(None, description="First seen on or after; a date is the whole UTC day.")
    date_to: Moment | Absent = Field(None, description="First seen on or before; a date is the whole UTC day.")
    q: Terms | Absent = Field(None, description="Words that must each stand in `source_url`, `file_path` or `repo_full_name`.")
    page: Annotated[Integer, Field(ge=1)] = Field(1, description="1-based page.")
    per_page: Annotated[Integer, Field(ge=1, le=200)] = Field(25, description="Results per page.")
    order_by: OrderBy = Field(OrderBy.COMPOSITE_SCORE, description="Sort key; ties are sorted by `id`.")
    order_dir: OrderDir = Field(OrderDir.DESC, description="Sort direction.")

    def query(self) -> FindingQuery:
        return FindingQuery(
            status=self.status,
            source_type=self.source_type,
            validation=self.validation,
            suppressed=self.suppressed,
            service=self.service,
            min_score=self.min_score,
            seen_from=_start(self.date_from),
            seen_before=_end(self.date_to),
            terms=self.q or (),  # type: ignore[arg-type]  # the validator made a tuple of the text
            page=self.page,
            per_page=self.per_page,
            order_by=self.order_by,
            order_dir=self.order_dir,
        )


class ScanParameters(_Parameters):
    type: ScanType | Absent = Field(None, description="Only runs of this type.")
    limit: Annotated[Integer, Field(ge=1, le=100)] = Field(20, description="Results per page.")
    page: Annotated[Integer, Field(ge=1)] = Field(1, description="1-based page.")


class NoteParameters(_Parameters):
    note: Annotated[str, Field(max_length=NOTE_LENGTH)] | Absent = Field(None, description="Kept with the finding.")


def _start(moment: date | datetime | None) -> datetime | None:
    if moment is None or isinstance(moment, datetime):
        # Times are stored in whole seconds: nothing lies between a fraction and the next whole second.
        return moment if moment is None or moment.microsecond == 0 else _later(moment.replace(microsecond=0), seconds=1)
    return datetime(moment.year, moment.month, moment.day, tzinfo=UTC)


def _end(moment: date | datetime | None) -> datetime | None:
    if moment is None:
        return None
    if isinstance(moment, datetime):
        return _later(moment.replace(microsecond=0), seconds=1)
    return _later(datetime(moment.year, moment.month, moment.day, tzinfo=UTC), days=1)


def _later(moment: datetime, **by: int) -> datetime | None:
    """None after the last moment there is: no bound, since no finding lies behind it."""
    try:
        return moment + timedelta(**by)
    except OverflowError:
        return None


def read(model: type[M], query_string: bytes) -> M:
    """Validate the parameters that the model names; every other one is ignored."""
    values: dict[str, str] = {}
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
        if name in values:
            problems.append(_problem(name, "duplicate_parameter", "Input should be given once"))
        elif "\0" in text:
            problems.append(_problem(name, "string_nul", "Input should not contain a NUL character"))
        elif text or name not in _BLANK_IS_ABSENT:
            values[name] = text
    if problems:
        raise ParameterError(problems)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        # A parameter that may be absent is a union with None; that it is not None either is no news.
        raise ParameterError([_shown(e) for e in error.errors(include_url=False) if e["type"] != "none_required"]) from None


def _problem(name: str, type_: str, msg: str) -> dict[str, Any]:
    return {"loc": ["query", name], "msg": msg, "type": type_}


def _shown(error: Any) -> dict[str, Any]:
    """Write one of pydantic's errors; a note, or a very long value, is not sent back."""
    name = str(error["loc"][0])
    shown = _problem(name, error["type"], error["msg"])
    if name != "note" and isinstance(error["input"], str) and len(error["input"]) <= _ECHOED:
        shown["input"] = error["input"]
    if error.get("ctx"):
        shown["ctx"] = {key: str(value) if isinstance(value, Exception) else value for key, value in error["ctx"].items()}
    return shown


_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")


def finding_id(text: str) -> UUID:
    if _UUID.fullmatch(text) is None:
        raise ParameterError(
            [{"loc": ["path", "finding_id"], "msg": "Input should be a UUID in its 36-character form", "type": "uuid_parsing"}]
        )
    return UUID(text)


# --- description

_UUID_SCHEMA = {"type": "string", "format": "uuid", "minLength": 36, "maxLength": 36}
FINDING_ID = {"name": "finding_id", "in": "path", "required": True, "schema": _UUID_SCHEMA}
SCAN_ID = {"name": "scan_id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def described(model: type[BaseModel]) -> list[dict[str, Any]]:
    """Describe the model's fields as query parameters."""
    schema = model.model_json_schema()
    described = []
    for name, field in schema["properties"].items():
        inner = {key: value for key, value in field.items() if key not in {"description", "title", "default"}}
        if "$ref" in inner:
            inner = {k: v for k, v in schema["$defs"][inner["$ref"].rsplit("/", 1)[1]].items() if k not in {"title", "description"}}
        if field.get("default") is not None:
            inner["default"] = field["default"]
        described.append({"name": name, "in": "query", "required": False, "description": field["description"], "schema": inner})
    return described
