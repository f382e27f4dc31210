"""Parameters of `/api/v1/incidents`."""

from typing import Annotated
from uuid import UUID

from pydantic import Field, WithJsonSchema

from outcrop.api.errors import ParameterError
from outcrop.api.parameters import (
    NO_NUL,
    READ_INTEGER,
    UUID_SCHEMA,
    Absent,
    Boolean,
    Moment,
    PageNumber,
    Parameters,
    Score,
    Terms,
    Text,
    Value,
    assignee_of,
    end_of,
    parse_path_id,
    start_of,
)
from outcrop.domain.finding import Severity, Validation
from outcrop.domain.incident import IncidentOrder, IncidentQuery, IncidentStatus
from outcrop.domain.paging import OrderDir
from outcrop.limits import ASSIGNEE_LENGTH, COMMENT_LENGTH

INCIDENT_ID = {"name": "incident_id", "in": "path", "required": True, "schema": UUID_SCHEMA}
PerPage = Annotated[int, Field(ge=1, le=200), READ_INTEGER]


class IncidentParameters(Parameters):
    status: IncidentStatus | Absent = Field(None, description="`open` while any place is active or stale.")
    validation: Validation | Absent = Field(None, description="Result of validation (`validation_status`).")
    service: Text | Absent = Field(
        None, description="A label of `validation_detail.enabled_services`, exactly."
    )
    secret_type: Value | Absent = Field(None, description="`pattern.secret_type`, exactly.")
    min_score: Score | Absent = Field(None, description="At least this `composite_score`.")
    severity: Severity | Absent = Field(None, description="Range of `composite_score`.")
    date_from: Moment | Absent = Field(
        None, description="First seen on or after; a date is the whole UTC day."
    )
    date_to: Moment | Absent = Field(
        None, description="First seen on or before; a date is the whole UTC day."
    )
    q: Terms | Absent = Field(
        None,
        description="Words that must each stand in `source_url`, `file_path` or `repo_full_name` "
        "of one place.",
    )
    assignee: Value | Absent = Field(None, description="Address of a member, or `none`: nobody.")
    overdue: Boolean | Absent = Field(None, description="Only open incidents past `due_at`, or all others.")
    closed_valid: Boolean | Absent = Field(
        None, description="Only closed incidents whose credential is still valid, or all others."
    )
    page: PageNumber = Field(1, description="1-based page.")
    per_page: PerPage = Field(25, description="Results per page.")
    order_by: IncidentOrder = Field(
        IncidentOrder.COMPOSITE_SCORE,
        description="Sort key; ties are sorted by `id`. Without `due_at` it is last when ascending.",
    )
    order_dir: OrderDir = Field(OrderDir.DESC, description="Sort direction.")

    def query(self) -> IncidentQuery:
        """Return the parameters as a query of the domain."""
        return IncidentQuery(
            status=self.status,
            validation=self.validation,
            service=self.service,
            secret_type=self.secret_type,
            min_score=self.min_score,
            severity=self.severity,
            seen_from=start_of(self.date_from),
            seen_before=end_of(self.date_to),
            terms=self.q or (),  # type: ignore[arg-type]  # the validator returns a tuple
            assignee=assignee_of(self.assignee),
            overdue=self.overdue,
            closed_valid=self.closed_valid,
            page=self.page,
            per_page=self.per_page,
            order_by=self.order_by,
            order_dir=self.order_dir,
        )


class AssigneeParameters(Parameters):
    assignee: Annotated[
        str,
        Field(max_length=ASSIGNEE_LENGTH),
        WithJsonSchema({"type": "string", "maxLength": ASSIGNEE_LENGTH, "pattern": NO_NUL}),
    ] = Field(description="Address of a member of the account, or empty: nobody.")


class CommentListParameters(Parameters):
    page: PageNumber = Field(1, description="1-based page.")
    per_page: PerPage = Field(25, description="Results per page.")


class CommentParameters(Parameters):
    text: Annotated[
        str,
        Field(min_length=1, max_length=COMMENT_LENGTH),
        WithJsonSchema({"type": "string", "minLength": 1, "maxLength": COMMENT_LENGTH, "pattern": NO_NUL}),
    ] = Field(description="Credentials in it are masked.")


def incident_id(text: str) -> UUID:
    """Parse the path parameter `incident_id`; raise ParameterError if it is not a UUID."""
    return parse_path_id("incident_id", text)


def no_such_member() -> ParameterError:
    """Return the error for an assignee that is no member of the account."""
    message = "Input should be the address of a member of the account, or empty"
    return ParameterError([{"loc": ["query", "assignee"], "msg": message, "type": "value_error"}])
