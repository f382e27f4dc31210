"""A client of the REST API.

    from outcrop.client import Client

    with Client("https://outcrop.example.com", key) as client:
        for finding in client.iterate_findings(status="active", severity="critical"):
            print(finding["id"], finding["source_url"])

`AsyncClient` has the same methods for `async with`. docs/client.md explains both. Importing this package
imports nothing of the service.
"""

from typing import TYPE_CHECKING, Any

from outcrop.client.errors import (
    AuthError,
    InvalidRequest,
    InvalidTransition,
    NotFound,
    OutcropApiError,
    PlanError,
    RateLimited,
    ServerError,
    TransportError,
)
from outcrop.client.sync_client import Client
from outcrop.client.types import (
    BulkResult,
    FindingFields,
    ImportFields,
    IncidentFields,
    ResultPage,
    ScanFields,
    ScoreFields,
)

if TYPE_CHECKING:
    from outcrop.client.async_client import AsyncClient

__all__ = [
    "AsyncClient",
    "AuthError",
    "BulkResult",
    "Client",
    "FindingFields",
    "ImportFields",
    "IncidentFields",
    "InvalidRequest",
    "InvalidTransition",
    "NotFound",
    "OutcropApiError",
    "PlanError",
    "RateLimited",
    "ResultPage",
    "ScanFields",
    "ScoreFields",
    "ServerError",
    "TransportError",
]


def __getattr__(name: str) -> Any:
    """Import `AsyncClient` at its first use: aiohttp takes longer to import than a short program runs."""
    if name == "AsyncClient":
        from outcrop.client.async_client import AsyncClient  # noqa: PLC0415

        return AsyncClient
    raise AttributeError(name)
