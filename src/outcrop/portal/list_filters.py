"""Resolve the filters of the portal's list that need a look-up: issuer, target, terms that name a type."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from outcrop.domain.paging import FindingQuery
from outcrop.domain.target import Target
from outcrop.portal.queries import ListView, read_view
from outcrop.portal.request import PortalRequest
from outcrop.scanner.rules.issuers import TypeNames, read_type_names
from outcrop.store.db import Connection
from outcrop.store.findings import attributes, rollups
from outcrop.store.runs import scan_sources, targets

_SUGGESTED = 200  # values of a filter that are suggested, the most frequent first


async def resolve_filters(
    db: Connection,
    account_id: int,
    query: FindingQuery,
    *,
    issuer: str | None,
    target: UUID | None,
    own_rules: Sequence[Path] = (),
) -> FindingQuery:
    """Return the query with the credential types of an issuer, the sources of a target, and types by term."""
    if issuer is not None or query.terms:
        names = await asyncio.to_thread(read_type_names, own_rules)
    if issuer is not None:
        query = replace(query, secret_types=_types_of_issuer(names, issuer))
    if target is not None:
        query = replace(query, sources=tuple(await scan_sources.select_sources(db, account_id, target)))
    if query.terms:
        types = await rollups.select_values(db, account_id, attributes.SECRET_TYPE, limit=None)
        query = replace(query, term_types=tuple(_types_of_term(names, types, term) for term in query.terms))
    return query


def _types_of_issuer(names: dict[str, TypeNames], issuer: str) -> tuple[str, ...]:
    """Return the credential types that an issuer issues; its name may be in any case."""
    wanted = issuer.casefold()
    return tuple(
        sorted(
            secret_type
            for secret_type, known in names.items()
            if wanted in {name.casefold() for name in known.issuers}
        )
    )


def _types_of_term(names: dict[str, TypeNames], types: Sequence[str], term: str) -> tuple[str, ...]:
    """Return those of an account's types that a search term finds: by the type, its rules or its issuers."""
    wanted = term.casefold()
    return tuple(
        secret_type
        for secret_type in types
        if wanted in secret_type.casefold() or (secret_type in names and names[secret_type].contain(wanted))
    )


async def load_view(request: PortalRequest, parameters: Mapping[str, str]) -> ListView:
    """Return the view of a query string, with what its filters by issuer, target and term mean."""
    view = read_view(parameters, request.email, request.zone)
    query = await resolve_filters(
        request.db,
        request.account_id,
        view.query,
        issuer=view.issuer,
        target=view.target,
        own_rules=request.context.own_rules,
    )
    return replace(view, query=query)


@dataclass(frozen=True, slots=True)
class Suggestions:
    """Values that filters of the list can have in an account."""

    types: tuple[str, ...]
    issuers: tuple[str, ...]
    repos: tuple[str, ...]
    authors: tuple[str, ...]
    targets: tuple[Target, ...]


async def name_targets(db: Connection, account_id: int) -> dict[str, str]:
    """Return the names of an account's targets by id."""
    return {str(target.id): target.spec.shown for target in await targets.select_all(db, account_id)}


async def suggest_types(db: Connection, account_id: int) -> list[str]:
    """Return the credential types of an account's findings, the most frequent ones."""
    return await rollups.select_values(db, account_id, attributes.SECRET_TYPE, limit=_SUGGESTED)


async def suggest_values(db: Connection, account_id: int, own_rules: Sequence[Path] = ()) -> Suggestions:
    """Return the values of an account's findings that filters can have, the most frequent ones."""
    names = await asyncio.to_thread(read_type_names, own_rules)
    types, repos, authors = [
        await rollups.select_values(db, account_id, attribute, limit=_SUGGESTED)
        for attribute in (attributes.SECRET_TYPE, attributes.REPO, attributes.AUTHOR)
    ]
    issuers = {
        issuer for secret_type in types if secret_type in names for issuer in names[secret_type].issuers
    }
    return Suggestions(
        tuple(types),
        tuple(sorted(issuers, key=str.casefold)),
        tuple(repos),
        tuple(authors),
        tuple(await targets.select_all(db, account_id)),
    )
