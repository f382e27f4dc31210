"""The fields of a finding as data, read from the class `Finding`.

Store, API, import and export derive their own forms from FINDING_FIELDS, so that a new field is added in one
place. SHOWN_FIELDS also has the fields that follow from others and are not stored.
"""

from dataclasses import MISSING, dataclass, fields
from types import UnionType
from typing import Any, get_args, get_type_hints

from outcrop.domain.finding import Finding, Severity


@dataclass(frozen=True, slots=True)
class FindingField:
    """One field of a finding."""

    name: str
    type: Any  # without None
    nullable: bool
    default: Any  # MISSING if the field has none
    columns: tuple[str, ...]  # its columns in the database: one, or one for each element of a tuple
    description: str  # for the API
    extension: bool  # the specification does not have the field
    limits: dict[str, Any]  # arguments of pydantic's Field
    by_database: bool = False  # the database writes it; no import sets it
    is_optional: bool = False  # may be null, although the database writes it


def _read_fields() -> tuple[FindingField, ...]:
    """Return the fields of the class `Finding`, in their order."""
    hints = get_type_hints(Finding)
    found = []
    for field in fields(Finding):
        hint, meta = hints[field.name], field.metadata
        nullable = isinstance(hint, UnionType)
        found.append(
            FindingField(
                field.name,
                get_args(hint)[0] if nullable else hint,
                nullable,
                field.default,
                meta.get("columns") or (field.name,),
                meta.get("description", ""),
                meta.get("extension", False),
                meta.get("limits", {}),
                meta.get("by_database", False),
                meta.get("is_optional", False),
            )
        )
    return tuple(found)


FINDING_FIELDS = _read_fields()
_SEVERITY = FindingField(
    "severity",
    Severity,
    nullable=False,
    default=MISSING,
    columns=(),
    description="Range of `composite_score`: `critical` from 80, `high` from 60, `medium` from 40.",
    extension=True,
    limits={},
)
SHOWN_FIELDS = (*FINDING_FIELDS, _SEVERITY)
