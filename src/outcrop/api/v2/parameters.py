"""Query and path parameters of `/api/v2`."""

from typing import Annotated
from uuid import UUID

from pydantic import Field

from outcrop.api.parameters import READ_INTEGER, UUID_SCHEMA, PageNumber, Parameters, parse_path_id

IMPORT_ID = {"name": "import_id", "in": "path", "required": True, "schema": UUID_SCHEMA}


class ImportListParameters(Parameters):
    page: PageNumber = Field(1, description="1-based page.")
    per_page: Annotated[int, Field(ge=1, le=200), READ_INTEGER] = Field(25, description="Results per page.")


def import_id(text: str) -> UUID:
    """Parse the path parameter `import_id`; raise ParameterError if it is not a UUID."""
    return parse_path_id("import_id", text)
