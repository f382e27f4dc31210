"""Parameters of `/api/v2`: of the query, the path and the headers."""

import re
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from outcrop.api.errors import ParameterError
from outcrop.api.parameters import (
    READ_INTEGER,
    UUID_SCHEMA,
    Absent,
    Boolean,
    PageNumber,
    Parameters,
    parse_path_id,
)
from outcrop.domain.errors import BadInputError
from outcrop.lazy_regex import regex
from outcrop.limits import IDEMPOTENCY_KEY_LENGTH, IMPORT_REPO_LENGTH
from outcrop.services.exchange.formats import ImportFormat
from outcrop.sources.repository_address import normalise_repository

_KEY = regex(rf"[!-~]{{1,{IDEMPOTENCY_KEY_LENGTH}}}", re.ASCII)
_COMMIT = "^[0-9a-fA-F]{7,64}$"

IMPORT_ID = {"name": "import_id", "in": "path", "required": True, "schema": UUID_SCHEMA}
IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key and request again get the first answer. Keys are kept for 7 days.",
    "schema": {"type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_LENGTH, "pattern": "^[!-~]+$"},
}
CONTENT_ENCODING = {
    "name": "Content-Encoding",
    "in": "header",
    "required": False,
    "description": "How the body is compressed.",
    "schema": {"type": "string", "enum": ["gzip", "identity"]},
}


def _check_repository(text: str) -> str:
    """Return the address of a repository unchanged; raise if it is none."""
    if normalise_repository(text) is None:
        raise PydanticCustomError("repository", "Input should be the address of a repository")
    return text


Repo = Annotated[
    str,
    Field(min_length=1, max_length=IMPORT_REPO_LENGTH),
    AfterValidator(_check_repository),
    WithJsonSchema(
        {"type": "string", "minLength": 1, "maxLength": IMPORT_REPO_LENGTH, "pattern": r"^[^\u0000]*$"}
    ),
]
Commit = Annotated[str, Field(pattern=_COMMIT)]


class ImportListParameters(Parameters):
    page: PageNumber = Field(1, description="1-based page.")
    per_page: Annotated[int, Field(ge=1, le=200), READ_INTEGER] = Field(25, description="Results per page.")


class UploadParameters(Parameters):
    format: ImportFormat = Field(ImportFormat.AUTO, description="Format of the report; `auto` detects it.")
    repo: Repo | Absent = Field(None, description="The repository, for reports that do not name it.")
    commit: Commit | Absent = Field(None, description="The commit that was scanned.")
    events: Boolean = Field(True, description="Whether new findings send `finding.new` after validation.")


def import_id(text: str) -> UUID:
    """Parse the path parameter `import_id`; raise ParameterError if it is not a UUID."""
    return parse_path_id("import_id", text)


def idempotency_key(headers: list[tuple[bytes, bytes]]) -> str | None:
    """Return the Idempotency-Key; raise ParameterError if it is invalid or given twice."""
    values = [value.decode("latin-1") for name, value in headers if name == b"idempotency-key"]
    if not values:
        return None
    if len(values) > 1:
        raise ParameterError([_header_problem("duplicate_parameter", "Input should be given once")])
    if _KEY.fullmatch(values[0]) is None:
        message = f"Input should be 1 to {IDEMPOTENCY_KEY_LENGTH} visible ASCII characters"
        raise ParameterError([_header_problem("string_pattern_mismatch", message)])
    return values[0]


def _header_problem(type_: str, message: str) -> dict[str, object]:
    """Return one entry of the 422 body for the Idempotency-Key."""
    return {"loc": ["header", "Idempotency-Key"], "msg": message, "type": type_}


def is_gzip(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether the body is compressed with gzip; raise BadInputError for any other encoding."""
    encodings = [value.strip().lower() for name, value in headers if name == b"content-encoding"]
    if encodings in ([], [b""], [b"identity"]):
        return False
    if encodings in ([b"gzip"], [b"x-gzip"]):
        return True
    raise BadInputError("the only Content-Encoding of a body is gzip")
