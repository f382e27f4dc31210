"""The columns of a finding, derived from its fields; findings to rows and back."""

from datetime import datetime
from enum import Enum
from operator import attrgetter
from typing import Any, get_origin
from uuid import UUID

from psycopg.types.json import Jsonb

from outcrop.domain.finding import Finding
from outcrop.domain.finding_fields import FINDING_FIELDS, FindingField

_SQL_TYPES = {UUID: "uuid", datetime: "timestamptz", int: "int4", float: "float8", bool: "bool", str: "text"}


def _column_types(field: FindingField) -> dict[str, str]:
    """Return the SQL type of each column of a field, by the column's name."""
    if len(field.columns) > 1:
        hints = field.type.__annotations__.values()
        return {name: _SQL_TYPES.get(hint, "text") for name, hint in zip(field.columns, hints, strict=True)}
    if get_origin(field.type) is dict:
        return {field.name: "jsonb"}
    if get_origin(field.type) is tuple:
        return {field.name: "int4[]"}
    return {field.columns[0]: _SQL_TYPES.get(field.type, "text")}


COLUMN_TYPES = {name: type_ for field in FINDING_FIELDS for name, type_ in _column_types(field).items()}
COLUMNS = ", ".join(COLUMN_TYPES)
_WRITTEN_FIELDS = tuple(field for field in FINDING_FIELDS if not field.by_database)
WRITTEN_COLUMN_TYPES = {
    name: type_ for field in _WRITTEN_FIELDS for name, type_ in _column_types(field).items()
}
# Conditions on the rows of one account: one finding by its id, and some findings by their ids or a column.
# The planner must see neither the account nor the number of values. The statistics do not know an account
# that was just filled, so reading all of it would look as cheap as reading a row by its key, and plans are
# cached.
OF_ACCOUNT = "account_id = (SELECT %s::int)"
BY_ID = f"{OF_ACCOUNT} AND id = %s"


def one_of(column: str, sql_type: str = "uuid") -> str:
    """Return the condition that a column has one of the values of an array, which is its parameter."""
    return f"{column} = ANY((SELECT %s::{sql_type}[])::{sql_type}[])"


_get_values = attrgetter(*(field.name for field in _WRITTEN_FIELDS))
_ARRAY_FIELDS = [i for i, field in enumerate(FINDING_FIELDS) if get_origin(field.type) is tuple]
_WRITTEN_ARRAY_FIELDS = [i for i, field in enumerate(_WRITTEN_FIELDS) if get_origin(field.type) is tuple]
_TUPLE_FIELDS = [
    (index, len(field.columns), field.type)
    for index, field in enumerate(FINDING_FIELDS)
    if len(field.columns) > 1
]
_WRITTEN_JSON_FIELDS = [i for i, field in enumerate(_WRITTEN_FIELDS) if get_origin(field.type) is dict]
_WRITTEN_TUPLE_FIELDS = [
    (i, len(field.columns)) for i, field in enumerate(_WRITTEN_FIELDS) if len(field.columns) > 1
]
# A dict lookup is ten times faster than calling an enum's class.
_ENUM_FIELDS = [
    (index, {member.value: member for member in field.type} | ({None: None} if field.nullable else {}))
    for index, field in enumerate(FINDING_FIELDS)
    if isinstance(field.type, type) and issubclass(field.type, Enum)
]


def build_finding(row: tuple[Any, ...]) -> Finding:
    """Return the finding of a row whose first columns are COLUMNS."""
    values = list(row[: len(COLUMN_TYPES)])
    for index, width, class_ in _TUPLE_FIELDS:  # in order, so that each begins at its field's index
        parts = values[index : index + width]
        values[index : index + width] = [None if parts[0] is None else class_(*parts)]
    for index in _ARRAY_FIELDS:
        values[index] = tuple(values[index])
    for index, members in _ENUM_FIELDS:
        values[index] = members[values[index]]
    return Finding(*values)


def build_row(finding: Finding) -> list[Any]:
    """Return the values of a finding in the order of WRITTEN_COLUMN_TYPES."""
    values = list(_get_values(finding))
    for index in _WRITTEN_JSON_FIELDS:
        values[index] = Jsonb(values[index])
    for index in _WRITTEN_ARRAY_FIELDS:
        values[index] = list(values[index])
    for index, width in reversed(_WRITTEN_TUPLE_FIELDS):  # replacing one moves only later values
        values[index : index + 1] = values[index] or [None] * width
    return values
