"""Define and validate the fields of an imported finding, in the shape of the API."""

from dataclasses import MISSING
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    create_model,
)
from pydantic_core import PydanticCustomError

from outcrop.domain.finding import Confidence, SourceType, Status, Validation, Visibility
from outcrop.domain.finding_fields import FINDING_FIELDS, FindingField
from outcrop.domain.ids import parse_id
from outcrop.limits import IMPORT_FIELD_NESTING, NOTE_LENGTH

_MAX_INT4 = 2**31 - 1  # the largest integer of the database columns


def _check_nul(text: str) -> str:
    """Return the text; raise if it contains a NUL character, which PostgreSQL cannot store."""
    if "\0" in text:
        raise PydanticCustomError("string_nul", "contains a NUL character")
    return text


def _parse_time(value: object) -> datetime:
    """Parse an ISO 8601 time, in UTC if it has no offset; fractions of a second are dropped."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
            return moment.replace(microsecond=0)
        except (ValueError, OverflowError):
            pass
    raise PydanticCustomError("datetime_parsing", "should be a time in ISO 8601")


def _parse_uuid(value: object) -> UUID:
    """Parse a UUID in its 36-character form."""
    if isinstance(value, str) and (id_ := parse_id(value)) is not None:
        return id_
    raise PydanticCustomError("uuid_parsing", "should be a UUID in its 36-character form")


def _check_depth(value: object) -> object:
    """Return the JSON value; raise if it is nested deeper than IMPORT_FIELD_NESTING."""
    if not _has_depth(value, IMPORT_FIELD_NESTING):
        raise PydanticCustomError(
            "too_deep", "is nested more than {deepest} deep", {"deepest": IMPORT_FIELD_NESTING}
        )
    return value


def _has_depth(value: object, levels: int) -> bool:
    """Whether a JSON value is nested at most `levels` deep; deeper levels are not visited."""
    if not isinstance(value, dict | list):
        return True
    if levels == 0:
        return False
    for item in value.values() if isinstance(value, dict) else value:  # a generator takes twice as long
        if isinstance(item, dict | list) and not _has_depth(item, levels - 1):
            return False
    return True


Timestamp = Annotated[datetime, BeforeValidator(_parse_time)]
Label = Annotated[StrictStr, Field(min_length=1, max_length=200), AfterValidator(_check_nul)]
Text = Annotated[StrictStr, Field(max_length=8192), AfterValidator(_check_nul)]
Name = Annotated[StrictStr, Field(max_length=512), AfterValidator(_check_nul)]
Evidence = Annotated[StrictStr, Field(max_length=65_536)]


class _ImportModel(BaseModel):
    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)


class ImportedPattern(_ImportModel):
    """The rule that found an imported finding."""

    name: Name = "Imported credential"
    secret_type: Name = "unknown"  # noqa: S105


class ImportedDetail(BaseModel):
    """The validation detail of an imported finding; fields that are not listed are kept."""

    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)
    enabled_services: Annotated[list[Label], Field(max_length=200)] = []


class ImportedEvidence(_ImportModel):
    """The resolution evidence of an imported finding."""

    auto_resolved: StrictBool = False
    resolved_by: Name | None = None


class ImportedFinding(_ImportModel):
    """One finding of an import file: the fields with checks or defaults of their own.

    `validate_finding` adds all other fields of a finding. Every field has a default. `secret` is the raw
    credential. It is encrypted before it is stored. `fingerprint` is the one of the scanner that reports the
    finding. `surroundings`, `snippet`, `parts` and `repo` are those of `formats`; only `repo` may be in a
    file of format `outcrop`.
    """

    id: Annotated[UUID, BeforeValidator(_parse_uuid)] | None = None
    secret: Annotated[StrictStr, Field(min_length=1, max_length=65_536)] | None = Field(None, repr=False)
    fingerprint: Text | None = None
    surroundings: Evidence | None = Field(None, repr=False)
    snippet: Evidence | None = Field(None, repr=False)
    parts: Annotated[list[Evidence], Field(max_length=32, repr=False)] = []
    repo: Text | None = None
    legacy_id: Annotated[UUID, BeforeValidator(_parse_uuid)] | None = None
    commit: Name | None = None
    author: Name | None = None
    rule: Name | None = None
    status: Status = Status.ACTIVE
    validation_status: Validation = Validation.UNVALIDATED
    validation_confidence: Confidence = Confidence.LOW
    validation_detail: Annotated[ImportedDetail, BeforeValidator(_check_depth)] = ImportedDetail()
    composite_score: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False, strict=True)] = 0.0
    source_type: SourceType = SourceType.REPO
    source_visibility: Visibility = Visibility.UNKNOWN
    source_url: Text | None = None
    repo_full_name: Name | None = None
    file_path: Text | None = None
    line_number: Annotated[int, Field(ge=0, le=_MAX_INT4, strict=True)] | None = None
    matched_text: Name | None = None
    pattern: ImportedPattern = ImportedPattern()
    first_seen_at: Timestamp | None = None
    last_seen_at: Timestamp | None = None
    seen_count: Annotated[int, Field(ge=0, le=_MAX_INT4, strict=True)] = 1
    resolved_at: Timestamp | None = None
    resolution_note: (
        Annotated[StrictStr, Field(max_length=NOTE_LENGTH), AfterValidator(_check_nul)] | None
    ) = None
    resolution_evidence: ImportedEvidence | None = None


# How a value of a type is checked, for fields that ImportedFinding does not list.
_CHECKED_TYPES = {
    datetime: Timestamp,
    str: Text,
    int: Annotated[int, Field(ge=0, le=_MAX_INT4, strict=True)],
    bool: StrictBool,
    UUID: Annotated[UUID, BeforeValidator(_parse_uuid)],
    tuple[int, ...]: tuple[Annotated[int, Field(ge=0, le=_MAX_INT4, strict=True)], ...],
}


def _build_model() -> type[ImportedFinding]:
    """Return ImportedFinding with the fields of a finding that it does not list."""
    added: dict[str, Any] = {
        field.name: (_checked_type(field), field.default)
        for field in FINDING_FIELDS
        if field.name not in ImportedFinding.model_fields and not field.by_database
    }
    return create_model("CompleteImportedFinding", __base__=ImportedFinding, **added)


def _checked_type(field: FindingField) -> Any:
    """Return the type with which pydantic checks an imported field. Raise TypeError if it has no default."""
    if field.default is MISSING:
        raise TypeError(f"{field.name}: an imported finding needs a default for it")
    checked: Any = Annotated[_CHECKED_TYPES.get(field.type, field.type), Field(**field.limits)]
    return checked | None if field.nullable else checked


_CompleteImportedFinding = _build_model()
_SHAPED_BY_IMPORTER = {
    "id",
    "validation_detail",
    "matched_text",
    "pattern",
    "first_seen_at",
    "last_seen_at",
    "resolved_at",
    "resolution_note",
    "resolution_evidence",
}
# Fields that an imported finding takes over as they are.
COPIED_FIELDS = [
    field.name for field in FINDING_FIELDS if field.name not in _SHAPED_BY_IMPORTER and not field.by_database
]


def validate_finding(fields: dict[str, Any]) -> ImportedFinding:
    """Return the checked fields of a record. Raise pydantic's ValidationError if one is wrong."""
    return _CompleteImportedFinding.model_validate(fields)
